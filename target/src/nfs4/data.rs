//! READ, WRITE and COMMIT (RFC 8881 sections 18.3, 18.22 and 18.32).

use millrace_store::{Attributes, Store, StoreError, Written};
use millrace_wire::nfs4::{
    CommitOperation, OperationNumber, OperationOutcome, OperationStatus, ReadOperation, Verifier,
    WriteOperation, WriteReply,
};
use millrace_wire::xdr::{Data, Encode};

use super::at_once::at_once;
use super::compound::CompoundRun;
use super::position::{done_at_once, gather};
use super::reply::CompoundReply;
use super::seam::{StateIdUse, StateSeam};
use super::status;
use crate::access::ExportedObject;
use crate::call::{Bulk, NoBulk, scatter};
use crate::file_data::{TRANSFER_MAX, stability, stability_to};
use crate::rpc::program::{ProgramCall, Unserved};
use crate::store_times::StoreClass;

/// Number, status, end of file and length word around the data of READ.
const AROUND_DATA: usize = 16;

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// READ: the data is in the reply's slices.
    pub async fn read(
        &self,
        arguments: &ReadOperation,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        let number = OperationNumber::Read.number();
        let before = reply.inner().slices.len();
        match self.try_read(arguments, reply).await {
            Ok((length, eof)) => {
                let length = length as usize;
                if !reply.is_data_copied() {
                    return reply.push_data(number, length, |out| out.bool(eof));
                }
                // There is no place left beside the message.
                reply.reserve(length + AROUND_DATA).await;
                let mut bytes = vec![0; length];
                gather(&reply.inner().slices[before..], &mut bytes);
                reply.inner().slices.truncate(before);
                reply.push_with(number, |out| {
                    OperationStatus::Ok.encode(out)?;
                    out.bool(eof)?;
                    out.opaque(&bytes).map(|()| OperationStatus::Ok)
                })
            }
            Err(status) => {
                reply.inner().slices.truncate(before);
                reply.refuse(number, status)
            }
        }
    }

    async fn try_read(
        &self,
        arguments: &ReadOperation,
        reply: &mut CompoundReply<'_>,
    ) -> Result<(u32, bool), OperationStatus> {
        let file = self.object(OperationStatus::IsDirectory)?;
        let state = self.stateid(arguments.state)?;
        let _guard = self.begin_io(file, state, StateIdUse::Read).await?;
        let count = reply.data_count(arguments.count, AROUND_DATA)?;
        let slices = &mut reply.inner().slices;
        let (caller, handle, offset) = (&file.caller, file.handle, arguments.offset);
        let read = match self.immediate(file, StoreClass::Read) {
            Some(store) => {
                Ok(done_at_once(store.read(caller, handle, offset, count, slices)).await)
            }
            None => {
                let store = self.store(file, StoreClass::Read);
                store.read(caller, handle, offset, count, slices).await
            }
        };
        match read {
            Ok(outcome) => {
                reply.inner().account.read += outcome.length;
                Ok((outcome.length, outcome.end_of_file))
            }
            Err(error) => Err(self.data_status(file, error).await),
        }
    }

    /// The status of a failed operation on data: what an object of another kind is.
    async fn data_status(
        &self,
        file: &ExportedObject<'c, S>,
        error: StoreError,
    ) -> OperationStatus {
        match error {
            StoreError::IsDirectory | StoreError::Invalid | StoreError::NotSupported => {
                Box::pin(self.no_file(file, status::status(error))).await
            }
            error => status::status(error),
        }
    }

    /// WRITE: the store says where the data shall live, and makes it part of the file when it is
    /// there.
    pub async fn write<B: Bulk>(
        &self,
        arguments: &WriteOperation<'_>,
        call: &mut ProgramCall<'_, B>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<OperationOutcome<WriteReply>, Unserved> {
        // Slices of results before stay where they are.
        let before = reply.inner().slices.len();
        let written = self.try_write(arguments, call, reply).await;
        reply.inner().slices.truncate(before);
        written
    }

    /// The same at once, of data that is at hand. Returns the attributes after it, too; failures are
    /// left to [`write`](Self::write).
    pub fn write_bytes(
        &self,
        arguments: &WriteOperation<'c>,
        call: &ProgramCall<'c, NoBulk>,
        reply: &mut CompoundReply<'_>,
    ) -> Option<(WriteReply, Option<Attributes>)> {
        let file = self.writable().ok()?;
        let state = self.stateid(arguments.state).ok()?;
        let _guard = at_once(self.begin_io(file, state, StateIdUse::Write))?.ok()?;
        let length = arguments.data.length.min(TRANSFER_MAX) as usize;
        let bytes = call.bytes(arguments.data.data)?.get(..length)?;
        let store = file.view().immediate()?;
        let store = self.times.begin(StoreClass::Write, store);
        let done = store.write(&file.caller, file.handle, arguments.offset, bytes)?;
        let written = done.result.ok()?;
        Some((answer(&written, reply), done.consistency.after))
    }

    async fn try_write<B: Bulk>(
        &self,
        arguments: &WriteOperation<'_>,
        call: &mut ProgramCall<'_, B>,
        reply: &mut CompoundReply<'_>,
    ) -> Result<OperationOutcome<WriteReply>, Unserved> {
        let file = match self.writable() {
            Ok(file) => file,
            Err(status) => return Ok(Err(self.not_writable(status))),
        };
        let state = match self.stateid(arguments.state) {
            Ok(state) => state,
            Err(status) => return Ok(Err(status)),
        };
        // Nothing is fetched for a WRITE that is not allowed.
        let _guard = match self.begin_io(file, state, StateIdUse::Write).await {
            Ok(guard) => guard,
            Err(status) => return Ok(Err(status)),
        };
        // Writing less than asked is allowed, and the client goes on from there.
        let (offset, length) = (arguments.offset, arguments.data.length.min(TRANSFER_MAX));
        if offset
            .checked_add(u64::from(arguments.data.length))
            .is_none()
        {
            return Ok(Err(OperationStatus::Invalid));
        }
        let slices = &mut reply.inner().slices;
        let before = slices.len();
        let staged = self
            .store(file, StoreClass::Write)
            .stage_write(&file.caller, file.handle, offset, length, slices)
            .await;
        let staged = match staged {
            Ok(staged) => staged,
            Err(error) => return Ok(Err(self.data_status(file, error).await)),
        };
        match arguments.data.data {
            Data::Inline(bytes) => scatter(&bytes[..length as usize], &slices[before..]),
            Data::Apart(_) if length == 0 => {}
            Data::Apart(position) => call.pull(position, &slices[before..]).await?,
        }
        // The data may have been long on its way. The store looks at its own rights again.
        if let Err(error) = self.access.check_writable_again(file) {
            return Ok(Err(status::of_access(error)));
        }
        let done = self
            .store(file, StoreClass::Write)
            .commit_write(staged, stability(arguments.stable))
            .await;
        slices.truncate(before);
        Ok(match done.result {
            Ok(written) => Ok(answer(&written, reply)),
            Err(error) => Err(status::status(error)),
        })
    }

    /// Pseudo folders are directories before they are read-only.
    fn not_writable(&self, status: OperationStatus) -> OperationStatus {
        match self.position() {
            Ok(super::position::FilePosition::Folder(_)) => OperationStatus::IsDirectory,
            _ => status,
        }
    }

    /// COMMIT.
    pub async fn commit(&self, arguments: &CommitOperation) -> OperationOutcome<Verifier> {
        let file = self
            .writable()
            .map_err(|status| self.not_writable(status))?;
        // Who may not write has nothing to make durable, and would have the disk work for nothing.
        // A WRITE of no bytes is refused to the same callers.
        let mut none = Vec::new();
        let (view, handle) = (file.view(), file.handle);
        let staged = view
            .stage_write(&file.caller, handle, 0, 0, &mut none)
            .await;
        if let Err(error) = staged {
            return Err(self.data_status(file, error).await);
        }
        let store = self.store(file, StoreClass::Commit);
        let done = store
            .commit(handle, arguments.offset, arguments.count)
            .await;
        match done.result {
            Ok(verifier) => Ok(verifier.0),
            Err(error) => Err(status::status(error)),
        }
    }
}

/// The results of a WRITE, whose bytes are counted.
fn answer(written: &Written, reply: &mut CompoundReply<'_>) -> WriteReply {
    reply.inner().account.written += written.length;
    WriteReply {
        count: written.length,
        committed: stability_to(written.stability),
        verifier: written.verifier.0,
    }
}
