//! The Kerberos mechanism of RPCSEC_GSS (RFC 2203, RFC 4121): tokens, keys, contexts and their
//! sequence windows, the establishment of contexts on helper threads, the users behind principals,
//! and the names of the host's users and groups. It knows no RPC message and no NFS.
//!
//! Establishment may block: the system's GSS library reads the keytab, and name services are asked
//! for users and groups. It runs on helper threads. Work per message never blocks, takes no lock and
//! allocates nothing: MIC and Wrap tokens are computed here, from the keys that the library exports.
#![deny(unsafe_code)]

mod accounts;
mod context;
mod counters;
mod establish;
mod failure_log;
mod identity;
mod initial_token;
mod initiator;
mod kerberos;
mod keytab;
pub mod krb5;
mod mechanism;
mod names;
mod remembered;
mod service;
mod settings;
pub mod status;
mod sys;
mod table;
mod window;

pub use accounts::{Account, AccountDirectory, AccountKind, AccountQuestion, Accounts};
pub use context::ContextRef;
pub use counters::{CallCounters, Counts, EndReason, FailureReason, GssCounters};
pub use establish::Establishment;
pub use identity::{Identity, User};
pub use initial_token::check as check_initial_token;
pub use initiator::{ContextFlags, Initiator, InitiatorError, InitiatorToken};
pub use kerberos::{Kerberos, LoadError};
pub use krb5::{
    ContextKeys, Damaged, Enctype, MicParts, Progress, Protection, Side, Unwrapping, Wrapping,
};
pub use mechanism::{Accepted, Established, Failure, Mechanism, PartialContext};
pub use names::{Directory, SystemDirectory};
pub use service::{ContextSummary, GssService};
pub use settings::{MachinePolicy, Settings};
pub use table::{ContextHandle, HandleError, TableFull};
pub use window::{Sequence, SequenceWindow};

/// First sequence number that is too large (RFC 2203 5.3.3.3, MAXSEQ).
pub const SEQUENCE_MAX: u32 = 0x8000_0000;

/// The mechanism's object identifier, 1.2.840.113554.1.2.2, without tag and length (RFC 4121 4.1).
pub const KERBEROS_OID: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
