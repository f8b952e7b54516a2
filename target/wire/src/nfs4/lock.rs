//! Byte-range locks (RFC 8881 sections 18.10 to 18.12).

use super::types::{FailureResults, StateId, StateOwner};
use super::{OperationOutcome, OperationStatus};
use crate::xdr::{Decode, Decoder, Encode, Encoder, Result, xdr_enum, xdr_struct};

xdr_enum! {
    /// Types of locks (`nfs_lock_type4`).
    pub enum LockType {
        Read = 1, "READ_LT", "shared";
        Write = 2, "WRITE_LT", "exclusive";
        ReadWait = 3, "READW_LT", "shared, the client waits";
        WriteWait = 4, "WRITEW_LT", "exclusive, the client waits";
    }
}

xdr_struct! {
    /// First lock of an owner on an open (`open_to_lock_owner4`).
    pub struct NewLockOwner<'a> {
        /// Ignored.
        pub open_sequence: u32,
        /// The open.
        pub open: StateId,
        /// Ignored.
        pub lock_sequence: u32,
        /// The lock owner.
        pub owner: StateOwner<'a>,
    }
}

xdr_struct! {
    /// Further lock of an owner (`exist_lock_owner4`).
    pub struct ExistingLockOwner {
        /// The locks that the owner has.
        pub lock: StateId,
        /// Ignored.
        pub sequence: u32,
    }
}

/// Who locks (`locker4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locker<'a> {
    /// An owner that has no lock stateid for this open.
    New(NewLockOwner<'a>),
    /// One that has.
    Existing(ExistingLockOwner),
}

impl Encode for Locker<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::New(owner) => {
                out.bool(true)?;
                owner.encode(out)
            }
            Self::Existing(owner) => {
                out.bool(false)?;
                owner.encode(out)
            }
        }
    }
}

impl<'a> Decode<'a> for Locker<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        if input.bool()? {
            NewLockOwner::decode(input).map(Self::New)
        } else {
            ExistingLockOwner::decode(input).map(Self::Existing)
        }
    }
}

xdr_struct! {
    /// Arguments of LOCK.
    pub struct LockOperation<'a> {
        /// Type.
        pub kind: LockType,
        /// Whether it was held before the server's restart.
        pub reclaim: bool,
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones for the rest of the file.
        pub length: u64,
        /// Who locks.
        pub locker: Locker<'a>,
    }
}

xdr_struct! {
    /// A lock that forbids another (`LOCK4denied`).
    pub struct ConflictingLock<'a> {
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones for the rest of the file.
        pub length: u64,
        /// Type.
        pub kind: LockType,
        /// Its owner.
        pub owner: StateOwner<'a>,
    }
}

/// Why LOCK or LOCKT failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockFailure<'a> {
    /// [`Denied`](OperationStatus::Denied) by this lock.
    Denied(ConflictingLock<'a>),
    /// Any status but OK and [`Denied`](OperationStatus::Denied).
    Other(OperationStatus),
}

impl<'a> FailureResults<'a> for LockFailure<'a> {
    fn status(&self) -> OperationStatus {
        match self {
            Self::Denied(_) => OperationStatus::Denied,
            Self::Other(status) => *status,
        }
    }

    fn encode_detail(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Denied(lock) => lock.encode(out),
            Self::Other(OperationStatus::Denied) => Err(crate::xdr::Error::Value),
            Self::Other(_) => Ok(()),
        }
    }

    fn decode_detail(status: OperationStatus, input: &mut Decoder<'a>) -> Result<Self> {
        match status {
            OperationStatus::Denied => ConflictingLock::decode(input).map(Self::Denied),
            other => Ok(Self::Other(other)),
        }
    }
}

/// Results of LOCK: the lock stateid.
pub type LockReply<'a> = OperationOutcome<StateId, LockFailure<'a>>;

xdr_struct! {
    /// Arguments of LOCKT.
    pub struct LocktOperation<'a> {
        /// Type.
        pub kind: LockType,
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones for the rest of the file.
        pub length: u64,
        /// Who would lock.
        pub owner: StateOwner<'a>,
    }
}

/// Results of LOCKT.
pub type LocktReply<'a> = OperationOutcome<(), LockFailure<'a>>;

xdr_struct! {
    /// Arguments of LOCKU.
    pub struct LockuOperation {
        /// Type; any will do.
        pub kind: LockType,
        /// Ignored.
        pub sequence: u32,
        /// The locks that the owner has.
        pub lock: StateId,
        /// First byte.
        pub offset: u64,
        /// Bytes; all ones for the rest of the file.
        pub length: u64,
    }
}
