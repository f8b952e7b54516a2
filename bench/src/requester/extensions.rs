//! Extensions as their authors see them, and those of a connection.

use arrayvec::ArrayVec;
use millrace_wire::rpcrdma::{ExtensionTable, Optional};
use millrace_wire::xdr::Encoder;

use super::call::CallError;

/// Most messages of extensions without an answer.
const OUT_MAX: usize = 16;

/// One extension: all of its message types together.
pub trait Extension {
    /// The types of its messages, all of them (section 4.3).
    fn kinds(&self) -> &[u32];

    /// Takes a message of one of its types. A message with direction CALL may be answered: the
    /// answer's opaque bytes are appended to `answer` and its type is returned. A message with
    /// direction REPLY is never answered.
    fn received(
        &mut self,
        xid: u32,
        message: &Optional<'_>,
        answer: &mut Encoder<'_>,
    ) -> Option<u32>;

    /// The server refused a message that [`send_option`](crate::requester::Connection::send_option)
    /// sent.
    fn refused(&mut self, xid: u32, error: CallError);
}

/// Why a message of an extension was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No extension has this type.
    #[error("the message type {0:#010x} belongs to no extension")]
    Unknown(u32),
    /// The connection does not speak version two.
    #[error("the connection does not speak version two")]
    Version,
    /// No credit, no memory or no room in the send queue now.
    #[error("no message can be sent now")]
    Busy,
    /// The message is longer than the server takes.
    #[error("the message is too long")]
    TooLong,
}

/// The extensions of a connection.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub table: ExtensionTable<Box<dyn Extension>>,
    /// Messages without an answer: XID and type.
    pub out: ArrayVec<(u32, u32), OUT_MAX>,
}

impl Extensions {
    /// Takes a message off the list of those without an answer.
    pub fn answered(&mut self, xid: u32) -> Option<u32> {
        let at = self.out.iter().position(|&(out, _)| out == xid)?;
        Some(self.out.swap_remove(at).1)
    }

    /// A new connection owes no answers.
    pub fn forget(&mut self) {
        self.out.clear();
    }
}
