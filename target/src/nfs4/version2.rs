//! Operations that minor version 2 adds (RFC 7862 section 15, RFC 8276 section 8.4).

use millrace_store::{FoundRange, RangeContent, Store, StoreError, UsageAdvice};
use millrace_wire::nfs4::{
    Bitmap, CopyFailure, CopyReply, IoAdviseOperation, Operation, OperationOutcome,
    OperationStatus, SeekOperation, SeekReply, SpaceOperation, StateId, advice, content,
};

use super::compound::CompoundRun;
use super::reply::CompoundReply;
use super::seam::{StateIdUse, StateSeam};
use super::status;
use crate::access::ExportedObject;
use crate::store_times::StoreClass;

/// Hints that a store may make use of.
const ADVICE: [(u32, UsageAdvice); 5] = [
    (advice::NORMAL, UsageAdvice::Normal),
    (advice::SEQUENTIAL, UsageAdvice::Sequential),
    (advice::RANDOM, UsageAdvice::Random),
    (advice::WILL_NEED, UsageAdvice::WillNeed),
    (advice::DONT_NEED, UsageAdvice::DontNeed),
];

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// Executes an operation of minor version 2, if it is one.
    pub async fn perform_in_version_2(
        &self,
        operation: &Operation<'_>,
        number: u32,
        reply: &mut CompoundReply<'_>,
    ) -> Option<OperationStatus> {
        Some(match operation {
            Operation::Allocate(arguments) => {
                let results = self.allocate(arguments).await;
                reply.push(number, &results)
            }
            Operation::Deallocate(arguments) => {
                let results = self.deallocate(arguments).await;
                reply.push(number, &results)
            }
            Operation::Seek(arguments) => {
                let results = self.seek(arguments).await;
                reply.push(number, &results)
            }
            Operation::IoAdvise(arguments) => {
                let results = self.advise(arguments).await;
                reply.push(number, &results)
            }
            Operation::Clone(arguments) => {
                let results = self.clone_range(arguments).await;
                reply.push(number, &results)
            }
            Operation::Copy(arguments) => {
                let results = self.copy(arguments, reply).await;
                let results: CopyReply = results.map_err(CopyFailure::Other);
                reply.push(number, &results)
            }
            // No copy goes on behind its reply.
            Operation::OffloadStatus(_) | Operation::OffloadCancel(_) => {
                reply.refuse(number, OperationStatus::BadStateId)
            }
            // Its future would make that of every operation larger.
            Operation::ReadPlus(arguments) => Box::pin(self.read_plus(arguments, reply)).await,
            Operation::Getxattr(name) => self.get_xattr(name, reply).await,
            Operation::Setxattr(arguments) => {
                let results = self.set_xattr(arguments).await;
                reply.push(number, &results)
            }
            Operation::Listxattrs(arguments) => self.list_xattrs(*arguments, reply).await,
            Operation::Removexattr(name) => {
                let results = self.remove_xattr(name).await;
                reply.push(number, &results)
            }
            _ => return None,
        })
    }

    /// The current file, for an operation on a range that reads it, and the guard of its state.
    pub async fn begin_range(
        &self,
        state: StateId,
    ) -> OperationOutcome<(&ExportedObject<'c, S>, H::IoGuard)> {
        let file = self.object(OperationStatus::WrongType)?;
        let state = self.stateid(state)?;
        let guard = self.begin_io(file, state, StateIdUse::Read).await?;
        Ok((file, guard))
    }

    /// The same for one that changes it.
    pub async fn begin_range_change(
        &self,
        state: StateId,
    ) -> OperationOutcome<(&ExportedObject<'c, S>, H::IoGuard)> {
        self.object(OperationStatus::WrongType)?;
        let file = self.writable()?;
        let state = self.stateid(state)?;
        let guard = self.begin_io(file, state, StateIdUse::Write).await?;
        Ok((file, guard))
    }

    /// The status of a failed operation on a range: other objects have none.
    pub async fn range_status(
        &self,
        file: &ExportedObject<'c, S>,
        error: StoreError,
    ) -> OperationStatus {
        match error {
            StoreError::IsDirectory => OperationStatus::WrongType,
            StoreError::Invalid => {
                let status = self.no_file(file, OperationStatus::Invalid).await;
                match status {
                    OperationStatus::IsDirectory | OperationStatus::Symlink => {
                        OperationStatus::WrongType
                    }
                    status => status,
                }
            }
            error => status::status(error),
        }
    }

    /// ALLOCATE.
    async fn allocate(&self, arguments: &SpaceOperation) -> OperationOutcome<()> {
        let SpaceOperation { offset, length, .. } = *arguments;
        let (file, _guard) = self.begin_range_change(arguments.state).await?;
        if length == 0 || offset.checked_add(length).is_none() {
            return Err(OperationStatus::Invalid);
        }
        let store = self.store(file, StoreClass::Write);
        let done = store.allocate(&file.caller, file.handle, offset, length);
        match done.await.result {
            Ok(()) => Ok(()),
            Err(error) => Err(self.range_status(file, error).await),
        }
    }

    /// DEALLOCATE.
    async fn deallocate(&self, arguments: &SpaceOperation) -> OperationOutcome<()> {
        let SpaceOperation { offset, length, .. } = *arguments;
        let (file, _guard) = self.begin_range_change(arguments.state).await?;
        if length == 0 || offset.checked_add(length).is_none() {
            return Err(OperationStatus::Invalid);
        }
        let store = self.store(file, StoreClass::Write);
        let done = store.deallocate(&file.caller, file.handle, offset, length);
        match done.await.result {
            Ok(()) => Ok(()),
            Err(error) => Err(self.range_status(file, error).await),
        }
    }

    /// SEEK.
    async fn seek(&self, arguments: &SeekOperation) -> OperationOutcome<SeekReply> {
        let wanted = match arguments.what {
            content::DATA => RangeContent::Data,
            content::HOLE => RangeContent::Hole,
            _ => return Err(OperationStatus::UnionNotSupported),
        };
        let (file, _guard) = self.begin_range(arguments.state).await?;
        let store = self.store(file, StoreClass::Metadata);
        let found = store.seek(&file.caller, file.handle, arguments.offset, wanted);
        match found.await {
            Ok(FoundRange {
                offset,
                end_of_file: eof,
            }) => Ok(SeekReply { eof, offset }),
            Err(error) => Err(self.range_status(file, error).await),
        }
    }

    /// IO_ADVISE: the hints that are made use of. None of them is an error.
    async fn advise(&self, arguments: &IoAdviseOperation) -> OperationOutcome<Bitmap> {
        let IoAdviseOperation { offset, count, .. } = *arguments;
        let (file, _guard) = self.begin_range(arguments.state).await?;
        let mut used = Bitmap::EMPTY;
        for (hint, advice) in ADVICE {
            if !arguments.hints.contains(hint) {
                continue;
            }
            let store = self.store(file, StoreClass::Metadata);
            let taken = store.advise(&file.caller, file.handle, offset, count, advice);
            match taken.await {
                Ok(true) => {
                    used.insert(hint);
                }
                Err(error @ (StoreError::IsDirectory | StoreError::Stale)) => {
                    return Err(self.range_status(file, error).await);
                }
                Ok(false) | Err(_) => {}
            }
        }
        Ok(used)
    }
}
