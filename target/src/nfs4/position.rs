//! The objects of file handles while a COMPOUND is executed.

use std::future::pending;

use millrace_mempool::Slice;
use millrace_store::{Immediate, Store};
use millrace_wire::nfs3::FileHandle;
use millrace_wire::nfs4::{OperationStatus, StateId};

use super::compound::CompoundRun;
use super::export_tree::{FolderIndex, pseudo_export};
use super::seam::{FileIdentity, StateSeam};
use crate::access::ExportedObject;
use crate::store_times::{StoreClass, Timed};

/// The object of a file handle.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // Two of them live in one COMPOUND.
pub(super) enum FilePosition<'c, S> {
    /// A folder above exports.
    Folder(FolderIndex),
    /// An object of an export.
    Object(ExportedObject<'c, S>),
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// The current position; the engine has seen to it that there is one.
    pub fn position(&self) -> Result<&FilePosition<'c, S>, OperationStatus> {
        let current = self.current.as_ref();
        current.ok_or(OperationStatus::NoFileHandle)
    }

    /// The current object, for an operation that pseudo folders answer with `of_folder`.
    pub fn object(
        &self,
        of_folder: OperationStatus,
    ) -> Result<&ExportedObject<'c, S>, OperationStatus> {
        self.in_export(self.position()?, of_folder)
    }

    /// The object at a position, if the flavor of the call is strong enough for it.
    pub fn in_export<'p>(
        &self,
        position: &'p FilePosition<'c, S>,
        of_folder: OperationStatus,
    ) -> Result<&'p ExportedObject<'c, S>, OperationStatus> {
        match position {
            FilePosition::Folder(_) => Err(of_folder),
            FilePosition::Object(object) if !self.access.takes(object.export) => {
                Err(OperationStatus::WrongSecurity)
            }
            FilePosition::Object(object) => Ok(object),
        }
    }

    /// The current object, for an operation that changes it.
    pub fn writable(&self) -> Result<&ExportedObject<'c, S>, OperationStatus> {
        let object = self.object(OperationStatus::ReadOnly)?;
        if object.export.rules.read_only {
            return Err(OperationStatus::ReadOnly);
        }
        Ok(object)
    }

    /// The store of an object, for one operation of this class.
    pub fn store<'o>(
        &'o self,
        object: &'o ExportedObject<'c, S>,
        class: StoreClass,
    ) -> Timed<'o, &'o S> {
        self.times.begin(class, object.view())
    }

    /// The same, in a COMPOUND that is given up where its store would have to wait.
    pub fn immediate<'o>(
        &'o self,
        object: &'o ExportedObject<'c, S>,
        class: StoreClass,
    ) -> Option<Timed<'o, Immediate<'o>>> {
        let store = self.is_at_once.then(|| object.view().immediate())??;
        Some(self.times.begin(class, store))
    }

    /// The handle of a position, for the client.
    pub fn handle(&self, position: &FilePosition<'c, S>) -> FileHandle {
        match position {
            FilePosition::Folder(folder) => {
                let key = &self.access.served.key;
                key.seal(pseudo_export().0, self.tree.handle(*folder))
            }
            FilePosition::Object(object) => object.key.seal(object.export.id.0, object.handle),
        }
    }

    /// A file as the state of clients knows it.
    pub fn identity(object: &ExportedObject<'c, S>) -> FileIdentity {
        FileIdentity {
            export: object.export.id,
            object: object.handle,
        }
    }

    /// The stateid that an argument refers to: the current one if it is the special value for that
    /// (RFC 8881 section 16.2.3.1.2).
    pub fn stateid(&self, given: StateId) -> Result<StateId, OperationStatus> {
        if given != StateId::CURRENT {
            return Ok(given);
        }
        if self.current_state.is_special() {
            return Err(OperationStatus::BadStateId);
        }
        Ok(self.current_state)
    }

    /// Makes another position the current one. Its stateid is the anonymous one.
    pub fn set_current(&mut self, position: FilePosition<'c, S>) {
        self.current = Some(position);
        self.current_state = StateId::ANONYMOUS;
    }
}

/// What a store has done at once. If it has to wait, the COMPOUND is given up.
pub(super) async fn done_at_once<T>(done: Option<T>) -> T {
    match done {
        Some(done) => done,
        None => pending().await,
    }
}

/// Copies what slices hold to the front of `bytes`.
pub(super) fn gather(slices: &[Slice], bytes: &mut [u8]) {
    let mut rest = bytes;
    for slice in slices {
        let (part, later) = rest.split_at_mut(slice.len());
        slice.copy_to(0, part);
        rest = later;
    }
}
