//! A client of NFS version 4 that its server calls (RFC 8881 section 20): it answers, and notes the
//! delegations that it has to return.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use millrace_wire::nfs4::{
    CALLBACK_VERSIONS, COMPOUND, CallbackHeader, CallbackOperation, CallbackReader,
    CallbackResults, CallbackSequence, CallbackSequenceReply, CompoundOperation,
    CompoundReplyHeader, HasStatus, OperationStatus, SessionId, StateId,
};
use millrace_wire::rpc::Accepted;
use millrace_wire::xdr::{self, Decode, Decoder, Encode, Encoder};

use crate::requester::reverse_service::{ReverseCall, ReverseService};

/// The number of the callback program, which the client chooses.
pub(super) const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// A delegation that the server wants back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecalledDelegation {
    /// Its file.
    pub handle: Vec<u8>,
    /// The delegation.
    pub delegation: StateId,
}

/// Answers the callbacks of one session, of which the back channel has one slot. Clones are the
/// same.
#[derive(Clone, Debug, Default)]
pub struct Callbacks(Rc<RefCell<CallbackState>>);

#[derive(Debug, Default)]
struct CallbackState {
    session: Option<SessionId>,
    /// Sequence number of the last request, and its results.
    sequence: u32,
    results: Vec<u8>,
    recalled: VecDeque<RecalledDelegation>,
}

impl Callbacks {
    /// Answers for this session from now on.
    pub(super) fn begin(&self, session: SessionId) {
        *self.0.borrow_mut() = CallbackState {
            session: Some(session),
            ..CallbackState::default()
        };
    }

    /// The delegation that was recalled first, to be returned.
    #[must_use]
    pub fn next_recalled(&self) -> Option<RecalledDelegation> {
        self.0.borrow_mut().recalled.pop_front()
    }
}

impl ReverseService for Callbacks {
    fn serve(&mut self, call: &ReverseCall<'_>, out: &mut Encoder<'_>) -> xdr::Result<Accepted> {
        let [low, high] = CALLBACK_VERSIONS;
        if call.program != CALLBACK_PROGRAM {
            return Ok(Accepted::ProgramUnavailable);
        }
        if !CALLBACK_VERSIONS.contains(&call.version) {
            return Ok(Accepted::ProgramMismatch { low, high });
        }
        match call.procedure {
            0 => Ok(Accepted::Success),
            COMPOUND => self.0.borrow_mut().compound(call.arguments, out),
            _ => Ok(Accepted::ProcedureUnavailable),
        }
    }
}

impl CallbackState {
    fn compound(&mut self, arguments: &[u8], out: &mut Encoder<'_>) -> xdr::Result<Accepted> {
        let mut input = Decoder::new(arguments);
        let Ok(header) = CallbackHeader::decode(&mut input) else {
            return Ok(Accepted::GarbageArguments);
        };
        let mut operations = CallbackReader::new(input, header.minor_version, header.operations);
        let first = operations.next().transpose();
        let begun = match first {
            Ok(Some(CallbackOperation::Sequence(sequence))) => self.begin_request(&sequence),
            Ok(Some(other)) => Err(refused(&other, OperationStatus::OperationNotInSession)),
            Ok(None) => return encode(&header, &[], out),
            Err(_) => return Ok(Accepted::GarbageArguments),
        };
        let mut results = match begun {
            Ok(Some(sequence)) => vec![CallbackResults::Sequence(Ok(sequence))],
            Ok(None) => {
                out.opaque_fixed(&self.results)?;
                return Ok(Accepted::Success);
            }
            Err(refused) => return encode(&header, &[refused], out),
        };
        for operation in operations {
            let Ok(operation) = operation else {
                return Ok(Accepted::GarbageArguments);
            };
            results.push(self.perform(&operation));
            if results
                .last()
                .is_some_and(|last| last.status() != OperationStatus::Ok)
            {
                break;
            }
        }
        let start = out.position();
        encode(&header, &results, out)?;
        self.results = out.written()[start..].to_vec();
        Ok(Accepted::Success)
    }

    /// Takes the request of a CB_SEQUENCE; `None` if it is a repetition (RFC 8881 section 20.9).
    fn begin_request(
        &mut self,
        arguments: &CallbackSequence<'_>,
    ) -> Result<Option<CallbackSequenceReply>, CallbackResults<'static>> {
        let (slot, sequence) = (arguments.slot, arguments.sequence);
        let status = match self.session {
            Some(session) if session == arguments.session => match slot {
                0 if sequence == self.sequence && !self.results.is_empty() => return Ok(None),
                0 if sequence == self.sequence.wrapping_add(1) => OperationStatus::Ok,
                0 => OperationStatus::SequenceMisordered,
                _ => OperationStatus::BadSlot,
            },
            _ => OperationStatus::BadSession,
        };
        if status != OperationStatus::Ok {
            return Err(CallbackResults::Sequence(Err(status)));
        }
        self.sequence = sequence;
        Ok(Some(CallbackSequenceReply {
            session: arguments.session,
            sequence,
            slot,
            highest_slot: 0,
            target_highest_slot: 0,
        }))
    }

    fn perform(&mut self, operation: &CallbackOperation<'_>) -> CallbackResults<'static> {
        match operation {
            CallbackOperation::Recall(recall) => {
                self.recalled.push_back(RecalledDelegation {
                    handle: recall.handle.0.to_vec(),
                    delegation: recall.delegation,
                });
                CallbackResults::Recall(Ok(()))
            }
            // Nothing is kept that could be given up, or waits to be told.
            CallbackOperation::RecallAny(_) => CallbackResults::RecallAny(Ok(())),
            CallbackOperation::RecallSlot(_) => CallbackResults::RecallSlot(Ok(())),
            CallbackOperation::NotifyLock(_) => CallbackResults::NotifyLock(Ok(())),
            // Nothing is written by delegations, so that the server knows the file best.
            CallbackOperation::Getattr(_) => {
                CallbackResults::Getattr(Err(OperationStatus::BadHandle))
            }
            other => refused(other, OperationStatus::NotSupported),
        }
    }
}

/// An operation that is not executed.
fn refused(operation: &CallbackOperation<'_>, status: OperationStatus) -> CallbackResults<'static> {
    let (number, status) = operation
        .refusal()
        .unwrap_or_else(|| (operation.number(), status));
    CallbackResults::Refused(number, status)
}

/// Appends the results of CB_COMPOUND.
fn encode(
    header: &CallbackHeader<'_>,
    results: &[CallbackResults<'_>],
    out: &mut Encoder<'_>,
) -> xdr::Result<Accepted> {
    let last = results.last().map(HasStatus::status);
    let header = CompoundReplyHeader {
        status: last.unwrap_or(OperationStatus::Ok),
        tag: header.tag,
        results: u32::try_from(results.len()).unwrap_or(u32::MAX),
    };
    header.encode(out)?;
    for result in results {
        result.encode(out)?;
    }
    Ok(Accepted::Success)
}

#[cfg(test)]
mod tests {
    use millrace_wire::nfs4::{
        Bitmap, CallbackCompound, CallbackGetattr, CallbackRecall, ResultsReader,
    };
    use millrace_wire::rpc::Credential;
    use millrace_wire::xdr::{Array, BoundedBytes};

    use super::*;

    const SESSION: SessionId = *b"session of tests";
    const DELEGATION: StateId = StateId {
        sequence: 1,
        other: [5; 12],
    };

    fn sequence(session: SessionId, slot: u32, sequence: u32) -> CallbackOperation<'static> {
        CallbackOperation::Sequence(CallbackSequence {
            session,
            sequence,
            slot,
            highest_slot: 0,
            cache_this: false,
            referring: Array::new(&[]),
        })
    }

    fn recall() -> CallbackOperation<'static> {
        CallbackOperation::Recall(CallbackRecall {
            delegation: DELEGATION,
            truncate: false,
            handle: BoundedBytes(b"handle"),
        })
    }

    /// What is answered to a call of the program.
    fn answer(
        callbacks: &mut Callbacks,
        (program, version, procedure): (u32, u32, u32),
        operations: &[CallbackOperation<'_>],
    ) -> (Accepted, Vec<u8>) {
        let (mut arguments, mut results) = ([0; 512], [0; 512]);
        let mut out = Encoder::new(&mut arguments);
        let compound = CallbackCompound {
            minor_version: 1,
            operations,
        };
        compound.encode(&mut out).unwrap();
        let call = ReverseCall {
            xid: 1,
            program,
            version,
            procedure,
            credential: &Credential::None,
            arguments: out.written(),
        };
        let mut out = Encoder::new(&mut results);
        let status = callbacks.serve(&call, &mut out).unwrap();
        (status, out.written().to_vec())
    }

    /// The statuses of the results of CB_COMPOUND.
    fn statuses(
        callbacks: &mut Callbacks,
        operations: &[CallbackOperation<'_>],
    ) -> Vec<OperationStatus> {
        let (status, bytes) = answer(callbacks, (CALLBACK_PROGRAM, 1, COMPOUND), operations);
        assert_eq!(status, Accepted::Success);
        let mut input = Decoder::new(&bytes);
        let header = CompoundReplyHeader::decode(&mut input).unwrap();
        let results = ResultsReader::<CallbackResults<'_>>::new(input, header.results);
        let all: Vec<_> = results.map(|result| result.unwrap().status()).collect();
        assert_eq!(
            all.last().copied().unwrap_or(OperationStatus::Ok),
            header.status
        );
        all
    }

    fn callbacks() -> Callbacks {
        let callbacks = Callbacks::default();
        callbacks.begin(SESSION);
        callbacks
    }

    #[test]
    fn a_recalled_delegation_is_noted_once_though_the_call_is_repeated() {
        let mut callbacks = callbacks();
        let request = [sequence(SESSION, 0, 1), recall()];
        for _ in 0..2 {
            assert_eq!(statuses(&mut callbacks, &request), [OperationStatus::Ok; 2]);
        }
        let recalled = RecalledDelegation {
            handle: b"handle".to_vec(),
            delegation: DELEGATION,
        };
        assert_eq!(callbacks.next_recalled(), Some(recalled));
        assert_eq!(callbacks.next_recalled(), None);
        let next = [sequence(SESSION, 0, 2), recall()];
        assert_eq!(statuses(&mut callbacks, &next), [OperationStatus::Ok; 2]);
        assert!(callbacks.next_recalled().is_some());
    }

    #[test]
    fn requests_of_another_session_slot_or_number_are_refused() {
        let mut callbacks = callbacks();
        for (request, status) in [
            (sequence([9; 16], 0, 1), OperationStatus::BadSession),
            (sequence(SESSION, 1, 1), OperationStatus::BadSlot),
            (sequence(SESSION, 0, 0), OperationStatus::SequenceMisordered),
            (sequence(SESSION, 0, 2), OperationStatus::SequenceMisordered),
            (recall(), OperationStatus::OperationNotInSession),
        ] {
            assert_eq!(statuses(&mut callbacks, &[request, recall()]), [status]);
        }
        assert_eq!(callbacks.next_recalled(), None);
        assert_eq!(statuses(&mut callbacks, &[]), []);
    }

    #[test]
    fn what_cannot_be_done_is_refused_at_its_place() {
        let mut callbacks = callbacks();
        let getattr = CallbackOperation::Getattr(CallbackGetattr {
            handle: BoundedBytes(b"handle"),
            attributes: Bitmap::EMPTY,
        });
        let illegal = CallbackOperation::Illegal(77);
        for (number, operation, status) in [
            (1, getattr, OperationStatus::BadHandle),
            (2, illegal, OperationStatus::IllegalOperation),
        ] {
            let request = [sequence(SESSION, 0, number), operation, recall()];
            assert_eq!(
                statuses(&mut callbacks, &request),
                [OperationStatus::Ok, status]
            );
        }
        assert_eq!(callbacks.next_recalled(), None);
    }

    #[test]
    fn other_programs_versions_and_procedures_are_told_apart() {
        let mut callbacks = callbacks();
        let mut status = |called| answer(&mut callbacks, called, &[]).0;
        assert_eq!(status((CALLBACK_PROGRAM, 1, 0)), Accepted::Success);
        assert_eq!(status((CALLBACK_PROGRAM, 4, COMPOUND)), Accepted::Success);
        assert_eq!(status((1, 1, 0)), Accepted::ProgramUnavailable);
        assert_eq!(
            status((CALLBACK_PROGRAM, 2, 0)),
            Accepted::ProgramMismatch { low: 1, high: 4 }
        );
        assert_eq!(
            status((CALLBACK_PROGRAM, 1, 2)),
            Accepted::ProcedureUnavailable
        );
    }
}
