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
use std::fmt;
use std::rc::Rc;

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::Optional;

use crate::call::Peer;

/// An extension: all that one document defines.
pub trait Extension {
    /// All of its message types.
    fn kinds(&self) -> &[u32];

    /// Takes a message of one of its types. A message with direction CALL may be answered: the
    /// bytes of the answer go to `answer`, which is empty. What is said to a message with
    /// direction REPLY is not sent, as that is none to be answered.
    fn take(&self, peer: Peer, xid: u32, message: &Optional<'_>, answer: &mut Vec<u8>) -> Taken;
}

/// What an extension makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It needs no answer.
    Unanswered,
    /// An RDMA2_OPTIONAL of this type goes back, with the XID of the message and direction REPLY.
    Answered(u32),
    /// What it carries cannot be decoded: RDMA2_ERR_BAD_XDR goes back.
    Malformed,
}

/// Why an extension is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// It has no types, so nobody could reach it.
    #[error("an extension without message types")]
    Empty,
    /// A type is taken, by another extension or twice by this one. None of its types is
    /// registered.
    #[error("message type {0} is taken")]
    Taken(u32),
}

/// The extensions of one reactor's responder.
#[derive(Default)]
pub struct Options {
    extensions: RefCell<Vec<Rc<dyn Extension>>>,
}

impl Options {
    /// Adds an extension with all of its types, or not at all.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register(&self, extension: Rc<dyn Extension>) -> Result<(), RegisterError> {
        let kinds = extension.kinds();
        if kinds.is_empty() {
            return Err(RegisterError::Empty);
        }
        for (index, &kind) in kinds.iter().enumerate() {
            if kinds[..index].contains(&kind) || self.find(kind).is_some() {
                return Err(RegisterError::Taken(kind));
            }
        }
        self.extensions.borrow_mut().push(extension);
        Ok(())
    }

    /// The extension that a message type is of.
    #[must_use]
    pub fn find(&self, kind: u32) -> Option<Rc<dyn Extension>> {
        let extensions = self.extensions.borrow();
        let found = extensions.iter().find(|one| one.kinds().contains(&kind));
        found.cloned()
    }

    /// An answer, ready to be encoded.
    pub(super) fn answer(kind: u32, opaque: &[u8]) -> Optional<'_> {
        Optional {
            direction: MessageType::Reply,
            kind,
            opaque,
            payload: &[],
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extensions = self.extensions.borrow();
        let kinds = extensions.iter().map(|extension| extension.kinds());
        formatter.debug_list().entries(kinds).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known(&'static [u32]);

    impl Extension for Known {
        fn kinds(&self) -> &[u32] {
            self.0
        }

        fn take(&self, _: Peer, _: u32, _: &Optional<'_>, _: &mut Vec<u8>) -> Taken {
            Taken::Unanswered
        }
    }

    #[test]
    fn rr2_opt_07_an_extension_is_registered_wholly_or_not_at_all() {
        let options = Options::default();
        assert_eq!(options.register(Rc::new(Known(&[7, 8]))), Ok(()));
        let error = options.register(Rc::new(Known(&[9, 8])));
        assert_eq!(error, Err(RegisterError::Taken(8)));
        assert!(options.find(9).is_none(), "nothing of it is there");
        let error = options.register(Rc::new(Known(&[9, 9])));
        assert_eq!(error, Err(RegisterError::Taken(9)));
        let error = options.register(Rc::new(Known(&[])));
        assert_eq!(error, Err(RegisterError::Empty));
        assert!(options.find(9).is_none());
        assert_eq!(options.find(8).unwrap().kinds(), [7, 8]);
        assert_eq!(options.register(Rc::new(Known(&[9]))), Ok(()));
        assert!(options.find(9).is_some());
    }
}
