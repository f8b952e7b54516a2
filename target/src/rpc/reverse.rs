//! Calls from here to a client, by a connection that the client made (RFC 8167): the face that both
//! transports have.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Instant;

use millrace_reactor::Clock;

pub use super::reverse_protection::ReverseProtection;

/// A call to a client.
#[derive(Clone, Copy, Debug)]
pub struct ReverseCall<'a> {
    /// An RPC call message. The value of its XID field is ignored.
    pub message: &'a [u8],
    /// How this transmission is protected, if the message is sent under RPCSEC_GSS. Its credential
    /// and verifier are empty then.
    pub protection: Option<&'a ReverseProtection>,
    /// The XID to use again, of a call that was not answered, if this is its repetition.
    pub repeats: Option<u32>,
    /// When to give up.
    pub deadline: Instant,
}

impl<'a> ReverseCall<'a> {
    /// The message to be sent under an XID. Transports call this once they have chosen that, as it is
    /// signed with the rest of the header.
    ///
    /// # Errors
    /// [`ReverseError::Unprotected`].
    pub fn message_under(&self, xid: u32) -> Result<Cow<'a, [u8]>, ReverseError> {
        let Some(protection) = self.protection else {
            return Ok(Cow::Borrowed(self.message));
        };
        let message = protection.protect(self.message, xid);
        message.map(Cow::Owned).ok_or(ReverseError::Unprotected)
    }
}

/// Why there is no reply from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReverseError {
    /// The upper layer has not said that the client takes calls, or the transport has no way to it.
    #[error("the client has not announced that it accepts calls")]
    NotReady,
    /// The message is no RPC call.
    #[error("the message is no call")]
    NotACall,
    /// The message is longer than this many bytes, and calls to clients are not chunked.
    #[error("the message is longer than {most} bytes")]
    TooLong {
        /// Bytes that it may have.
        most: usize,
    },
    /// There was no reply, or no credit, in time.
    #[error("no reply to call {xid:#010x} before the timeout")]
    TimedOut {
        /// The XID of the call.
        xid: u32,
    },
    /// The connection ended first. The call can be repeated on the client's next one.
    #[error("the connection ended before the reply to call {xid:#010x}")]
    ConnectionLost {
        /// The XID of the call.
        xid: u32,
    },
    /// The message cannot be signed or encrypted.
    #[error("the call cannot be protected")]
    Unprotected,
    /// The reply is not the client's to this transmission (RFC 2203 section 5.3.3.2).
    #[error("the reply does not verify")]
    Unverified,
    /// The client answered with an error of the transport.
    #[error("the client refused the call with error {code}")]
    Refused {
        /// The error code (RFC 8166 section 4.5, version two draft section 5.2.4).
        code: u32,
    },
}

/// The future of a call to a client: its RPC reply message.
pub type ReverseReply<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, ReverseError>> + 'a>>;

/// A transport's way to call the client of one connection.
pub trait ReversePath {
    /// The client takes calls from now on.
    fn allow(&self);

    /// Calls the client.
    fn call<'a>(&'a self, call: ReverseCall<'a>) -> ReverseReply<'a>;
}

/// Where XIDs begin: another place each time, as clients may remember those of an earlier one.
pub(crate) fn first_xid() -> u32 {
    RandomState::new().hash_one(()) as u32
}

/// The output of a future, or `None` if the deadline passes first.
pub(crate) async fn until<F: Future>(
    clock: &Clock,
    deadline: Instant,
    future: F,
) -> Option<F::Output> {
    let (mut future, mut late) = (pin!(future), pin!(clock.sleep_until(deadline)));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => late.as_mut().poll(context).map(|()| None),
    })
    .await
}
