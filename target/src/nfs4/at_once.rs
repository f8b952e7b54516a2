//! COMPOUNDs that only read, and that are answered in the turn that received them.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use arrayvec::ArrayVec;
use millrace_store::{Handle, Immediate, Store};
use millrace_wire::nfs4::{
    Bitmap, CompoundHeader, HandleBytes, OperationNumber, OperationStatus, ReadOperation,
    SequenceOperation,
};
use millrace_wire::xdr::{Decode, Decoder};

use super::attributes::{NOT_STORED, OF_SPACE};
use super::compound::CompoundRun;
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
    selection: FileSelection<'a>,
    reading: ArrayVec<ReadingOperation<'a>, READING_MOST>,
}

/// SEQUENCE and PUTFH, with which COMPOUNDs on a file begin.
pub(super) struct FileSelection<'a> {
    pub sequence: SequenceOperation,
    pub handle: &'a [u8],
    /// What follows PUTFH.
    pub behind: Decoder<'a>,
}

impl<'a> FileSelection<'a> {
    /// Decodes the two; `None` if others come first, or they do not decode.
    #[inline(always)] // What it returns is large to move.
    pub fn decode(input: &mut Decoder<'a>) -> Option<Self> {
        if !is_next(input, OperationNumber::Sequence) {
            return None;
        }
        let sequence = SequenceOperation::decode(input).ok()?;
        if !is_next(input, OperationNumber::Putfh) {
            return None;
        }
        let handle = HandleBytes::decode(input).ok()?.0;
        Some(Self {
            sequence,
            handle,
            behind: *input,
        })
    }
}

/// An operation that changes nothing.
enum ReadingOperation<'a> {
    Access(u32),
    Getattr(Bitmap),
    Getfh,
    Lookup(&'a [u8]),
    Read(ReadOperation),
}

impl<'a> ReadOnlyCompound<'a> {
    /// Decodes a COMPOUND; `None` if it is of another kind, or does not decode.
    #[inline(always)] // What it returns is large to move.
    pub fn decode(header: &CompoundHeader<'_>, mut input: Decoder<'a>) -> Option<Self> {
        let count = (header.operations as usize).checked_sub(2)?;
        if count > READING_MOST {
            return None;
        }
        let selection = FileSelection::decode(&mut input)?;
        let mut reading = ArrayVec::new();
        for _ in 0..count {
            reading.push(ReadingOperation::decode(&mut input)?);
        }
        Some(Self { selection, reading })
    }

    /// Whether it needs nothing but what a store tells at once, as far as is expected.
    fn is_simple(&self, store: &Immediate<'_>, file: Handle) -> bool {
        self.reading.iter().all(|operation| match operation {
            ReadingOperation::Getattr(wanted) => are_stored(wanted),
            ReadingOperation::Read(_) => store.expects_bytes_of(file),
            ReadingOperation::Access(_) | ReadingOperation::Getfh | ReadingOperation::Lookup(_) => {
                true
            }
        })
    }
}

/// Whether a store tells these attributes together with all others of an object.
pub(super) fn are_stored(wanted: &Bitmap) -> bool {
    let others = [&OF_SPACE, &NOT_STORED].map(|others| wanted.intersection(others));
    others.iter().all(Bitmap::is_empty)
}

/// Whether this operation is the next one.
pub(super) fn is_next(input: &mut Decoder<'_>, known: OperationNumber) -> bool {
    input.u32() == Ok(known.number())
}

impl<'a> ReadingOperation<'a> {
    fn decode(input: &mut Decoder<'a>) -> Option<Self> {
        const ACCESS: u32 = OperationNumber::Access.number();
        const GETATTR: u32 = OperationNumber::Getattr.number();
        const GETFH: u32 = OperationNumber::Getfh.number();
        const LOOKUP: u32 = OperationNumber::Lookup.number();
        const READ: u32 = OperationNumber::Read.number();
        let decoded = match input.u32().ok()? {
            ACCESS => input.u32().map(Self::Access),
            GETATTR => Bitmap::decode(input).map(Self::Getattr),
            GETFH => Ok(Self::Getfh),
            LOOKUP => Decode::decode(input).map(Self::Lookup),
            READ => ReadOperation::decode(input).map(Self::Read),
            _ => return None,
        };
        decoded.ok()
    }

    fn number(&self) -> OperationNumber {
        match self {
            Self::Access(_) => OperationNumber::Access,
            Self::Getattr(_) => OperationNumber::Getattr,
            Self::Getfh => OperationNumber::Getfh,
            Self::Lookup(_) => OperationNumber::Lookup,
            Self::Read(_) => OperationNumber::Read,
        }
    }
}

/// The output of a future that need not wait.
#[inline(always)] // A future is large to move.
pub(super) fn at_once<F: Future>(future: F) -> Option<F::Output> {
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
        call: &ProgramCall<'_, NoBulk>,
        header: &CompoundHeader<'_>,
        operations: &ReadOnlyCompound<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Option<()> {
        let selection = &operations.selection;
        self.put_handle(selection.handle, selection.behind).ok()?;
        self.is_at_once = match self.position() {
            Ok(FilePosition::Object(object)) => {
                let store = object.view().immediate()?;
                if !store.is_complete() && !operations.is_simple(&store, object.handle) {
                    return None;
                }
                !store.is_complete()
            }
            _ => return None,
        };
        let sequence = &selection.sequence;
        let SequenceOutcome::Execute(accepted) = self.ask_for_slot(sequence, call, header) else {
            return None;
        };
        reply.count_later();
        let begun = self.begin_request(sequence.session, accepted, reply);
        let is_done =
            begun == OperationStatus::Ok && self.read_object(&operations.reading, reply).is_some();
        if !is_done {
            if let Some(session) = self.session.take() {
                self.seam.abandon(session.compound);
            }
            return None;
        }
        self.finish(reply);
        let before = [OperationNumber::Sequence, OperationNumber::Putfh];
        let reading = operations.reading.iter().map(ReadingOperation::number);
        let all = before.into_iter().chain(reading);
        reply.count(all.map(OperationNumber::number));
        Some(())
    }

    /// Executes the operations behind SEQUENCE, as far as they need not wait.
    fn read_object(
        &mut self,
        operations: &[ReadingOperation<'c>],
        reply: &mut CompoundReply<'_>,
    ) -> Option<()> {
        let mut left = operations.len();
        reply.is_last = left == 0;
        let number = OperationNumber::Putfh.number();
        let mut status = reply.push_status(number, OperationStatus::Ok);
        for operation in operations {
            if status != OperationStatus::Ok {
                break;
            }
            left -= 1;
            reply.is_last = left == 0;
            let known = operation.number();
            at_once(reply.reserve(rule(known).result_bytes))?;
            let number = known.number();
            status = match operation {
                ReadingOperation::Access(asked) => {
                    let results = at_once(self.access(*asked))?;
                    reply.push(number, &results)
                }
                ReadingOperation::Getattr(wanted) => {
                    at_once(self.get_attributes(wanted, number, reply))?
                }
                ReadingOperation::Getfh => self.get_handle(reply),
                ReadingOperation::Lookup(name) => {
                    let outcome = at_once(self.lookup(name))?;
                    reply.push_status(number, outcome.err().unwrap_or(OperationStatus::Ok))
                }
                ReadingOperation::Read(arguments) => at_once(self.read(arguments, reply))?,
            };
        }
        // A transport without memory for the reply has the whole call executed by a task, which the
        // session would take for a repetition.
        (!reply.may_take_buffer()).then_some(())
    }
}
