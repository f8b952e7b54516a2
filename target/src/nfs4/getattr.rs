//! GETATTR, VERIFY, NVERIFY and ACCESS (RFC 8881 sections 18.1, 18.7, 18.15 and 18.31).

use std::rc::Rc;

use millrace_store::{
    AccessMask, Attributes, Caller, Kind, Properties, SetAttributes, SetTime, Statistics, Store,
    StoreError,
};
use millrace_wire::nfs4::{
    AccessReply, AttributeNumber, Attributes as WireAttributes, Bitmap, FileSystemId,
    OperationOutcome, OperationStatus, access_bits, encode_attributes,
};
use millrace_wire::xdr::{Encode, Encoder};

use super::attributes::{
    FileSystemAttributes, NOT_STORED, OF_CONTENTS, OF_SPACE, ObjectAttributes, check_compared,
    check_wanted, readable_of,
};
use super::compound::CompoundRun;
use super::export_tree::{FolderIndex, ROOT, pseudo_export};
use super::lookup::FOLDER_NAME_MAX;
use super::position::{FilePosition, done_at_once};
use super::reply::CompoundReply;
use super::seam::StateSeam;
use super::{acl, status};
use crate::access::ExportedObject;
use crate::exports::Export;
use crate::store_times::StoreClass;

/// Permission bits of pseudo folders.
const FOLDER_MODE: u32 = 0o555;

/// Properties of the file system of pseudo folders.
const FOLDER_PROPERTIES: Properties = Properties {
    name_max: FOLDER_NAME_MAX,
    links_max: u32::MAX,
    size_max: i64::MAX as u64,
    file_system: 0,
    clone_block: None,
    xattrs: false,
    access_lists: false,
    counts_changes: false,
    changes_elsewhere: false,
    shared_by_servers: false,
    leases: false,
};

/// Rights that this server can tell about.
const RIGHTS: u32 = access_bits::READ
    | access_bits::LOOKUP
    | access_bits::MODIFY
    | access_bits::EXTEND
    | access_bits::DELETE
    | access_bits::EXECUTE;

/// Those that minor version 2 has beside (RFC 8276 section 8.5).
const XATTR_RIGHTS: u32 =
    access_bits::XATTR_READ | access_bits::XATTR_WRITE | access_bits::XATTR_LIST;

/// Rights on extended attributes, and those on the object that they come with.
const IMPLIED: [(u32, u32); 3] = [
    (access_bits::XATTR_READ, access_bits::READ),
    (access_bits::XATTR_WRITE, access_bits::MODIFY),
    (access_bits::XATTR_LIST, access_bits::READ),
];

/// Bytes of all attributes that are served, at most.
const ALL_BYTES: usize = 1024;

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// GETATTR.
    pub async fn get_attributes(
        &self,
        wanted: &Bitmap,
        number: u32,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        self.get_attributes_of(None, wanted, number, reply).await
    }

    /// GETATTR of an object that the operation before has used. `known` is what the store has told
    /// of it then, so that it need not be asked again.
    #[inline] // Its future is large to move.
    pub async fn get_attributes_of(
        &self,
        known: Option<&Attributes>,
        wanted: &Bitmap,
        number: u32,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        if let Err(status) = check_wanted(wanted) {
            return reply.refuse(number, status);
        }
        let position = match self.position() {
            Ok(position) => position,
            Err(status) => return reply.refuse(number, status),
        };
        let is_asked = !wanted.intersection(&OF_CONTENTS).is_empty();
        let changed = match is_asked && self.seam.has_delegations() {
            true => Box::pin(self.changed_size(position)).await,
            false => Ok(None),
        };
        let size = match changed {
            Ok(size) => size,
            Err(status) => return reply.refuse(number, status),
        };
        let is_known = [&OF_SPACE, &NOT_STORED]
            .iter()
            .all(|others| wanted.intersection(others).is_empty());
        let mut found = match (position, known.filter(|_| is_known)) {
            (FilePosition::Object(object), Some(stored)) => self.describe(object, *stored, None),
            _ => match self.attributes(position, wanted).await {
                Ok(found) => found,
                Err(status) => return reply.refuse(number, status),
            },
        };
        if let Some(size) = size {
            found.stored.size = size;
        }
        if self.told_names(wanted).is_some()
            && let Err(status) = Box::pin(self.name_owners(&mut found, wanted)).await
        {
            return reply.refuse(number, status);
        }
        let more = found.list_and_names();
        if more > 0 {
            reply.reserve(ALL_BYTES + more).await;
        }
        reply.push_with(number, |out| {
            OperationStatus::Ok.encode(out)?;
            encode_attributes(out, *wanted, &found)?;
            Ok(OperationStatus::Ok)
        })
    }

    /// The size of a file that another client changes under a delegation. Its change number and its
    /// times are advanced, as the store does not know of the change yet (RFC 8881 section 10.4.3).
    async fn changed_size(
        &self,
        position: &FilePosition<'c, S>,
    ) -> Result<Option<u64>, OperationStatus> {
        let (FilePosition::Object(object), Some(session)) = (position, &self.session) else {
            return Ok(None);
        };
        let file = Self::identity(object);
        let size = self.seam.changed_size(&session.compound, &file).await?;
        if size.is_some() {
            let changes = SetAttributes {
                modified: SetTime::Now,
                ..SetAttributes::default()
            };
            let (store, caller) = (self.store(object, StoreClass::Metadata), Caller::SUPERUSER);
            let done = store.set_attributes(&caller, object.handle, &changes, None);
            done.await.result.map_err(status::status)?;
        }
        Ok(size)
    }

    /// Attributes of the object at a position, with the requested ones of its file system. Users and
    /// groups are numbers.
    pub async fn attributes(
        &self,
        position: &FilePosition<'c, S>,
        wanted: &Bitmap,
    ) -> Result<ObjectAttributes, OperationStatus> {
        let object = match position {
            FilePosition::Folder(folder) => return Ok(self.folder_attributes(*folder)),
            FilePosition::Object(object) => object,
        };
        if let Some(store) = self.immediate(object, StoreClass::Metadata) {
            // What the root of an export is mounted on is another object.
            let is_told = object.handle != object.export.store.root()
                || !wanted.has(AttributeNumber::MountedOnFileId);
            let stored = is_told.then(|| store.attributes(object.handle));
            let stored = done_at_once(stored.flatten()).await;
            return Ok(self.describe(object, stored, None));
        }
        let store = self.store(object, StoreClass::Metadata);
        let (stored, statistics) = if wanted.intersection(&OF_SPACE).is_empty() {
            let stored = store.attributes(object.handle).await;
            (stored.map_err(status::status)?, None)
        } else {
            let now = Box::pin(store.statistics(object.handle)).await;
            let now = now.map_err(status::status)?;
            (now.attributes, Some(Rc::new(now)))
        };
        let mut found = self.describe(object, stored, statistics);
        if wanted.has(AttributeNumber::Acl) && object.export.store.properties().access_lists {
            found.acl = Box::pin(self.access_list(object)).await?;
        }
        if wanted.has(AttributeNumber::Handle) {
            found.handle = Some(self.handle(position));
        }
        if wanted.has(AttributeNumber::MountedOnFileId)
            && object.handle == object.export.store.root()
        {
            found.mounted_on = Box::pin(self.mounted_on(object.export, stored.inode)).await;
        }
        Ok(found)
    }

    /// The access control list of an object, encoded. Symbolic links have none.
    pub async fn access_list(
        &self,
        object: &ExportedObject<'c, S>,
    ) -> Result<Option<Vec<u8>>, OperationStatus> {
        let store = self.store(object, StoreClass::Metadata);
        let kind = store
            .attributes(object.handle)
            .await
            .map_err(status::status)?
            .kind;
        match store.access_lists(object.handle).await {
            Ok(lists) => Ok(Some(acl::encode(&lists, kind == Kind::Directory))),
            Err(StoreError::NotSupported) => Ok(None),
            Err(error) => Err(status::status(error)),
        }
    }

    /// Attributes of an object of an export, of which the store has told these.
    pub fn describe(
        &self,
        object: &ExportedObject<'c, S>,
        stored: Attributes,
        statistics: Option<Rc<Statistics>>,
    ) -> ObjectAttributes {
        let file_system = FileSystemId {
            major: object.export.id.0,
            minor: stored.file_system,
        };
        let properties = object.export.store.properties();
        ObjectAttributes::new(self.common(file_system, properties, statistics), stored)
    }

    fn common(
        &self,
        file_system: FileSystemId,
        properties: Properties,
        statistics: Option<Rc<Statistics>>,
    ) -> FileSystemAttributes {
        FileSystemAttributes {
            minor_version: self.origin.minor_version,
            file_system,
            properties,
            statistics,
            lease: self.seam.lease_seconds(),
            read_max: self.read_max,
            write_max: self.write_max,
        }
    }

    /// Properties of the file system of the current object.
    pub fn current_properties(&self) -> Properties {
        match &self.current {
            Some(FilePosition::Object(object)) => object.export.store.properties(),
            _ => FOLDER_PROPERTIES,
        }
    }

    /// Attributes of a pseudo folder.
    pub fn folder_attributes(&self, folder: FolderIndex) -> ObjectAttributes {
        let made = self.tree.made();
        let children = self.tree.children(folder).iter();
        let seen = children.filter(|child| self.sees(**child)).count();
        let stored = Attributes {
            kind: Kind::Directory,
            mode: FOLDER_MODE,
            links: u32::try_from(seen + 2).unwrap_or(u32::MAX),
            uid: 0,
            gid: 0,
            size: 4096,
            used: 0,
            inode: self.tree.id(folder),
            file_system: 0,
            accessed: made,
            modified: made,
            changed: made,
            change: made.as_nanoseconds(),
        };
        let file_system = FileSystemId {
            major: pseudo_export().0,
            minor: 0,
        };
        let properties = FOLDER_PROPERTIES;
        let mut found = ObjectAttributes::new(self.common(file_system, properties, None), stored);
        found.handle = Some(self.handle(&FilePosition::Folder(folder)));
        found
    }

    /// The number of the folder that an export's root covers; its own for the one at the top.
    pub async fn mounted_on(&self, export: &Export<S>, own: u64) -> u64 {
        let Some(folder) = self.tree.of_export(export.id).filter(|at| *at != ROOT) else {
            return own;
        };
        let covered = match self.object_below(folder).await {
            Some(covered) => covered.view().attributes(covered.handle).await.ok(),
            None => None,
        };
        covered.map_or(self.tree.id(folder), |covered| covered.inode)
    }

    /// VERIFY, and NVERIFY where the attributes shall differ.
    pub async fn compare(
        &self,
        given: &WireAttributes<'_>,
        shall_differ: bool,
    ) -> Result<(), OperationStatus> {
        check_wanted(&given.mask)?;
        let mut found = self.attributes(self.position()?, &given.mask).await?;
        let readable = readable_of(self.origin.minor_version, &found.common.properties);
        check_compared(&given.mask, &readable)?;
        self.unify_owners(&mut found, given).await?;
        let mut bytes = vec![0; ALL_BYTES + found.list_and_names()];
        let mut out = Encoder::new(&mut bytes);
        let mask = given.mask.intersection(&readable);
        let encoded = encode_attributes(&mut out, mask, &found);
        encoded.map_err(|_| OperationStatus::ServerFault)?;
        let mut own = millrace_wire::xdr::Decoder::new(out.written());
        let own = <WireAttributes<'_> as millrace_wire::xdr::Decode<'_>>::decode(&mut own);
        let is_same = own.is_ok_and(|own| own.values == given.values);
        match (is_same, shall_differ) {
            (true, true) => Err(OperationStatus::Same),
            (false, false) => Err(OperationStatus::NotSame),
            _ => Ok(()),
        }
    }

    /// ACCESS.
    pub async fn access(&self, asked: u32) -> OperationOutcome<AccessReply> {
        let known = match self.origin.minor_version {
            2.. => RIGHTS | XATTR_RIGHTS,
            _ => RIGHTS,
        };
        let mut supported = asked & known;
        let object = match self.position()? {
            FilePosition::Folder(_) => {
                return Ok(AccessReply {
                    supported: supported & RIGHTS,
                    access: supported & (access_bits::READ | access_bits::LOOKUP),
                });
            }
            position @ FilePosition::Object(_) => {
                self.in_export(position, OperationStatus::Invalid)?
            }
        };
        if !object.export.store.properties().xattrs {
            supported &= !XATTR_RIGHTS;
        }
        let mut wanted = supported;
        if object.export.rules.read_only {
            wanted &= !(access_bits::MODIFY
                | access_bits::EXTEND
                | access_bits::DELETE
                | access_bits::XATTR_WRITE);
        }
        // The numbers of rights are those of version 3. Those on extended attributes follow others.
        let implied = IMPLIED.iter().filter(|(right, _)| wanted & right != 0);
        let asked = implied.fold(wanted & RIGHTS, |asked, (_, by)| asked | by);
        let (caller, handle, asked) = (&object.caller, object.handle, AccessMask(asked));
        let granted = match self.immediate(object, StoreClass::Metadata) {
            Some(store) => Ok(done_at_once(store.access(caller, handle, asked)).await),
            None => {
                let store = self.store(object, StoreClass::Metadata);
                store.access(caller, handle, asked).await
            }
        };
        match granted {
            Ok((AccessMask(granted), _)) => {
                let implied = IMPLIED.iter().filter(|(_, by)| granted & by != 0);
                let all = implied.fold(granted, |all, (right, _)| all | right);
                Ok(AccessReply {
                    supported,
                    access: all & wanted,
                })
            }
            Err(error) => Err(status::status(error)),
        }
    }
}
