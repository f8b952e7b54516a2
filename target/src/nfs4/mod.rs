//! NFS version 4, minor versions 1 and 2 (RFC 8881, RFC 7862): a [program](crate::rpc::program) that
//! executes the operations of COMPOUND one by one.
//!
//! | module | content |
//! | --- | --- |
//! | `program`, `compound` | the program, and the engine that executes operations in order |
//! | `table`, `rules` | static properties of operations and procedures |
//! | `reply` | results within the bounds of transport and session |
//! | `counters` | what was done, for operators |
//! | `seam` | the interface to the state of clients: sessions, opens, locks |
//! | `client_state`, `client_sessions`, `client_opens`, `client_locks`, `client_questions`, `client_translation`, `cached_reply` | the answers of the room `state` |
//! | `callback` | calls to clients |
//! | `export_tree`, `position` | one name space over all exports, and the handles of a COMPOUND |
//! | `lookup`, `directory`, `change`, `interrupted` | names |
//! | `attributes`, `getattr`, `set`, `acl`, `owners` | attributes |
//! | `data`, `write_compound`, `open` | contents of files |
//! | `version2`, `copy`, `read_plus`, `xattrs` | what minor version 2 adds |
//!
//! Opens and sessions live behind [`StateSeam`], files in stores, so that nothing here outlives a
//! COMPOUND.

mod acl;
mod at_once;
mod attributes;
mod cached_reply;
mod callback;
mod change;
mod client_locks;
mod client_opens;
mod client_questions;
mod client_sessions;
mod client_state;
mod client_translation;
mod compound;
mod copy;
mod counters;
mod data;
mod decimal;
mod directory;
mod export_tree;
mod getattr;
mod identity;
mod interrupted;
mod lookup;
mod names;
mod open;
mod owners;
mod position;
mod program;
mod read_plus;
mod record_waits;
mod reply;
mod rules;
mod seam;
mod security;
mod session;
mod set;
mod status;
mod table;
mod version2;
mod write_compound;
mod xattrs;

pub use callback::{CallbackSender, ForReactor};
pub use client_state::{ClientRequest, ClientState};
pub use counters::{Nfs4Counters, OperationCounters};
pub use identity::ServerIdentity;
pub use owners::OwnerDomain;
pub use program::Nfs4;
pub use record_waits::RecordWaits;
pub use reply::SessionBounds;
pub use rules::INFO;
pub use seam::{
    AcceptedSequence, CachedCompound, CallOrigin, CompoundShape, DeniedLock, FileIdentity,
    FinishedReply, LockRefusal, OpenBasis, OpenGrant, OpenRequest, SequenceOutcome, StateIdUse,
    StateSeam,
};

/// Most bytes of data that are copied into a message, as no place beside it is left for them.
const COPIED_MAX: usize = 32 << 10;
