//! Values of the protocol as the room `state` has them, and the reverse.

use std::hash::Hasher;

use millrace_store::Caller;
use millrace_wire::nfs4::{ChannelAttributes, OperationStatus, StateId, sequence_flags};
use siphasher::sip::SipHasher13;

use super::seam::{CompoundShape, FileIdentity};
use crate::state::{
    ChannelLimits, FileKey, RequestFingerprint, SessionConditions, StateError, Stateid,
};

/// Bytes of the arguments that distinguish a retry from another request: SEQUENCE and the bytes
/// behind it, but no data of WRITE, which a retry may have in a chunk.
const COMPARED: usize = 96;
/// The caller's identity, to distinguish clients.
pub(super) fn principal(credential: Option<&Caller>) -> Box<[u8]> {
    credential.map_or_else(Box::default, |caller| caller.uid.to_be_bytes().into())
}

/// The fingerprint that distinguishes a retry from another request.
pub(super) fn fingerprint(
    credential: Option<&Caller>,
    shape: &CompoundShape<'_>,
) -> RequestFingerprint {
    let compared = shape.arguments.len().min(COMPARED);
    let mut hasher = SipHasher13::new();
    hasher.write(&shape.arguments[..compared]);
    hasher.write_usize(shape.request_bytes);
    RequestFingerprint {
        caller: credential.map_or(u64::MAX, |caller| u64::from(caller.uid)),
        checksum: hasher.finish(),
    }
}

pub(super) fn status_flags(conditions: SessionConditions) -> u32 {
    let flags = [
        (SessionConditions::EXPIRED_ALL, sequence_flags::EXPIRED_ALL),
        (
            SessionConditions::EXPIRED_SOME,
            sequence_flags::EXPIRED_SOME,
        ),
        (
            SessionConditions::ADMIN_REVOKED,
            sequence_flags::ADMIN_REVOKED,
        ),
        (
            SessionConditions::RECALLABLE_REVOKED,
            sequence_flags::RECALLABLE_REVOKED,
        ),
        (
            SessionConditions::PATH_DOWN,
            sequence_flags::CALLBACK_PATH_DOWN,
        ),
        (
            SessionConditions::PATH_DOWN_SESSION,
            sequence_flags::CALLBACK_PATH_DOWN_SESSION,
        ),
        (
            SessionConditions::BACKCHANNEL_FAULT,
            sequence_flags::BACKCHANNEL_FAULT,
        ),
        (
            SessionConditions::RECLAIM_NEEDED,
            sequence_flags::RESTART_RECLAIM,
        ),
    ];
    let lasting = flags.iter().filter(|(one, _)| conditions.contains(*one));
    lasting.fold(0, |all, (_, flag)| all | flag)
}

pub(super) fn limits(attributes: &ChannelAttributes) -> ChannelLimits {
    ChannelLimits {
        request_size: attributes.request_size,
        response_size: attributes.response_size,
        cached_size: attributes.cached_size,
        operations: attributes.operations,
        requests: attributes.requests,
    }
}

pub(super) fn attributes(limits: &ChannelLimits) -> ChannelAttributes {
    ChannelAttributes {
        header_padding: 0,
        request_size: limits.request_size,
        response_size: limits.response_size,
        cached_size: limits.cached_size,
        operations: limits.operations,
        requests: limits.requests,
        rdma_ird: None,
    }
}

/// A file as state has it.
pub(super) fn key(file: &FileIdentity) -> FileKey {
    FileKey {
        export: file.export.0,
        object: file.object,
    }
}

/// A stateid as state has it.
pub(super) fn stateid(state: StateId) -> Stateid {
    Stateid {
        sequence: state.sequence,
        other: state.other,
    }
}

/// A stateid as the wire has it.
pub(super) fn wire_stateid(state: Stateid) -> StateId {
    StateId {
        sequence: state.sequence,
        other: state.other,
    }
}

/// The status that has the meaning of an error of the state.
pub(super) fn status(error: &StateError) -> OperationStatus {
    match error {
        StateError::ClidInuse => OperationStatus::ClientIdInUse,
        StateError::StaleClientid => OperationStatus::StaleClientId,
        StateError::ClientidBusy => OperationStatus::ClientIdBusy,
        StateError::NoEnt => OperationStatus::NoEntry,
        StateError::NotSame => OperationStatus::NotSame,
        StateError::Perm => OperationStatus::NotOwner,
        StateError::SeqMisordered => OperationStatus::SequenceMisordered,
        StateError::SeqFalseRetry => OperationStatus::SequenceFalseRetry,
        StateError::BadSession => OperationStatus::BadSession,
        StateError::BadSlot => OperationStatus::BadSlot,
        StateError::TooSmall => OperationStatus::TooSmall,
        StateError::Inval => OperationStatus::Invalid,
        StateError::BadRange => OperationStatus::BadRange,
        StateError::Expired => OperationStatus::Expired,
        StateError::AdminRevoked => OperationStatus::AdministratorRevoked,
        StateError::DelegRevoked => OperationStatus::DelegationRevoked,
        StateError::BadStateid => OperationStatus::BadStateId,
        StateError::OldStateid => OperationStatus::OldStateId,
        StateError::OpenMode => OperationStatus::OpenMode,
        StateError::ShareDenied => OperationStatus::ShareDenied,
        StateError::Locked => OperationStatus::Locked,
        StateError::Denied(_) => OperationStatus::Denied,
        StateError::LocksHeld => OperationStatus::LocksHeld,
        StateError::Delay | StateError::Unrecorded(_) => OperationStatus::Delay,
        StateError::NoSpc => OperationStatus::NoSpace,
        StateError::Grace => OperationStatus::Grace,
        StateError::NoGrace => OperationStatus::NoGrace,
        StateError::ReclaimConflict => OperationStatus::ReclaimConflict,
        StateError::ReclaimBad => OperationStatus::ReclaimBad,
        StateError::CompleteAlready => OperationStatus::CompleteAlready,
    }
}
