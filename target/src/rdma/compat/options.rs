//! Optional operations of version two (version two draft sections 4.1 to 4.3).
//!
//! An extension of the protocol is a set of message types, each an RDMA2_OPTIONAL with a number of
//! its own. A peer finds out by trying whether the other side has it, so an extension is there
//! with all of its types or not at all: it is registered as a whole. None is built in.
//!
//! Whoever writes an extension states with it (section 4.3):
//! * what each of its types is for,
//! * the layout of what they carry, in XDR,
//! * how it reports errors that the base protocol has no code for,
//! * whether an RPC message, or a part of one, follows, and what it holds,
//! * what it needs of other extensions and does to them.

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

/// An extension: all that one document defines.
pub trait Extension {
    /// All of its message types.
    fn kinds(&self) -> &[u32];

    /// Takes a message of one of its types. A message with direction CALL may be answered: the
    /// bytes of the answer go to `answer`, which is empty. What is said to a message with
    /// direction REPLY is not sent, as that is none to be answered.
    fn take(
        &self,
        peer: Peer,
        xid: u32,
        message: &Optional<'_>,
        answer: &mut Vec<u8>,
    ) -> OptionOutcome;
}

/// What an extension makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionOutcome {
    /// It needs no answer.
    Unanswered,
    /// An RDMA2_OPTIONAL of this type goes back, with the XID of the message and direction REPLY.
    Answered(u32),
    /// What it carries cannot be decoded: RDMA2_ERR_BAD_XDR goes back.
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

    /// The extension that a message type is of.
    #[must_use]
    pub fn find(&self, kind: u32) -> Option<Rc<dyn Extension>> {
        self.extensions.borrow().find(kind).cloned()
    }
}

/// Takes an RDMA2_OPTIONAL or RDMA_DONE. What answers it is put into `prepared`.
pub(in crate::rdma) async fn take<S>(
    shared: &ResponderShared<S>,
    connection: &RdmaConnection,
    header: &Header<'_>,
    prepared: &mut Option<Prepared>,
) -> Result<ServeOutcome, Broken> {
    let Body::Optional(optional) = header.body else {
        // In classic mode RDMA_DONE never comes to here; in any other none is awaited, for no reply
        // has read chunks.
        count(shared, connection, |counters| {
            counters.dones.add(1);
            counters.dones_stray.add(1);
        });
        return Ok(ServeOutcome::Nothing);
    };
    // Errors and answers go to requesters only (version two draft section 5.2.2).
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
    let mut send = shared.slices();
    send.push(buffer.into_slice(0..length));
    *prepared = Some(Prepared {
        xid,
        chain: shared.chain(),
        send,
        written: 0,
        invalidate: None,
        long: false,
        follow_up: None,
    });
    Ok(ServeOutcome::Reply)
}
