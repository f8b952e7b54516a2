//! Clients, sessions, opens, byte-range locks and delegations, with the leases that all of them
//! depend on.
//!
//! The module is independent of protocol versions. It does no I/O, and does not depend on RPC or
//! XDR. Programs translate requests to calls of [`StateHome`] and map [`StateError`] to their
//! statuses.
//!
//! - [`StateHome`] owns all state. It is single-threaded, and each operation takes the time at
//!   which it happens.
//! - [`Session`] is the part that all reactors share: slots that a request takes by one
//!   compare-exchange, and cells in which reactors record the time of a client's last request.
//!   [`SessionDirectory`] finds sessions without a lock.
//! - Slots of sessions come and go with the memory for cached replies ([`HighestSlots`]).
//! - Callbacks: the home decides which client is called about what, in which slot and by which
//!   connection ([`CallbackOrder`]); the reactor of the connection sends them.
//! - I/O that has begun with state that is revoked ends before the use of its file is granted to
//!   others ([`IoFences`]).
//! - A client may lose much state at once. It goes in steps ([`StateHome::sweep_states`]).
//! - Leases of files that other servers change as well: stores tell which have to end
//!   ([`BrokenLeases`]), and the home recalls the delegations that depend on them.
//! - Locks that the host takes as well: the home orders them ([`HostLockOrder`]); a thread carries the
//!   orders out. The same with share reservations that other gateways are told of ([`ShareOrder`]).

mod address_shares;
mod announced_shares;
mod backchannel;
mod broken_leases;
mod callback_jobs;
mod callbacks;
mod clients;
mod create_session;
mod delegation_guards;
mod delegations;
mod durable;
mod error;
mod fences;
mod figures;
mod files;
mod gateways;
mod grace;
mod holder_queries;
mod home;
mod host_locks;
mod lease;
mod link;
mod locks;
mod opens;
mod owners;
mod protection;
mod published;
mod ranges;
mod recalls;
mod records;
mod relief;
mod reports;
mod session;
mod share;
mod slot;
mod slot_limits;
mod slot_shares;
mod slot_word;
mod stateid;
mod sweeps;
mod table;
#[cfg(test)]
mod tests;
mod waiters;

pub use announced_shares::{ShareAction, ShareAnswer, ShareOrder};
pub use backchannel::{
    BindingRequest, BoundChannels, CallbackCredentials, CallbackParameters, CallbackPath,
};
pub use broken_leases::BrokenLeases;
pub use callbacks::{
    CALLBACK_TIME, CallbackAnswer, CallbackOrder, CallbackOutcome, CallbackSubject, CallbackTicket,
    ReferringRequest,
};
pub use clients::{ClientId, ExchangeOutcome, ExchangeRequest};
pub use create_session::{SessionGrant, SessionOrigin, SessionRequest};
pub use delegation_guards::{DelegationGate, DelegationGuards};
pub use delegations::{DelegationOutcome, DelegationRequest, DelegationWish, FileSharing, FileUse};
pub use durable::{DurableClient, RecordChange, RecordProgress};
pub use error::StateError;
pub use fences::{IoFences, IoRegister, RunningIo};
pub use figures::StateFigures;
pub use files::FileKey;
pub use gateways::{GatewayRecord, GatewayRecords};
pub use grace::{GraceStatus, RecoveredClients};
pub use holder_queries::{ChangedSize, HolderAttributes};
pub use home::{SharedDenials, StateConfig, StateEvent, StateHome, StateTerms, StateViews};
pub use host_locks::{HostLockAction, HostLockAnswer, HostLockOrder};
pub use lease::LeaseCells;
pub use link::{AnswerTicket, HomeAnswer, HomeLink, HomeOutbox, HomeRequest};
pub use locks::{LockHolder, LockRequest};
pub use opens::{IoGrant, IoKind, OpenOutcome, OpenTerms};
pub use protection::{GuardedOperation, GuardedOperations, StateCaller};
pub use published::PublishedStates;
pub use ranges::{ByteRange, LockConflict, LockMode, UnionPart};
pub use reports::{
    CallbackHealth, ClientReport, GraceReport, ReportSlice, StateCounts, StateFilter, StateKind,
    StateReport, StateReportDetail,
};
pub use session::{
    ChannelLimits, Session, SessionBegin, SessionClaim, SessionConditions, SessionDirectory,
    SessionGuard, SessionId,
};
pub use share::ShareMode;
pub use slot::{CachedReply, RequestFingerprint, SessionSlot, SlotBegin, SlotClaim};
pub use slot_limits::HighestSlots;
pub use stateid::{Revocation, Stateid};
