//! COMPOUNDs that write a file, as clients send them: SEQUENCE, PUTFH, WRITE, and maybe GETATTR. To
//! decode and judge operations one by one takes longer than to write 4 KiB.

use millrace_store::Store;
use millrace_wire::nfs4::{
    Bitmap, CompoundHeader, OperationNumber, OperationStatus, WriteOperation,
};
use millrace_wire::xdr::{Decode, Decoder};

use super::at_once::{FileSelection, is_next};
use super::compound::CompoundRun;
use super::reply::CompoundReply;
use super::seam::{SequenceOutcome, StateSeam};
use super::table::rule;
use crate::call::Bulk;
use crate::rpc::program::{ProgramCall, Unserved};

/// SEQUENCE, PUTFH and WRITE, with GETATTR or without.
pub(super) struct WriteCompound<'a> {
    selection: FileSelection<'a>,
    write: WriteOperation<'a>,
    attributes: Option<Bitmap>,
}

impl<'a> WriteCompound<'a> {
    /// Decodes a COMPOUND; `None` if it is of another kind, or does not decode.
    fn decode(header: &CompoundHeader<'_>, mut input: Decoder<'a>) -> Option<Self> {
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
    /// Begins a COMPOUND that writes a file and need not wait for limits. `None` if it is another one,
    /// or its slot is not free for it: nothing has happened then.
    pub fn begin_write<B: Bulk>(
        &mut self,
        call: &mut ProgramCall<'_, B>,
        header: &CompoundHeader<'_>,
        input: Decoder<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Option<WriteCompound<'c>> {
        let operations = WriteCompound::decode(header, input)?;
        if !call.is_admitted_at_once() {
            return None;
        }
        let sequence = &operations.selection.sequence;
        let SequenceOutcome::Execute(mut accepted) = self.ask_for_slot(sequence, call, header)
        else {
            return None;
        };
        self.seam.keep(&mut accepted.compound);
        self.begin_request(sequence.session, accepted, reply);
        Some(operations)
    }

    /// Executes a COMPOUND that was begun, as [`CompoundRun::execute`] does.
    pub async fn execute_write<B: Bulk>(
        &mut self,
        call: &mut ProgramCall<'_, B>,
        operations: &WriteCompound<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<bool, Unserved> {
        let written = if reply.status() == OperationStatus::Ok {
            self.write_file(call, operations, reply).await
        } else {
            Ok(())
        };
        if written.is_err() {
            // It must not be executed again: see the engine.
            reply.refuse(OperationNumber::Write.number(), OperationStatus::Delay);
        }
        self.finish(reply);
        written.map(|()| true)
    }

    /// Executes the operations behind SEQUENCE.
    async fn write_file<B: Bulk>(
        &mut self,
        call: &mut ProgramCall<'_, B>,
        operations: &WriteCompound<'c>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<(), Unserved> {
        let selection = &operations.selection;
        let found = self.put_handle(selection.handle, selection.behind);
        let status = found.err().unwrap_or(OperationStatus::Ok);
        let number = OperationNumber::Putfh.number();
        if reply.push_status(number, status) != OperationStatus::Ok {
            return Ok(());
        }
        let number = OperationNumber::Write.number();
        let needed = const { rule(OperationNumber::Write).result_bytes };
        reply.is_last = operations.attributes.is_none();
        reply.reserve(needed).await;
        if reply.room() < needed {
            // The client knows by this that nothing was written.
            let status = reply.too_big(needed);
            reply.refuse(number, status);
            return Ok(());
        }
        self.changes = true;
        let mut after = None;
        let results = self
            .write(&operations.write, call, reply, &mut after)
            .await?;
        let status = reply.push(number, &results);
        if let (OperationStatus::Ok, Some(wanted)) = (status, &operations.attributes) {
            reply.is_last = true;
            let needed = const { rule(OperationNumber::Getattr).result_bytes };
            reply.reserve(needed).await;
            let number = OperationNumber::Getattr.number();
            self.get_attributes_of(after.as_ref(), wanted, number, reply)
                .await;
        }
        Ok(())
    }
}
