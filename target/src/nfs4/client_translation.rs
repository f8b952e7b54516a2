//! Values of the protocol as the room `state` has them, and the reverse.

use std::hash::Hasher;

use millrace_wire::nfs4::{
    Bitmap, ChannelAttributes, OperationNumber, OperationStatus, StateId, sequence_flags,
};
use siphasher::sip::SipHasher13;

use super::seam::{CompoundShape, FileIdentity};
use crate::access::{CallIdentity, Security};
use crate::state::{
    ChannelLimits, FileKey, GuardedOperation, GuardedOperations, RequestFingerprint,
    SessionConditions, StateCaller, StateError, Stateid,
};

/// The longest file handle (RFC 8881 section 3.2).
const HANDLE_MAX: usize = 128;

/// Bytes of a WRITE before its data: number, stateid, offset, stability and length.
const BEFORE_DATA: usize = 4 + 16 + 8 + 4 + 4;

/// The caller's identity, to distinguish clients: the name of a principal, which is longer than a
/// number, else the user's number.
pub(super) fn principal(identity: &CallIdentity<'_>) -> Box<[u8]> {
    if !identity.principal.is_empty() {
        return [b"gss:", identity.principal].concat().into();
    }
    let caller = identity.caller;
    caller.map_or_else(Box::default, |caller| caller.uid.to_be_bytes().into())
}

/// The caller, where the machine credential of a client may be needed.
pub(super) fn caller(identity: &CallIdentity<'_>) -> StateCaller {
    StateCaller {
        principal: principal(identity),
        has_integrity: matches!(identity.security, Security::Krb5i | Security::Krb5p),
    }
}

/// Operations that the machine credential of a client can protect.
const GUARDED: [(OperationNumber, GuardedOperation); 6] = [
    (
        OperationNumber::BackchannelCtl,
        GuardedOperation::ControlBackchannel,
    ),
    (
        OperationNumber::BindConnToSession,
        GuardedOperation::BindConnection,
    ),
    (
        OperationNumber::CreateSession,
        GuardedOperation::CreateSession,
    ),
    (
        OperationNumber::DestroySession,
        GuardedOperation::DestroySession,
    ),
    (
        OperationNumber::DestroyClientid,
        GuardedOperation::DestroyClient,
    ),
    (
        OperationNumber::Delegpurge,
        GuardedOperation::PurgeDelegations,
    ),
];

/// The operations to be protected, among those that a client asks for.
pub(super) fn guarded(asked: &Bitmap) -> GuardedOperations {
    let asked = GUARDED
        .iter()
        .filter(|(number, _)| asked.contains(number.number()));
    asked.fold(GuardedOperations::default(), |all, (_, operation)| {
        all.with(*operation)
    })
}

/// The same as the protocol has them. EXCHANGE_ID needs the credential in any case.
pub(super) fn wire_guarded(guarded: GuardedOperations) -> Bitmap {
    let mut numbers = Bitmap::EMPTY;
    numbers.insert(OperationNumber::ExchangeId.number());
    for (number, operation) in GUARDED {
        if guarded.contains(operation) {
            numbers.insert(number.number());
        }
    }
    numbers
}

/// The fingerprint that distinguishes a retry from another request.
pub(super) fn fingerprint(
    identity: &CallIdentity<'_>,
    shape: &CompoundShape<'_>,
) -> RequestFingerprint {
    let compared = shape.arguments.len().min(compared(shape.arguments));
    let checksum = crc32c::crc32c(&shape.arguments[..compared]);
    RequestFingerprint {
        caller: caller_word(identity),
        checksum: u64::from(checksum) << 32 ^ shape.argument_bytes as u64,
    }
}

/// Bytes behind SEQUENCE that distinguish a retry from another request. They end before the data of
/// a WRITE, which a retry may have in a chunk.
fn compared(arguments: &[u8]) -> usize {
    let word = |at| {
        let bytes: Option<&[u8; 4]> = arguments.get(at..at + 4)?.first_chunk();
        bytes.map(|bytes| u32::from_be_bytes(*bytes))
    };
    match (word(0), word(4)) {
        (Some(number), Some(handle))
            if number == OperationNumber::Putfh.number() && handle as usize <= HANDLE_MAX =>
        {
            4 + 4 + handle.next_multiple_of(4) as usize + BEFORE_DATA
        }
        _ => BEFORE_DATA,
    }
}

/// The caller in a word: the user's number, or a hash of the principal's name.
fn caller_word(identity: &CallIdentity<'_>) -> u64 {
    if identity.principal.is_empty() {
        return (identity.caller).map_or(u64::MAX, |caller| u64::from(caller.uid));
    }
    let mut hasher = SipHasher13::new();
    hasher.write(identity.principal);
    hasher.finish() | 1 << 32
}

/// The flags of SEQUENCE. EXPIRED_ALL_STATE_REVOKED is never among them: it is for servers that
/// release everything when a lease expires (RFC 8881 section 18.46.3), and this one revokes state
/// when others ask for some of it. Linux would begin as a new client without RECLAIM_COMPLETE, and
/// get no state.
pub(super) fn status_flags(conditions: SessionConditions) -> u32 {
    let flags = [
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
            SessionConditions::CONTEXTS_EXPIRING,
            sequence_flags::CALLBACK_GSS_EXPIRING,
        ),
        (
            SessionConditions::CONTEXTS_EXPIRED,
            sequence_flags::CALLBACK_GSS_EXPIRED,
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
        StateError::WrongCred => OperationStatus::WrongCredential,
        StateError::ClidInuse => OperationStatus::ClientIdInUse,
        StateError::StaleClientid => OperationStatus::StaleClientId,
        StateError::ClientidBusy => OperationStatus::ClientIdBusy,
        StateError::NoEnt | StateError::UnknownCredential => OperationStatus::NoEntry,
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
        StateError::Delay | StateError::Unannounced | StateError::Unrecorded(_) => {
            OperationStatus::Delay
        }
        StateError::NoSpc => OperationStatus::NoSpace,
        StateError::Grace => OperationStatus::Grace,
        StateError::NoGrace => OperationStatus::NoGrace,
        StateError::ReclaimConflict => OperationStatus::ReclaimConflict,
        StateError::ReclaimBad => OperationStatus::ReclaimBad,
        StateError::CompleteAlready => OperationStatus::CompleteAlready,
    }
}

#[cfg(test)]
mod tests {
    use millrace_store::Caller;

    use super::*;
    use crate::access::Security;

    #[test]
    fn v4_sec_06_a_principal_is_no_user_of_the_same_number() {
        let user = Caller {
            uid: u32::from_be_bytes(*b"a@AB"),
            ..Caller::SUPERUSER
        };
        let kerberos = |principal| CallIdentity {
            security: Security::Krb5i,
            caller: Some(&user),
            principal,
        };
        let shape = CompoundShape {
            operations: 1,
            request_bytes: 8,
            argument_bytes: 4,
            arguments: b"same",
        };
        let all = [
            None.into(),
            Some(&user).into(),
            kerberos(b"a@AB"),
            kerberos(b"a@B"),
        ];
        for (index, one) in all.iter().enumerate() {
            for other in &all[..index] {
                assert_ne!(principal(one), principal(other));
                assert!(fingerprint(one, &shape) != fingerprint(other, &shape));
            }
        }
        // Another service, as Linux uses for state, is the same principal.
        let other = CallIdentity {
            security: Security::Krb5,
            ..kerberos(b"a@AB")
        };
        assert_eq!(principal(&other), principal(&all[2]));
    }
}
