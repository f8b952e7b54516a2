//! CREATE, REMOVE, RENAME and LINK (RFC 8881 sections 18.4, 18.9, 18.25 and 18.26).

use millrace_mempool::Pool;
use millrace_store::{
    Attributes, Consistency, Handle, Kind, Modified, Properties, SpecialKind, Store, StoreError,
};
use millrace_wire::nfs4::{
    Bitmap, ChangeInfo, CreateOperation, CreateReply, NewObject, OperationOutcome, OperationStatus,
    RenameOperation, RenameReply,
};
use millrace_wire::xdr::Data;

use super::attributes::settable_of;
use super::compound::CompoundRun;
use super::position::{FilePosition, gather};
use super::seam::StateSeam;
use super::set::AttributeChanges;
use super::{names, status};
use crate::access::ExportedObject;
use crate::call::Bulk;
use crate::interrupted_call::{self, Made};
use crate::rpc::program::{ProgramCall, Unserved};
use crate::store_times::StoreClass;

/// Longest text of a symbolic link that is fetched from a chunk.
const TEXT_MAX: u32 = 4096;

/// Attributes of new objects that are no files: those have no size to set.
fn settable_at_once(properties: &Properties) -> Bitmap {
    settable_of(properties).without(&Bitmap::of(&[millrace_wire::nfs4::AttributeNumber::Size]))
}

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// CREATE.
    pub async fn create<B: Bulk>(
        &mut self,
        arguments: &CreateOperation<'_>,
        pool: &Pool,
        call: &mut ProgramCall<'_, B>,
    ) -> Result<OperationOutcome<CreateReply>, Unserved> {
        let mut fetched = Vec::new();
        let text = match &arguments.object {
            NewObject::Symlink(text) => match text.data {
                Data::Inline(bytes) => bytes,
                // A text that is too long is not fetched; it is refused below.
                Data::Apart(_) if text.length > TEXT_MAX => &[0; TEXT_MAX as usize + 1][..],
                Data::Apart(position) => {
                    let length = text.length as usize;
                    if length > 0 {
                        fetched = fetch(position, length, pool, call).await?;
                    }
                    &fetched
                }
            },
            _ => &[],
        };
        let made = match self.make(arguments, text).await {
            Ok(made) => made,
            Err(status) => return Ok(Err(status)),
        };
        Ok(self.created(made))
    }

    /// The object that was made becomes the current one.
    fn created(&mut self, made: MadeObject<'c, S>) -> OperationOutcome<CreateReply> {
        self.set_current(FilePosition::Object(made.object));
        Ok(CreateReply {
            directory: made.directory,
            attributes_set: made.set,
        })
    }

    async fn make(
        &self,
        arguments: &CreateOperation<'_>,
        text: &[u8],
    ) -> Result<MadeObject<'c, S>, OperationStatus> {
        let (name, minor_version) = (arguments.name, self.origin.minor_version);
        let kind = match &arguments.object {
            NewObject::Directory => Kind::Directory,
            NewObject::Symlink(_) => Kind::Symlink,
            NewObject::Block(device) => {
                Kind::Special(SpecialKind::Block(device.major, device.minor))
            }
            NewObject::Character(device) => {
                Kind::Special(SpecialKind::Character(device.major, device.minor))
            }
            NewObject::Socket => Kind::Special(SpecialKind::Socket),
            NewObject::Fifo => Kind::Special(SpecialKind::Fifo),
            NewObject::Regular | NewObject::AttributeDirectory | NewObject::NamedAttribute => {
                return Err(OperationStatus::BadType);
            }
        };
        let directory = self.directory_to_change(name).await?;
        let allowed = settable_at_once(&directory.export.store.properties());
        let given = &arguments.attributes;
        let numbers = self.owner_numbers(given).await?;
        let changes = AttributeChanges::read(given, &allowed, minor_version, &numbers)?;
        if kind == Kind::Symlink && text.is_empty() {
            return Err(OperationStatus::Invalid);
        }
        let set = changes.of_new(kind == Kind::Directory)?;
        let store = self.store(directory, StoreClass::Metadata);
        let (caller, handle) = (&directory.caller, directory.handle);
        let done: Modified<(Handle, Attributes)> = match kind {
            Kind::Symlink => store.symlink(caller, handle, name, text, &set).await,
            Kind::Special(kind) => store.make_node(caller, handle, name, kind, &set).await,
            _ => store.make_directory(caller, handle, name, &set).await,
        };
        let (made, consistency) = match (done.result, &self.again) {
            (Ok((made, _)), _) => (made, done.consistency),
            (Err(StoreError::Exists), Some(again)) => {
                let text = (kind == Kind::Symlink).then_some(text);
                let set = &set;
                let wanted = Made { kind, set, text };
                let found = interrupted_call::made(again, directory, name, &wanted);
                let found = Box::pin(found).await.ok_or(OperationStatus::Exists)?;
                (found.0, Consistency::default())
            }
            (Err(error), _) => return Err(status::status(error)),
        };
        Ok(MadeObject {
            object: self.with_list(directory.at(made), &changes).await?,
            directory: self.change_info(directory, &consistency).await,
            set: changes.mask,
        })
    }

    /// A new object, once it has the access control list that it is to have.
    async fn with_list(
        &self,
        object: ExportedObject<'c, S>,
        changes: &AttributeChanges,
    ) -> Result<ExportedObject<'c, S>, OperationStatus> {
        let set = Box::pin(self.apply_list(&object, changes)).await;
        set.map(|()| object).map_err(status::status)
    }

    /// The current directory, for a change of a name in it.
    pub async fn directory_to_change(
        &self,
        name: &[u8],
    ) -> Result<&ExportedObject<'c, S>, OperationStatus> {
        let directory = self.writable()?;
        names::check(name, directory.export.store.properties().name_max)?;
        Ok(directory)
    }

    /// The change attribute of a directory before and after an operation.
    pub async fn change_info(
        &self,
        directory: &ExportedObject<'c, S>,
        consistency: &Consistency,
    ) -> ChangeInfo {
        if let (Some(before), Some(after)) = (consistency.before, consistency.after) {
            return ChangeInfo {
                atomic: true,
                before: before.change,
                after: after.change,
            };
        }
        let now = directory.view().attributes(directory.handle).await;
        let after = consistency.after.or(now.ok()).map_or(0, |now| now.change);
        ChangeInfo {
            atomic: false,
            before: consistency.before.map_or(after, |before| before.change),
            after,
        }
    }

    /// Has delegations of an object recalled that a name is to be changed of.
    async fn begin_change(&self, object: &ExportedObject<'c, S>) -> Result<(), OperationStatus> {
        let session = self.session.as_ref();
        let session = session.ok_or(OperationStatus::OperationNotInSession)?;
        let file = Self::identity(object);
        self.seam.begin_change(&session.compound, &file).await
    }

    /// The same for the object that a name designates. One without object is left to the operation.
    async fn begin_change_of(
        &self,
        directory: &ExportedObject<'c, S>,
        name: &[u8],
    ) -> Result<(), OperationStatus> {
        if !self.seam.has_delegations() {
            return Ok(());
        }
        let store = self.store(directory, StoreClass::Metadata);
        let found = store.lookup(&directory.caller, directory.handle, name);
        match found.await {
            Ok((handle, _)) => self.begin_change(&directory.at(handle)).await,
            Err(_) => Ok(()),
        }
    }

    /// REMOVE.
    pub async fn remove(&self, name: &[u8]) -> OperationOutcome<ChangeInfo> {
        let directory = self.directory_to_change(name).await?;
        if self.mount_point(directory, name).await.is_some() {
            return Err(OperationStatus::FileOpen);
        }
        self.begin_change_of(directory, name).await?;
        if let Some(answer) = Box::pin(self.removed_before(directory, name)).await {
            return answer;
        }
        let store = self.store(directory, StoreClass::Metadata);
        let (caller, handle) = (&directory.caller, directory.handle);
        let mut done = store.remove(caller, handle, name).await;
        if done.result == Err(StoreError::IsDirectory) {
            done = store.remove_directory(caller, handle, name).await;
        }
        match done.result {
            Ok(()) => Ok(self.change_info(directory, &done.consistency).await),
            Err(error) => Err(of_names(error)),
        }
    }

    /// The saved and the current directory, for a change of both.
    fn both_to_change(
        &self,
    ) -> Result<(&ExportedObject<'c, S>, &ExportedObject<'c, S>), OperationStatus> {
        let (saved, _) = self.saved.as_ref().ok_or(OperationStatus::NoFileHandle)?;
        let current = self.position()?;
        if let (FilePosition::Folder(_), FilePosition::Folder(_)) = (saved, current) {
            return Err(OperationStatus::ReadOnly);
        }
        let saved = self.in_export(saved, OperationStatus::CrossDevice)?;
        let current = self.in_export(current, OperationStatus::CrossDevice)?;
        if saved.export.id != current.export.id {
            return Err(OperationStatus::CrossDevice);
        }
        if current.export.rules.read_only {
            return Err(OperationStatus::ReadOnly);
        }
        Ok((saved, current))
    }

    /// RENAME.
    pub async fn rename(&self, arguments: &RenameOperation<'_>) -> OperationOutcome<RenameReply> {
        let (from, to) = self.both_to_change()?;
        let longest = from.export.store.properties().name_max;
        names::check(arguments.from, longest)?;
        names::check(arguments.to, longest)?;
        for (directory, name) in [(from, arguments.from), (to, arguments.to)] {
            if self.mount_point(directory, name).await.is_some() {
                return Err(OperationStatus::FileOpen);
            }
            self.begin_change_of(directory, name).await?;
        }
        let names = ((from, arguments.from), (to, arguments.to));
        if let Some(answer) = Box::pin(self.renamed_before(names.0, names.1)).await {
            return answer;
        }
        let (old, new) = ((from.handle, arguments.from), (to.handle, arguments.to));
        let store = self.store(from, StoreClass::Metadata);
        let done = store.rename(&from.caller, old, new).await;
        match done.result {
            Ok(()) => Ok(RenameReply {
                from: self.change_info(from, &done.from).await,
                to: self.change_info(to, &done.to).await,
            }),
            Err(StoreError::NotEmpty) => Err(OperationStatus::Exists),
            // The handles, or the names: then the object in the way is of another kind.
            Err(error @ (StoreError::NotDirectory | StoreError::IsDirectory)) => {
                let kinds = [from, to].map(|directory| directory.handle);
                for handle in kinds {
                    let found = from.view().attributes(handle).await;
                    if found.is_ok_and(|found| found.kind != Kind::Directory) {
                        return Err(status::status(error));
                    }
                }
                Err(OperationStatus::Exists)
            }
            Err(error) => Err(of_names(error)),
        }
    }

    /// LINK.
    pub async fn link(&self, name: &[u8]) -> OperationOutcome<ChangeInfo> {
        let (object, directory) = self.both_to_change()?;
        names::check(name, directory.export.store.properties().name_max)?;
        let store = self.store(directory, StoreClass::Metadata);
        let found = store.attributes(object.handle).await;
        if found.map_err(status::status)?.kind == Kind::Directory {
            return Err(OperationStatus::IsDirectory);
        }
        self.begin_change(object).await?;
        let (caller, handle) = (&directory.caller, directory.handle);
        let done = store.link(caller, object.handle, handle, name).await;
        match done.result {
            Ok(()) => Ok(self.change_info(directory, &done.directory).await),
            Err(error) => {
                let before = self.linked_before(error, object, directory, name);
                Box::pin(before).await.ok_or_else(|| of_names(error))
            }
        }
    }
}

/// An object that CREATE has made.
struct MadeObject<'c, S> {
    object: ExportedObject<'c, S>,
    directory: ChangeInfo,
    set: Bitmap,
}

/// The status of a change of names. None of them answers `NFS4ERR_PERM`.
fn of_names(error: StoreError) -> OperationStatus {
    match error {
        StoreError::NotOwner => OperationStatus::AccessDenied,
        error => status::status(error),
    }
}

/// Fetches the text of a link from its chunk.
async fn fetch<B: Bulk>(
    position: u32,
    length: usize,
    pool: &Pool,
    call: &mut ProgramCall<'_, B>,
) -> Result<Vec<u8>, Unserved> {
    let Ok(buffer) = pool.obtain_another(length).await else {
        return Err(Unserved::Broken);
    };
    let sinks = [buffer.into_slice(0..length)];
    call.pull(position, &sinks).await?;
    let mut bytes = vec![0; length];
    gather(&sinks, &mut bytes);
    Ok(bytes)
}
