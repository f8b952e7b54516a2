//! Changes of names on exports that outlive the process.
//!
//! Sessions end with the process, and with them the replies in their slots (RFC 8881 section
//! 2.10.6.5). A client that has no answer yet repeats its request on a connection to the next
//! process, learns that the session is gone, and sends the same operations again in a new one. So
//! changes of names are recorded in the journal of replies that version 3 has. The repetition in the
//! old session is answered from there. If the change had only been begun, that repetition shows that
//! the client has no answer, and the rules of [`crate::interrupted_call`] hold for the same
//! operations in its new session.
//!
//! The sessions are not persistent for that: a reply that the journal does not have is
//! `NFS4ERR_BADSESSION`, while persistent ones promise that execution and reply are kept as one.

use millrace_store::{Consistency, Store, StoreError};
use millrace_wire::nfs4::{ChangeInfo, OpenClaim, Operation, OperationStatus, RenameReply};

use super::compound::CompoundRun;
use super::position::FilePosition;
use super::seam::StateSeam;
use super::status;
use crate::access::ExportedObject;
use crate::call::Bulk;
use crate::interrupted_call::{self, Verdict};
use crate::rpc::CallSubject;
use crate::rpc::program::{ProgramCall, Unserved};

/// Whether an operation may change names.
pub(super) fn uses_names(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Create(_) | Operation::Remove(_) | Operation::Rename(_) | Operation::Link(_) => {
            true
        }
        Operation::Open(open) => open.create.is_some(),
        _ => false,
    }
}

impl<S: Store, H: StateSeam> CompoundRun<'_, S, H> {
    /// Records the names that an operation is about to change, and what is known of it if it was
    /// begun before.
    pub async fn record_names<B: Bulk>(
        &mut self,
        operation: &Operation<'_>,
        call: &mut ProgramCall<'_, B>,
    ) -> Result<(), Unserved> {
        let current = self.current.as_ref();
        let saved = self.saved.as_ref().map(|(saved, _)| saved);
        let used = match operation {
            Operation::Create(create) => [current.zip(Some(create.name)), None],
            Operation::Remove(name) | Operation::Link(name) => [current.zip(Some(*name)), None],
            Operation::Rename(names) => [saved.zip(Some(names.from)), current.zip(Some(names.to))],
            Operation::Open(open) => match open.claim {
                OpenClaim::Name(name) => [current.zip(Some(name)), None],
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        let lasts = |position: &FilePosition<'_, S>| match position {
            FilePosition::Folder(_) => false,
            FilePosition::Object(object) => object.export.store.outlives_process(),
        };
        let lasting = used.iter().flatten().any(|(position, _)| lasts(position));
        let handles = used.map(|name| name.map(|(position, name)| (self.handle(position), name)));
        let [first, second] = &handles;
        let named = |(handle, name)| (millrace_wire::nfs3::FileHandle::as_bytes(handle), name);
        let subject = CallSubject {
            lasting,
            names: [first, second]
                .map(|one| one.as_ref().map(|(handle, name)| named((handle, *name)))),
            ..CallSubject::default()
        };
        match operation {
            // An exclusive one may be executed twice, as its verifier is with the file.
            Operation::Open(_) => call.begin_use(&subject).await,
            _ => self.again = call.begin_change(&subject, &self.request).await?,
        }
        Ok(())
    }

    /// The answer to a REMOVE that is not to be executed, as an earlier process may have done so.
    pub async fn removed_before(
        &self,
        directory: &ExportedObject<'_, S>,
        name: &[u8],
    ) -> Option<Result<ChangeInfo, OperationStatus>> {
        let again = self.again.as_ref()?;
        match interrupted_call::removed(again, directory, name).await {
            Verdict::Execute => None,
            Verdict::Executed => Some(Ok(self.unchanged(directory).await)),
            Verdict::Refuse(error) => Some(Err(status::status(error))),
        }
    }

    /// The same for RENAME.
    pub async fn renamed_before(
        &self,
        from: (&ExportedObject<'_, S>, &[u8]),
        to: (&ExportedObject<'_, S>, &[u8]),
    ) -> Option<Result<RenameReply, OperationStatus>> {
        let again = self.again.as_ref()?;
        match interrupted_call::renamed(again, from, to).await {
            Verdict::Execute => None,
            Verdict::Executed => Some(Ok(RenameReply {
                from: self.unchanged(from.0).await,
                to: self.unchanged(to.0).await,
            })),
            Verdict::Refuse(error) => Some(Err(status::status(error))),
        }
    }

    /// The answer to a LINK that failed, if an earlier process has executed it.
    pub async fn linked_before(
        &self,
        error: StoreError,
        object: &ExportedObject<'_, S>,
        directory: &ExportedObject<'_, S>,
        name: &[u8],
    ) -> Option<ChangeInfo> {
        let again = self
            .again
            .as_ref()
            .filter(|_| error == StoreError::Exists)?;
        match interrupted_call::linked(again, object, directory, name).await {
            true => Some(self.unchanged(directory).await),
            false => None,
        }
    }

    /// What clients are told of a directory that an earlier process has changed.
    pub async fn unchanged(&self, directory: &ExportedObject<'_, S>) -> ChangeInfo {
        self.change_info(directory, &Consistency::default()).await
    }
}
