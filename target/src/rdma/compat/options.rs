//! Optional operations of version two (version two draft sections 4.1 to 4.3).
//!
//! An extension of the protocol is a set of message types, each an RDMA2_OPTIONAL with its own
//! number. A peer detects support by trying, so an extension is supported with all of its types or
//! not at all: it is registered as a whole. None is built in.
//!
//! The author of an extension specifies (section 4.3):
//! * the purpose of each of its types,
//! * the layout of their content, in XDR,
//! * how it reports errors without a code in the base protocol,
//! * whether an RPC message, or a part of one, follows, and its content,
//! * its requirements of other extensions and effects on them.

use std::cell::RefCell;
use std::rc::Rc;

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::version2::encode_optional;
use millrace_wire::rpcrdma::{
    Body, ExtensionTable, Header, Optional, Reason, Refusal, RegisterError, Version,
};
use millrace_wire::xdr::Encoder;

use crate::call::{Broken, Peer};
use crate::rdma::answer::Prepared;
use crate::rdma::counters::count;
use crate::rdma::request::ServeOutcome;
use crate::rdma::{RdmaConnection, ResponderShared};

/// An extension: everything that one document defines.
pub trait Extension {
    /// All of its message types.
    fn kinds(&self) -> &[u32];

    /// Handles a message of one of its types. A message with direction CALL may be answered: the
    /// bytes of the answer go to `answer`, which is empty. An answer to a message with direction
    /// REPLY is not sent.
    fn take(
        &self,
        peer: Peer,
        xid: u32,
        message: &Optional<'_>,
        answer: &mut Vec<u8>,
    ) -> OptionOutcome;
}

/// The result of a message to an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionOutcome {
    /// There is no answer.
    Unanswered,
    /// An RDMA2_OPTIONAL of this type is sent, with the XID of the message and direction REPLY.
    Answered(u32),
    /// Its content cannot be decoded: RDMA2_ERR_BAD_XDR is sent.
    Malformed,
}

/// The extensions of one reactor's responder.
#[derive(Debug, Default)]
pub struct Options {
    extensions: RefCell<ExtensionTable<Rc<dyn Extension>>>,
}

impl Options {
    /// Adds an extension with all of its types, or not at all.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register(&self, extension: Rc<dyn Extension>) -> Result<(), RegisterError> {
        let kinds = extension.kinds().to_vec();
        self.extensions.borrow_mut().register(&kinds, extension)
    }

    /// The extension of a message type.
    #[must_use]
    pub fn find(&self, kind: u32) -> Option<Rc<dyn Extension>> {
        self.extensions.borrow().find(kind).cloned()
    }
}

/// Handles an RDMA2_OPTIONAL or RDMA_DONE. Its answer is put into `prepared`.
pub(in crate::rdma) async fn take<S>(
    shared: &ResponderShared<S>,
    connection: &RdmaConnection,
    header: &Header<'_>,
    prepared: &mut Option<Prepared>,
) -> Result<ServeOutcome, Broken> {
    let Body::Optional(optional) = header.body else {
        // In classic mode RDMA_DONE never arrives here; otherwise none is expected, as no reply has
        // read chunks.
        count(shared, connection, |counters| {
            counters.dones.add(1);
            counters.dones_stray.add(1);
        });
        return Ok(ServeOutcome::Nothing);
    };
    // Errors and answers are sent to requesters only (version two draft section 5.2.2).
    let is_call = optional.direction == MessageType::Call;
    let refused = |refusal| match is_call {
        true => Ok(ServeOutcome::Refused(refusal)),
        false => Ok(ServeOutcome::Nothing),
    };
    let Some(extension) = shared.options.find(optional.kind) else {
        return refused(Refusal::Option);
    };
    count(shared, connection, |counters| counters.optional.add(1));
    let (xid, mut opaque) = (header.words.xid, Vec::new());
    let kind = match extension.take(connection.peer(), xid, &optional, &mut opaque) {
        OptionOutcome::Answered(kind) if is_call => kind,
        OptionOutcome::Answered(_) | OptionOutcome::Unanswered => return Ok(ServeOutcome::Taken),
        OptionOutcome::Malformed => return refused(Refusal::Header(Reason::Truncated)),
    };
    let mut buffer = connection.reply_buffer(shared).await?;
    let limit = connection.inline().limit(Version::Two).min(buffer.len());
    let answer = Optional::new(MessageType::Reply, kind, &opaque);
    let mut out = Encoder::new(&mut buffer[..limit]);
    // The credits are written when they are known.
    if encode_optional(&mut out, xid, 0, &answer).is_err() {
        return refused(Refusal::CannotReply {
            processed: true,
            segment: 0,
            needed: 0,
        });
    }
    let length = out.position();
    let whole = std::iter::once(buffer.into_slice(0..length));
    *prepared = Some(Prepared::new(xid, shared.chain(), None, whole));
    Ok(ServeOutcome::Reply)
}
