//! Why an operation on protocol state fails.

use super::ranges::LockConflict;

/// Why an operation on clients, sessions, opens or locks fails. Programs map each to a status of
/// their protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The client owner or client ID belongs to another principal.
    #[error("the client ID is in use by another principal")]
    ClidInuse,
    /// No such client ID.
    #[error("unknown client ID")]
    StaleClientid,
    /// The client still has sessions or state.
    #[error("the client ID has sessions or state")]
    ClientidBusy,
    /// An update of a client that is not confirmed.
    #[error("no confirmed record of the client owner")]
    NoEnt,
    /// A credential for callbacks that is not known here.
    #[error("unknown credential for callbacks")]
    UnknownCredential,
    /// An update with another verifier.
    #[error("the verifier differs from the confirmed one")]
    NotSame,
    /// An update by another principal.
    #[error("the principal differs from the confirmed one")]
    Perm,
    /// The client's state is protected by another credential.
    #[error("the operation needs the machine credential of the client")]
    WrongCred,
    /// A sequence number that is neither the last one nor the next one.
    #[error("sequence number out of order")]
    SeqMisordered,
    /// A retry that differs from the original request with its sequence number.
    #[error("a retry that differs from its original")]
    SeqFalseRetry,
    /// No such session.
    #[error("unknown session")]
    BadSession,
    /// No such slot.
    #[error("slot beyond the session's table")]
    BadSlot,
    /// Limits of a channel that no request or reply fits in.
    #[error("channel limits are too small")]
    TooSmall,
    /// Arguments that are never valid.
    #[error("invalid argument")]
    Inval,
    /// Bytes that the store has no locks for.
    #[error("the range exceeds what can be locked")]
    BadRange,
    /// The state was revoked as the lease of its client had expired.
    #[error("the state was revoked with an expired lease")]
    Expired,
    /// The state was revoked by an administrator.
    #[error("the state was revoked by an administrator")]
    AdminRevoked,
    /// A delegation that was revoked.
    #[error("the delegation was revoked")]
    DelegRevoked,
    /// No such state, or not of this client, file or kind.
    #[error("the stateid designates no usable state")]
    BadStateid,
    /// The state has changed since the stateid was issued.
    #[error("the stateid is older than the state")]
    OldStateid,
    /// The open does not include the access that is needed.
    #[error("the open lacks the access needed")]
    OpenMode,
    /// The open conflicts with another one.
    #[error("conflicting share reservation")]
    ShareDenied,
    /// I/O that an open denies.
    #[error("an open denies this access")]
    Locked,
    /// A conflicting byte-range lock.
    #[error("conflicting byte-range lock")]
    Denied(Box<LockConflict>),
    /// Locks are associated with the stateid.
    #[error("locks are associated with the stateid")]
    LocksHeld,
    /// The client has to ask again later.
    #[error("not now")]
    Delay,
    /// Other gateways have to be told first what the open accesses and denies
    /// ([`announce_share`](super::StateHome::announce_share)). It was not granted.
    #[error("the share reservation is not announced yet")]
    Unannounced,
    /// The operation depends on a change of durable records with this serial number, which is not
    /// durable yet. It had no effect.
    #[error("a record is not durable yet")]
    Unrecorded(u64),
    /// A limit of the client, the file or the server is reached.
    #[error("a limit of state is reached")]
    NoSpc,
    /// Only reclaims are allowed now.
    #[error("only reclaims are allowed")]
    Grace,
    /// Reclaims are not allowed.
    #[error("reclaims are not allowed")]
    NoGrace,
    /// A reclaim that conflicts with state granted since.
    #[error("the reclaim conflicts with granted state")]
    ReclaimConflict,
    /// A reclaim of what cannot have been granted.
    #[error("the reclaim cannot be true")]
    ReclaimBad,
    /// The client has completed its reclaims before.
    #[error("reclaims are complete already")]
    CompleteAlready,
}
