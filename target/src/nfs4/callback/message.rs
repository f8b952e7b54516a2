//! CB_COMPOUND: calls as they are sent, and what their replies mean (RFC 8881 section 20).

use millrace_wire::nfs4::{
    Attribute, AttributeNumber, Attributes, Bitmap, CALLBACK_VERSIONS, COMPOUND, CallbackCompound,
    CallbackGetattr, CallbackNotifyLock, CallbackOperation, CallbackRecall, CallbackRecallAny,
    CallbackResults, CallbackResultsReader, CallbackSequence, CompoundReplyHeader, HasStatus,
    OperationStatus, ReferringCall, ReferringCalls, StateOwner, recallable,
};
use millrace_wire::rpc::{Accepted, CallHeader, CallOutcome, OpaqueAuth, ReplyHeader};
use millrace_wire::xdr::{Array, BoundedBytes, Decode, Decoder, Encode, Encoder};

use super::security::ChosenSecurity;
use crate::handle::HandleKey;
use crate::nfs4::client_translation::wire_stateid;
use crate::state::{
    CallbackAnswer, CallbackOrder, CallbackOutcome, CallbackSubject, FileKey, HolderAttributes,
    ReferringRequest,
};

/// Longest call: handles and owners are bounded.
const CALL_MAX: usize = 4096;

/// The call message of a callback; `None` if it would be longer than the client takes.
pub(super) fn encode(
    order: &CallbackOrder,
    key: &HandleKey,
    security: &ChosenSecurity,
) -> Option<Vec<u8>> {
    let mut buffer = vec![0; CALL_MAX];
    let header = CallHeader {
        xid: 0,
        program: order.parameters.program,
        version: order.parameters.version,
        procedure: COMPOUND,
        credential: security.credential()?,
        verifier: OpaqueAuth::NONE,
    };
    let granted_by = match &order.subject {
        CallbackSubject::Recall { granted_by, .. } => *granted_by,
        _ => None,
    };
    let calls = granted_by.map(|request| {
        [ReferringCall {
            sequence: request.sequence,
            slot: request.slot,
        }]
    });
    let lists = match (&granted_by, &calls) {
        (Some(ReferringRequest { session, .. }), Some(calls)) => Some([ReferringCalls {
            session: session.0,
            calls: Array::new(calls),
        }]),
        _ => None,
    };
    let sequence = CallbackOperation::Sequence(CallbackSequence {
        session: order.session.0,
        sequence: order.sequence,
        slot: order.slot,
        highest_slot: order.highest_slot,
        // Linux refuses to cache replies.
        cache_this: false,
        referring: lists
            .as_ref()
            .map_or(Array::new(&[]), |lists| Array::new(lists)),
    });
    let seal = |file: &FileKey| key.seal(file.export, file.object);
    let handle;
    let operation = match &order.subject {
        CallbackSubject::Recall {
            stateid,
            truncates,
            file,
            ..
        } => {
            handle = seal(file);
            CallbackOperation::Recall(CallbackRecall {
                delegation: wire_stateid(*stateid),
                truncate: *truncates,
                handle: BoundedBytes(handle.as_bytes()),
            })
        }
        CallbackSubject::LockAvailable { owner, file } => {
            handle = seal(file);
            CallbackOperation::NotifyLock(CallbackNotifyLock {
                handle: BoundedBytes(handle.as_bytes()),
                owner: StateOwner {
                    client: order.client.0,
                    owner: BoundedBytes(owner),
                },
            })
        }
        CallbackSubject::GetAttributes { file, .. } => {
            handle = seal(file);
            CallbackOperation::Getattr(CallbackGetattr {
                handle: BoundedBytes(handle.as_bytes()),
                attributes: Bitmap::of(&[AttributeNumber::Change, AttributeNumber::Size]),
            })
        }
        CallbackSubject::RecallSlots { highest_slot, .. } => {
            CallbackOperation::RecallSlot(*highest_slot)
        }
        CallbackSubject::RecallAny { keep } => CallbackOperation::RecallAny(CallbackRecallAny {
            keep: *keep,
            types: delegation_types(),
        }),
    };
    let compound = CallbackCompound {
        minor_version: order.parameters.minor_version,
        operations: &[sequence, operation],
    };
    let mut out = Encoder::new(&mut buffer);
    header.encode(&mut out).ok()?;
    compound.encode(&mut out).ok()?;
    let length = out.position();
    buffer.truncate(length);
    let sent = security.length(length);
    let fits = u32::try_from(sent).is_ok_and(|sent| sent <= order.size_max);
    fits.then_some(buffer)
}

/// Delegations of both kinds, as CB_RECALL_ANY names them.
fn delegation_types() -> Bitmap {
    let mut types = Bitmap::EMPTY;
    types.insert(recallable::READ_DELEGATIONS);
    types.insert(recallable::WRITE_DELEGATIONS);
    types
}

/// What a holder tells about its file; `None` if that is not what was asked.
fn holder_attributes(attributes: &Attributes<'_>) -> Option<HolderAttributes> {
    let get = |number| attributes.get(number).ok().flatten();
    match (get(AttributeNumber::Change)?, get(AttributeNumber::Size)?) {
        (Attribute::Change(change), Attribute::Size(size)) => {
            Some(HolderAttributes { change, size })
        }
        _ => None,
    }
}

/// What a reply message means. One that cannot be read is like a refusal: the client does not
/// speak the protocol.
pub(super) fn read(reply: &[u8]) -> CallbackOutcome {
    try_read(reply).unwrap_or(CallbackOutcome::Refused)
}

fn try_read(reply: &[u8]) -> Option<CallbackOutcome> {
    let mut input = Decoder::new(reply);
    match ReplyHeader::decode(&mut input).ok()?.outcome {
        CallOutcome::Accepted {
            status: Accepted::Success,
            ..
        } => {}
        CallOutcome::Accepted {
            status: Accepted::ProgramMismatch { low, high },
            ..
        } => {
            let mut known = CALLBACK_VERSIONS.into_iter();
            let version = known.find(|version| (low..=high).contains(version))?;
            return Some(CallbackOutcome::OtherVersion(version));
        }
        _ => return None,
    }
    let header = CompoundReplyHeader::decode(&mut input).ok()?;
    let mut results = CallbackResultsReader::new(input, header.results);
    let sequence = match results.next() {
        Some(Ok(CallbackResults::Sequence(sequence))) => sequence,
        Some(Ok(_) | Err(_)) => return None,
        // Refused before the first operation, as with a minor version that is not served.
        None => return Some(refusal(header.status)),
    };
    let sequence = match sequence {
        Ok(sequence) => sequence,
        Err(status) => return Some(refusal(status)),
    };
    let mut told = None;
    let status = match results.next() {
        Some(Ok(CallbackResults::Getattr(Ok(attributes)))) => {
            told = Some(holder_attributes(&attributes)?);
            OperationStatus::Ok
        }
        Some(result) => result.ok()?.status(),
        None => header.status,
    };
    Some(CallbackOutcome::Taken {
        answer: match status {
            OperationStatus::Ok if told.is_some() => CallbackAnswer::Attributes(told?),
            // Its first copy was executed.
            OperationStatus::Ok | OperationStatus::RetryUncached => CallbackAnswer::Done,
            OperationStatus::Delay => CallbackAnswer::Later,
            _ => CallbackAnswer::Failed,
        },
        target_slot: sequence.target_highest_slot,
    })
}

/// What a failed CB_SEQUENCE means.
fn refusal(status: OperationStatus) -> CallbackOutcome {
    match status {
        OperationStatus::Delay => CallbackOutcome::NotReady,
        OperationStatus::BadSlot
        | OperationStatus::SequenceMisordered
        | OperationStatus::SequenceFalseRetry => CallbackOutcome::Misordered,
        _ => CallbackOutcome::Refused,
    }
}
