//! COMPOUNDs that write a file, as clients send them: SEQUENCE, PUTFH, WRITE, and maybe GETATTR. They
//! are executed at once if the data is at hand and the store need not wait.

use millrace_store::Store;
use millrace_wire::nfs4::{
    Bitmap, CompoundHeader, OperationNumber, OperationStatus, WriteOperation,
};
use millrace_wire::xdr::{Decode, Decoder};

use super::at_once::{FileSelection, are_stored, at_once, is_next};
use super::compound::CompoundRun;
use super::position::FilePosition;
use super::reply::CompoundReply;
use super::seam::{SequenceOutcome, StateSeam};
use super::table::rule;
use crate::call::NoBulk;
use crate::rpc::program::ProgramCall;

const SEQUENCE: u32 = OperationNumber::Sequence.number();

/// The operations behind SEQUENCE.
const OPERATIONS: [OperationNumber; 3] = [
    OperationNumber::Putfh,
    OperationNumber::Write,
    OperationNumber::Getattr,
];

/// Room for the results of these operations.
const ROOM: usize = rule(OPERATIONS[0]).result_bytes
    + rule(OPERATIONS[1]).result_bytes
    + rule(OPERATIONS[2]).result_bytes;

/// SEQUENCE, PUTFH and WRITE, with GETATTR or without.
pub(super) struct WriteCompound<'a> {
    selection: FileSelection<'a>,
    write: WriteOperation<'a>,
    attributes: Option<Bitmap>,
}

impl<'a> WriteCompound<'a> {
    /// Decodes a COMPOUND; `None` if it is of another kind, or does not decode.
    #[inline(always)] // What it returns is large to move.
    pub fn decode(header: &CompoundHeader<'_>, mut input: Decoder<'a>) -> Option<Self> {
        if !matches!(header.operations, 3 | 4) {
            return None;
        }
        let selection = FileSelection::decode(&mut input)?;
        if !is_next(&mut input, OperationNumber::Write) {
            return None;
        }
        let write = WriteOperation::decode(&mut input).ok()?;
        let mut attributes = None;
        if header.operations == 4 {
            if !is_next(&mut input, OperationNumber::Getattr) {
                return None;
            }
            attributes = Some(Bitmap::decode(&mut input).ok()?);
        }
        Some(Self {
            selection,
            write,
            attributes,
        })
    }
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// Executes a COMPOUND that writes data which is at hand to a store that need not wait. `None` if
    /// it has to wait all the same, or may not be executed: it has had no effect then.
    pub fn write_at_once(
        &mut self,
        call: &ProgramCall<'c, NoBulk>,
        header: &CompoundHeader<'_>,
        operations: &WriteCompound<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Option<()> {
        let selection = &operations.selection;
        self.put_handle(selection.handle, selection.behind).ok()?;
        if !self.answers_after_write(operations) {
            return None;
        }
        let sequence = &selection.sequence;
        let SequenceOutcome::Execute(accepted) = self.ask_for_slot(sequence, call, header) else {
            return None;
        };
        reply.count_later();
        let begun = self.begin_request(sequence.session, accepted, reply);
        let is_begun = begun == OperationStatus::Ok && reply.room() >= ROOM;
        let written = is_begun.then(|| self.write_bytes(&operations.write, call, reply));
        let Some((results, after)) = written.flatten() else {
            if let Some(session) = self.session.take() {
                self.seam.abandon(session.compound);
            }
            return None;
        };
        // Nothing waits from here on: it must not be executed again.
        self.changes = true;
        let [putfh, write, getattr] = OPERATIONS.map(OperationNumber::number);
        reply.push_status(putfh, OperationStatus::Ok);
        reply.is_last = operations.attributes.is_none();
        let status = reply.push(write, &Ok::<_, OperationStatus>(results));
        if let (OperationStatus::Ok, Some(wanted)) = (status, &operations.attributes) {
            reply.is_last = true;
            let told = self.get_attributes_of(after.as_ref(), wanted, getattr, reply);
            if at_once(told).is_none() {
                reply.refuse(getattr, OperationStatus::Delay);
            }
        }
        self.finish(reply);
        reply.count([SEQUENCE, putfh, write, getattr].into_iter());
        Some(())
    }

    /// Whether a store writes at once, and nothing behind the WRITE waits.
    fn answers_after_write(&self, operations: &WriteCompound<'_>) -> bool {
        let Ok(FilePosition::Object(object)) = self.position() else {
            return false;
        };
        let store = object.view().immediate();
        let wanted = operations.attributes.as_ref();
        store.is_some_and(|store| store.is_complete())
            && !self.seam.has_delegations()
            && wanted.is_none_or(|wanted| are_stored(wanted) && self.told_names(wanted).is_none())
    }
}
