//! Handles and names: PUTFH, PUTROOTFH, PUTPUBFH, SAVEFH, RESTOREFH, LOOKUP, LOOKUPP and READLINK
//! (RFC 8881 section 18), through all exports.

use millrace_store::{Caller, Handle, Kind, Store, StoreError};
use millrace_wire::nfs4::{OperationNumber, OperationStatus};
use millrace_wire::xdr::Decoder;

use super::compound::CompoundRun;
use super::export_tree::{FolderIndex, ROOT, pseudo_export};
use super::position::{FilePosition, done_at_once};
use super::reply::CompoundReply;
use super::seam::StateSeam;
use super::{names, status};
use crate::access::{AccessError, ExportedObject};
use crate::exports::{Export, ExportId};
use crate::store_times::StoreClass;

/// Longest name of a pseudo folder: that of a component of an export's path.
pub(super) const FOLDER_NAME_MAX: u32 = 255;

/// What an operation on handles comes to.
type Outcome = Result<(), OperationStatus>;

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// PUTROOTFH and PUTPUBFH.
    pub fn put_root(&mut self, behind: Decoder<'_>) -> Outcome {
        // The top is there for every client, whatever it may use.
        let root = self.enter(ROOT).unwrap_or(FilePosition::Folder(ROOT));
        self.put(root, behind)
    }

    /// PUTFH.
    pub fn put_handle(&mut self, handle: &[u8], behind: Decoder<'_>) -> Outcome {
        let found = self.access.find(handle);
        let error = match found.and_then(|found| self.access.visible(found)) {
            Ok(object) => return self.put(FilePosition::Object(object), behind),
            Err(error) => error,
        };
        // Pseudo folders have an export of their own, which is in no table.
        if error == AccessError::Stale
            && let Some(folder) = self.pseudo_folder(handle)
        {
            return self.put(FilePosition::Folder(folder), behind);
        }
        self.turned_away |= error == AccessError::NotAdmitted;
        Err(status::of_access(error))
    }

    fn pseudo_folder(&self, handle: &[u8]) -> Option<FolderIndex> {
        let (export, object) = self.access.served.key.open(handle).ok()?;
        let folder = self.tree.find(&object)?;
        let is_pseudo = ExportId(export) == pseudo_export();
        (is_pseudo && (folder == ROOT || self.sees(folder))).then_some(folder)
    }

    /// RESTOREFH. The engine has seen to it that there is a saved handle.
    pub fn restore(&mut self, behind: Decoder<'_>) -> Outcome {
        let (position, state) = self.saved.clone().ok_or(OperationStatus::NoFileHandle)?;
        self.put(position, behind)?;
        self.current_state = state;
        Ok(())
    }

    /// SAVEFH.
    pub fn save(&mut self) -> Outcome {
        let current = self.current.clone().ok_or(OperationStatus::NoFileHandle)?;
        self.saved = Some((current, self.current_state));
        Ok(())
    }

    #[inline]
    fn put(&mut self, position: FilePosition<'c, S>, behind: Decoder<'_>) -> Outcome {
        self.set_current(position);
        if let Some(FilePosition::Object(object)) = &self.current {
            self.export = self.export.or(Some(object.export));
            if !self.access.takes(object.export) && puts_to_use(behind) {
                self.turned_away = true;
                return Err(OperationStatus::WrongSecurity);
            }
        }
        Ok(())
    }

    /// Whether the client may use an export at a folder or below.
    pub fn sees(&self, folder: FolderIndex) -> bool {
        self.tree
            .is_visible(folder, self.access.exports, self.access.client)
    }

    /// The object that a client sees at a folder: the root of the export that begins there, if the
    /// client may use it, otherwise a pseudo folder.
    pub fn enter(&self, folder: FolderIndex) -> Result<FilePosition<'c, S>, OperationStatus> {
        if let Some(export) = self.export_at(folder) {
            let root = export.store.root();
            let object = self.access.visible((export, root));
            return object.map(FilePosition::Object).map_err(status::of_access);
        }
        if self.sees(folder) {
            return Ok(FilePosition::Folder(folder));
        }
        Err(OperationStatus::NoEntry)
    }

    /// The export that begins at a folder, if the client may use it.
    pub fn export_at(&self, folder: FolderIndex) -> Option<&'c Export<S>> {
        let export = self.access.exports.by_id(self.tree.export(folder)?)?;
        export.rules.admits(self.access.client).then_some(&**export)
    }

    /// GETFH.
    pub fn get_handle(&self, reply: &mut CompoundReply<'_>) -> OperationStatus {
        let handle = self.position().map(|position| self.handle(position));
        reply.push_with(OperationNumber::Getfh.number(), |out| match &handle {
            Ok(handle) => {
                out.u32(OperationStatus::Ok.number())?;
                out.opaque(handle.as_bytes())?;
                Ok(OperationStatus::Ok)
            }
            Err(status) => out.u32(status.number()).map(|()| *status),
        })
    }

    /// LOOKUP.
    pub async fn lookup(&mut self, name: &[u8]) -> Outcome {
        let found = self.find(name).await?;
        if let FilePosition::Object(object) = &found
            && !self.access.takes(object.export)
        {
            return Err(OperationStatus::WrongSecurity);
        }
        self.set_current(found);
        Ok(())
    }

    /// Looks up a name in the current directory.
    pub async fn find(&self, name: &[u8]) -> Result<FilePosition<'c, S>, OperationStatus> {
        let directory = match self.position()? {
            FilePosition::Folder(folder) => {
                names::check(name, FOLDER_NAME_MAX)?;
                let child = self.tree.child(*folder, name);
                return self.enter(child.ok_or(OperationStatus::NoEntry)?);
            }
            FilePosition::Object(directory) => directory,
        };
        names::check(name, directory.export.store.properties().name_max)?;
        if let Some(folder) = self.mount_point(directory, name).await
            && let Ok(found) = self.enter(folder)
        {
            return Ok(found);
        }
        if !self.access.takes(directory.export) {
            return Err(OperationStatus::WrongSecurity);
        }
        let (caller, handle) = (&directory.caller, directory.handle);
        if let Some(store) = self.immediate(directory, StoreClass::Metadata) {
            let (handle, _) = done_at_once(store.lookup(caller, handle, name)).await;
            return Ok(FilePosition::Object(directory.at(handle)));
        }
        let store = self.store(directory, StoreClass::Metadata);
        let found = store.lookup(caller, handle, name).await;
        match found {
            Ok((handle, _)) => Ok(FilePosition::Object(directory.at(handle))),
            Err(StoreError::NotDirectory) => Err(self.no_directory(directory).await),
            Err(StoreError::NotFound) => {
                // A folder on the way to an export within, which the store does not have.
                let folder = self.folder_without_object(directory, name);
                let folder = folder.filter(|folder| self.sees(*folder));
                let folder = folder.ok_or(OperationStatus::NoEntry)?;
                Ok(FilePosition::Folder(folder))
            }
            Err(error) => Err(status::status(error)),
        }
    }

    /// Why an object is no directory.
    pub async fn no_directory(&self, object: &ExportedObject<'c, S>) -> OperationStatus {
        match object.view().attributes(object.handle).await {
            Ok(attributes) => status::no_directory(attributes.kind),
            Err(error) => status::status(error),
        }
    }

    /// The folder of the tree that is right below the root of an export.
    fn folder_without_object(
        &self,
        directory: &ExportedObject<'c, S>,
        name: &[u8],
    ) -> Option<FolderIndex> {
        let root = directory.export.store.root();
        let folder = self.tree.of_export(directory.export.id)?;
        (directory.handle == root).then(|| self.tree.child(folder, name))?
    }

    /// The folder at which another export begins under a name in a directory of an export.
    pub async fn mount_point(
        &self,
        directory: &ExportedObject<'c, S>,
        name: &[u8],
    ) -> Option<FolderIndex> {
        let folder = self.tree.of_export(directory.export.id)?;
        if self.tree.children(folder).is_empty() {
            return None;
        }
        Box::pin(self.mount_point_within(folder, directory, name)).await
    }

    async fn mount_point_within(
        &self,
        folder: FolderIndex,
        directory: &ExportedObject<'c, S>,
        name: &[u8],
    ) -> Option<FolderIndex> {
        for below in self.tree.below(folder) {
            let is_mount = self.tree.export(below).is_some() && self.tree.name(below) == name;
            if is_mount && self.is_at(folder, directory, below).await {
                return Some(below);
            }
        }
        None
    }

    /// Whether `directory`, of the export that begins at `outer`, is the parent directory of the
    /// folder `below`, with no other export between them.
    pub async fn is_at(
        &self,
        outer: FolderIndex,
        directory: &ExportedObject<'c, S>,
        below: FolderIndex,
    ) -> bool {
        let nearest = self.tree.outer(below);
        if nearest.is_none_or(|(_, folder)| folder != outer) {
            return false;
        }
        let path = self.tree.path(outer, self.tree.parent(below));
        self.walk(directory.export, &path).await == Some(directory.handle)
    }

    /// The object at a path of an export.
    async fn walk(&self, export: &Export<S>, path: &[&[u8]]) -> Option<Handle> {
        let mut handle = export.store.root();
        for name in path {
            let found = export.store.lookup(&Caller::SUPERUSER, handle, name).await;
            (handle, _) = found.ok()?;
        }
        Some(handle)
    }

    /// LOOKUPP.
    pub async fn lookup_parent(&mut self) -> Outcome {
        let parent = self.parent().await?;
        if let FilePosition::Object(object) = &parent
            && !self.access.takes(object.export)
        {
            return Err(OperationStatus::WrongSecurity);
        }
        self.set_current(parent);
        Ok(())
    }

    /// The parent of the current directory.
    pub async fn parent(&self) -> Result<FilePosition<'c, S>, OperationStatus> {
        let directory = match self.position()? {
            FilePosition::Folder(ROOT) => return Err(OperationStatus::NoEntry),
            FilePosition::Folder(folder) => {
                return Ok(Box::pin(self.covered(self.tree.parent(*folder))).await);
            }
            FilePosition::Object(directory) => directory,
        };
        if directory.handle == directory.export.store.root() {
            let folder = self.tree.of_export(directory.export.id);
            return match folder.ok_or(OperationStatus::Stale)? {
                ROOT => Err(OperationStatus::NoEntry),
                folder => Ok(Box::pin(self.covered(self.tree.parent(folder))).await),
            };
        }
        if !self.access.takes(directory.export) {
            return Err(OperationStatus::WrongSecurity);
        }
        let store = self.store(directory, StoreClass::Metadata);
        let found = store
            .lookup(&directory.caller, directory.handle, b"..")
            .await;
        match found {
            Ok((handle, _)) => Ok(FilePosition::Object(directory.at(handle))),
            Err(StoreError::NotDirectory) => Err(self.no_directory(directory).await),
            Err(error) => Err(status::status(error)),
        }
    }

    /// The object at a folder that has others below it: the root of an export, a directory of the
    /// export around it, or a pseudo folder.
    async fn covered(&self, folder: FolderIndex) -> FilePosition<'c, S> {
        if self.export_at(folder).is_none()
            && let Some(object) = self.object_below(folder).await
        {
            return FilePosition::Object(object);
        }
        self.enter(folder).unwrap_or(FilePosition::Folder(folder))
    }

    /// The object that the export around a folder has at its path.
    pub async fn object_below(&self, folder: FolderIndex) -> Option<ExportedObject<'c, S>> {
        let (_, outer) = self.tree.outer(folder)?;
        let export = self.export_at(outer)?;
        let handle = self.walk(export, &self.tree.path(outer, folder)).await?;
        self.access.visible((export, handle)).ok()
    }

    /// READLINK: the text is in the reply's slices.
    pub async fn read_link(&self, reply: &mut CompoundReply<'_>) -> OperationStatus {
        let number = OperationNumber::Readlink.number();
        match self.link_text().await {
            Ok(text) => {
                if text.len() > reply.data_room(4 + 8) {
                    let status = reply.too_big(text.len() + 12);
                    return reply.refuse(number, status);
                }
                if reply.is_data_copied() {
                    return reply.push_with(number, |out| {
                        out.u32(OperationStatus::Ok.number())?;
                        out.opaque(&text).map(|()| OperationStatus::Ok)
                    });
                }
                if !text.is_empty() {
                    let obtained = reply.inner().pool().obtain_another(text.len()).await;
                    let Ok(mut buffer) = obtained else {
                        return reply.refuse(number, OperationStatus::Delay);
                    };
                    buffer[..text.len()].copy_from_slice(&text);
                    reply.inner().add_slice(buffer.into_slice(0..text.len()));
                }
                reply.push_data(number, text.len(), |_| Ok(()))
            }
            Err(status) => reply.refuse(number, status),
        }
    }

    async fn link_text(&self) -> Result<Vec<u8>, OperationStatus> {
        let link = self.object(OperationStatus::WrongType)?;
        let mut text = Vec::new();
        let store = self.store(link, StoreClass::Metadata);
        let read = store.read_link(&link.caller, link.handle, &mut text).await;
        match read {
            Ok(_) => Ok(text),
            Err(error) => match link.view().attributes(link.handle).await {
                Ok(found) if found.kind != Kind::Symlink => Err(OperationStatus::WrongType),
                _ => Err(status::status(error)),
            },
        }
    }
}

/// Whether the operations after one that sets the current handle use that handle under the flavor
/// of the call (RFC 8881 section 2.6.3.1.1). LOOKUP, LOOKUPP and OPEN check the flavor of their
/// results themselves.
fn puts_to_use(mut behind: Decoder<'_>) -> bool {
    loop {
        let number = behind.u32().ok().and_then(OperationNumber::from_number);
        return match number {
            Some(OperationNumber::Savefh) => continue,
            None
            | Some(
                OperationNumber::Putfh
                | OperationNumber::Putrootfh
                | OperationNumber::Putpubfh
                | OperationNumber::Restorefh
                | OperationNumber::Lookup
                | OperationNumber::Lookupp
                | OperationNumber::Open
                | OperationNumber::Secinfo
                | OperationNumber::SecinfoNoName,
            ) => false,
            Some(_) => true,
        };
    }
}
