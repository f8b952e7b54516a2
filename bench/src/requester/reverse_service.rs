//! Who answers the server's calls, and answers on their way.

use std::collections::VecDeque;
use std::fmt;

use millrace_wire::rpc::{Accepted, Credential};
use millrace_wire::xdr::{self, Encoder};

use super::gss::ReverseContext;

/// A call of the server's.
#[derive(Clone, Copy, Debug)]
pub struct ReverseCall<'a> {
    /// Transaction identifier, from the server's own numbers.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// Who calls.
    pub credential: &'a Credential<'a>,
    /// The arguments as they came.
    pub arguments: &'a [u8],
}

/// Who answers the server's calls.
pub trait ReverseService {
    /// Answers a call at once, and appends its results if it succeeds. The results must fit
    /// inline; of a status that is no success none are sent.
    ///
    /// # Errors
    /// [`xdr::Error::Full`] if the results do not fit: the server is told that there is no room
    /// for the reply. Other errors count as [`Accepted::SystemError`].
    fn serve(&mut self, call: &ReverseCall<'_>, results: &mut Encoder<'_>)
    -> xdr::Result<Accepted>;
}

/// The service, if there is one, and answers on their way.
#[derive(Default)]
pub(super) struct Reverse {
    pub service: Option<Box<dyn ReverseService>>,
    /// The security context that calls have to be under, if there is one.
    pub context: Option<ReverseContext>,
    /// Where answers are made.
    pub space: Vec<u8>,
    /// Answers that could not be sent yet, in order.
    pub waiting: VecDeque<Box<[u8]>>,
}

impl Reverse {
    /// A new connection owes no answers.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }
}

impl fmt::Debug for Reverse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reverse")
            .field("service", &self.service.is_some())
            .field("waiting", &self.waiting.len())
            .finish()
    }
}
