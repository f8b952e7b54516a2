//! COMPOUNDs that only read, and that are answered in the turn that received them.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use arrayvec::ArrayVec;
use millrace_store::Store;
use millrace_wire::nfs4::{
    CompoundHeader, CompoundOperation, Operation, OperationNumber, OperationReader,
    OperationStatus, SequenceOperation,
};
use millrace_wire::xdr::Decoder;

use super::compound::{CompoundRun, Step};
use super::position::FilePosition;
use super::reply::CompoundReply;
use super::seam::{SequenceOutcome, StateSeam};
use super::table::rule;
use crate::call::NoBulk;
use crate::rpc::program::ProgramCall;

/// Most operations behind SEQUENCE and PUTFH. Linux sends three for a look-up.
const READING_MOST: usize = 4;

/// SEQUENCE and PUTFH, followed by operations that change nothing.
pub(super) struct ReadOnlyCompound<'a> {
    sequence: SequenceOperation,
    handle: &'a [u8],
    /// What follows PUTFH.
    behind: Decoder<'a>,
    reading: ArrayVec<(Operation<'a>, OperationNumber), READING_MOST>,
}

impl<'a> ReadOnlyCompound<'a> {
    /// Decodes a COMPOUND; `None` if it is of another kind, or does not decode.
    pub fn decode(header: &CompoundHeader<'_>, input: Decoder<'a>) -> Option<Self> {
        if header.operations as usize > READING_MOST + 2 {
            return None;
        }
        let (minor_version, count) = (header.minor_version, header.operations);
        let mut operations = OperationReader::<Operation<'a>>::new(input, minor_version, count);
        let Operation::Sequence(sequence) = operations.next()?.ok()? else {
            return None;
        };
        let Operation::Putfh(handle) = operations.next()?.ok()? else {
            return None;
        };
        let behind = *operations.input();
        let mut reading = ArrayVec::new();
        for _ in 2..count {
            let operation = operations.next()?.ok()?;
            let number = OperationNumber::from_number(operation.number())?;
            match operation {
                Operation::Read(_)
                | Operation::Getattr(_)
                | Operation::Access(_)
                | Operation::Lookup(_)
                | Operation::Getfh(()) => reading.push((operation, number)),
                _ => return None,
            }
        }
        Some(Self {
            sequence,
            handle: handle.0,
            behind,
            reading,
        })
    }
}

/// The output of a future that need not wait.
fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// Executes a COMPOUND that only reads an object of a store that need not wait. `None` if it
    /// has to wait all the same, or may not be executed: it has had no effect then.
    pub fn execute_at_once(
        &mut self,
        call: &mut ProgramCall<'_, NoBulk>,
        header: &CompoundHeader<'_>,
        operations: &ReadOnlyCompound<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Option<()> {
        let (handle, behind) = (operations.handle, operations.behind);
        self.put_handle(handle, behind).ok()?;
        match self.position() {
            Ok(FilePosition::Object(object)) => object.export.store.immediate()?,
            _ => return None,
        };
        let sequence = &operations.sequence;
        let SequenceOutcome::Execute(accepted) = self.ask_for_slot(sequence, call, header) else {
            return None;
        };
        reply.count_later();
        let begun = self.begin_request(sequence.session, accepted, reply);
        let is_done = begun == OperationStatus::Ok
            && self.read_object(call, operations, reply).is_some();
        if !is_done {
            if let Some(session) = self.session.take() {
                self.seam.abandon(session.compound);
            }
            return None;
        }
        self.finish(reply);
        let before = [OperationNumber::Sequence, OperationNumber::Putfh];
        let reading = operations.reading.iter().map(|(_, number)| *number);
        reply.count(before.into_iter().chain(reading).map(|known| known.number()));
        Some(())
    }

    /// Executes the operations behind SEQUENCE, as far as they need not wait.
    fn read_object(
        &mut self,
        call: &mut ProgramCall<'_, NoBulk>,
        operations: &ReadOnlyCompound<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Option<()> {
        let mut left = operations.reading.len();
        reply.is_last = left == 0;
        let number = OperationNumber::Putfh.number();
        let mut status = reply.push_status(number, OperationStatus::Ok);
        for (operation, known) in &operations.reading {
            if status != OperationStatus::Ok {
                break;
            }
            left -= 1;
            reply.is_last = left == 0;
            let step = Step {
                operation,
                known: *known,
                rule: rule(*known),
                behind: operations.behind,
            };
            at_once(reply.reserve(step.rule.result_bytes))?;
            status = at_once(self.perform(&step, call, reply))?.ok()?;
        }
        Some(())
    }
}
