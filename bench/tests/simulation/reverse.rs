//! Calls that the server makes to its clients.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace::rdma::RdmaConnection;
use millrace::rpc::reverse::{ReverseCall, ReverseError};
use millrace_wire::rpc::{self, CallHeader, Credential, MessageType, OpaqueAuth};
use millrace_wire::xdr::{Encode, Encoder};

use super::dice::Dice;

/// How long the server waits for a client.
const REVERSE_TIMEOUT: Duration = Duration::from_millis(20);
/// A program that nobody serves.
const PROGRAM: u32 = 0x4000_0000;

type Outcome = Result<Vec<u8>, ReverseError>;

/// Calls under way.
#[derive(Default)]
pub struct Calls {
    open: Vec<Pin<Box<dyn Future<Output = Outcome>>>>,
    /// Calls that were answered.
    pub answered: u64,
}

impl Calls {
    /// Makes a call.
    pub fn make(&mut self, connection: &RdmaConnection, dice: &mut Dice, now: Instant) {
        let header = CallHeader {
            xid: 0,
            program: PROGRAM,
            version: 1,
            procedure: 0,
            credential: Credential::None,
            verifier: OpaqueAuth::NONE,
        };
        let mut message = vec![0; 40 + 4 * dice.below(100)];
        let encoded = header.encode(&mut Encoder::new(&mut message));
        encoded.expect("40 bytes are enough");
        let connection = connection.identity().clone();
        connection.allow_reverse();
        self.open.push(Box::pin(async move {
            let call = ReverseCall {
                message: &message,
                protection: None,
                repeats: None,
                deadline: now + REVERSE_TIMEOUT,
            };
            connection.call_client(call).await
        }));
    }

    /// Goes on with all of them, and now and then forgets one. Returns those that ended.
    ///
    /// # Errors
    /// A reply that is none.
    pub fn run(&mut self, dice: &mut Dice) -> Result<usize, String> {
        if !self.open.is_empty() && dice.once_in(200) {
            let forgotten = self.open.remove(dice.below(self.open.len()));
            drop(forgotten);
        }
        let before = self.open.len();
        let mut wrong = None;
        let mut answered = 0;
        let mut context = Context::from_waker(Waker::noop());
        self.open
            .retain_mut(|call| match call.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(Ok(reply)) => {
                    answered += 1;
                    if !matches!(rpc::peek(&reply), Ok((_, MessageType::Reply))) {
                        wrong = Some(format!("no reply of a client's: {reply:x?}"));
                    }
                    false
                }
                Poll::Ready(Err(error)) => {
                    let may = matches!(
                        error,
                        ReverseError::TimedOut { .. }
                            | ReverseError::NotReady
                            | ReverseError::ConnectionLost { .. }
                    );
                    if !may {
                        wrong = Some(format!("a call to a client: {error}"));
                    }
                    false
                }
            });
        self.answered += answered;
        wrong.map_or(Ok(before - self.open.len()), Err)
    }

    /// Calls under way.
    pub fn len(&self) -> usize {
        self.open.len()
    }
}
