//! READDIR (RFC 8881 section 18.23).

use std::rc::Rc;

use millrace_store::{CookieVerifier, DirectoryEntry, Store, StoreError};
use millrace_wire::nfs3::DirectoryWriter;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber, Bitmap, NameToList, OperationNumber, OperationStatus,
    ReaddirOperation, Verifier, write_readdir,
};

use super::attributes::{OF_SPACE, ObjectAttributes, check_wanted};
use super::compound::CompoundRun;
use super::export_tree::FolderIndex;
use super::position::FilePosition;
use super::reply::CompoundReply;
use super::seam::StateSeam;
use super::status;
use crate::access::ExportedObject;
use crate::store_times::StoreClass;

/// Most bytes of a listing: it fits with its headers into a buffer of the middle class. A listing
/// may always be shorter than requested.
const LISTING_MAX: u32 = (64 << 10) - 2048;

/// How often a directory is listed at most, as names of owners were missing.
const TRIES: usize = 4;

/// Cookies of pseudo folders begin behind those that clients take for `.` and `..`.
const FIRST_COOKIE: u64 = 3;

/// Attributes of an entry, or why there are none.
type EntryAttributes = Result<ObjectAttributes, OperationStatus>;

/// A name in a directory under which another export begins, with the attributes of its root.
struct MountPoint<'t> {
    name: &'t [u8],
    attributes: EntryAttributes,
}

/// How a listing ended: the verifier, whether the directory ends, and the bytes of the result.
type Listed = Result<(Verifier, usize), OperationStatus>;

impl<'c, S: Store, H: StateSeam> CompoundRun<'c, S, H> {
    /// READDIR.
    pub async fn read_directory(
        &self,
        arguments: &ReaddirOperation,
        reply: &mut CompoundReply<'_>,
    ) -> OperationStatus {
        let number = OperationNumber::Readdir.number();
        let bounded = ReaddirOperation {
            maxcount: arguments.maxcount.min(LISTING_MAX),
            ..*arguments
        };
        reply.reserve(bounded.maxcount as usize + 16).await;
        let mut tries = 0;
        let listed = loop {
            let listed = match self.position() {
                Ok(_) if check_wanted(&arguments.attributes).is_err() => {
                    Err(OperationStatus::Invalid)
                }
                Ok(FilePosition::Folder(folder)) => {
                    self.list_folder(*folder, &bounded, reply).await
                }
                Ok(position) => match self.in_export(position, OperationStatus::NotDirectory) {
                    Ok(directory) => self.list(directory, &bounded, reply).await,
                    Err(status) => Err(status),
                },
                Err(status) => Err(status),
            };
            let Some(names) = self.told_names(&arguments.attributes) else {
                break listed;
            };
            // Names that were missing are looked up for another listing.
            tries += 1;
            match Box::pin(names.look_up()).await {
                Ok(true) if listed.is_ok() && tries < TRIES => {}
                Ok(_) => break listed,
                Err(status) => break listed.and(Err(status)),
            }
        };
        match listed {
            Ok((verifier, length)) => reply.push_listing(verifier, length),
            Err(status) => reply.refuse(number, status),
        }
    }

    async fn list(
        &self,
        directory: &ExportedObject<'c, S>,
        arguments: &ReaddirOperation,
        reply: &mut CompoundReply<'_>,
    ) -> Listed {
        if arguments.cookie == 1 || arguments.cookie == 2 {
            return Err(OperationStatus::BadCookie);
        }
        let wanted = arguments.attributes;
        let mounts = Box::pin(self.mount_points(directory, &wanted)).await;
        let store = self.store(directory, StoreClass::Metadata);
        let statistics = if wanted.intersection(&OF_SPACE).is_empty() {
            None
        } else {
            let now = store.statistics(directory.handle).await;
            Some(Rc::new(now.map_err(status::status)?))
        };
        let too_big = reply.too_big(arguments.maxcount as usize);
        let room = reply.room();
        let (mut out, start) = reply.begin_listing(room);
        let mut writer = write_readdir(&mut out, arguments, [0; 8])
            .map_err(|_| too_small(arguments, room, too_big))?;
        let (mut is_full, mut failed) = (false, None);
        let describe = |entry: &DirectoryEntry<'_>| -> EntryAttributes {
            let stored = entry.attributes.ok_or(OperationStatus::Io)?;
            let mut found = self.describe(directory, stored, statistics.clone());
            if let Some(names) = self.told_names(&wanted) {
                names.fill(&mut found, &wanted);
            }
            if wanted.has(AttributeNumber::Handle) {
                let handle = entry.handle.ok_or(OperationStatus::Io)?;
                found.handle = Some(directory.key.seal(directory.export.id.0, handle));
            }
            Ok(found)
        };
        let mut sink = |entry: DirectoryEntry<'_>| {
            if entry.name == b"." || entry.name == b".." {
                return true;
            }
            let mount = mounts.iter().find(|mount| mount.name == entry.name);
            let own;
            let attributes = match mount {
                Some(mount) => &mount.attributes,
                None => {
                    own = describe(&entry);
                    &own
                }
            };
            match push(&mut writer, entry.cookie, entry.name, wanted, attributes) {
                Ok(true) => return true,
                Ok(false) => is_full = true,
                Err(status) => failed = Some(status),
            }
            false
        };
        let outcome = store
            .read_directory(
                &directory.caller,
                directory.handle,
                arguments.cookie,
                CookieVerifier(arguments.verifier),
                !wanted.is_empty(),
                &mut sink,
            )
            .await;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(StoreError::BadCookie) => {
                return Err(self.bad_cookie(directory, arguments.verifier).await);
            }
            Err(error) => return Err(status::status(error)),
        };
        if let Some(status) = failed.filter(|_| writer.count() == 0) {
            return Err(status);
        }
        if is_full && writer.count() == 0 {
            return Err(too_small(arguments, room, too_big));
        }
        let ends = outcome.end && !is_full && failed.is_none();
        let finished = writer.finish(ends);
        finished.map_err(|_| too_small(arguments, room, too_big))?;
        Ok((outcome.verifier.0, out.position() - start))
    }

    /// Why a cookie is refused: the directory has another verifier by now, or never gave it.
    async fn bad_cookie(
        &self,
        directory: &ExportedObject<'c, S>,
        verifier: Verifier,
    ) -> OperationStatus {
        let (caller, handle) = (&directory.caller, directory.handle);
        let mut none = |_: DirectoryEntry<'_>| false;
        let start = CookieVerifier::default();
        let view = directory.view();
        let now = view.read_directory(caller, handle, 0, start, false, &mut none);
        match now.await {
            Ok(now) if now.verifier.0 == verifier => OperationStatus::BadCookie,
            Ok(_) => OperationStatus::NotSame,
            Err(error) => status::status(error),
        }
    }

    /// The names in a directory of an export under which others begin that the client may use.
    async fn mount_points(
        &self,
        directory: &ExportedObject<'c, S>,
        wanted: &Bitmap,
    ) -> Vec<MountPoint<'c>> {
        let mut found = Vec::new();
        let Some(outer) = self.tree.of_export(directory.export.id) else {
            return found;
        };
        for below in self.tree.below(outer) {
            if self.export_at(below).is_some() && self.is_at(outer, directory, below).await {
                found.push(MountPoint {
                    name: self.tree.name(below),
                    attributes: self.entered_attributes(below, wanted).await,
                });
            }
        }
        found
    }

    /// Attributes of the object that a client sees at a folder.
    async fn entered_attributes(&self, folder: FolderIndex, wanted: &Bitmap) -> EntryAttributes {
        let position = self.enter(folder)?;
        if let FilePosition::Object(_) = &position {
            self.in_export(&position, OperationStatus::ServerFault)?;
        }
        let mut found = self.attributes(&position, wanted).await?;
        self.name_owners(&mut found, wanted).await?;
        Ok(found)
    }

    async fn list_folder(
        &self,
        folder: FolderIndex,
        arguments: &ReaddirOperation,
        reply: &mut CompoundReply<'_>,
    ) -> Listed {
        let verifier = self.tree.made().as_nanoseconds().to_be_bytes();
        if arguments.cookie != 0 && arguments.verifier != verifier {
            return Err(OperationStatus::NotSame);
        }
        let children = self.tree.children(folder);
        let first = match arguments.cookie {
            0 => 0,
            cookie => cookie
                .checked_sub(FIRST_COOKIE - 1)
                .and_then(|at| usize::try_from(at).ok())
                .filter(|at| *at > 0 && *at <= children.len())
                .ok_or(OperationStatus::BadCookie)?,
        };
        let too_big = reply.too_big(arguments.maxcount as usize);
        let room = reply.room();
        let (mut out, start) = reply.begin_listing(room);
        let mut writer = write_readdir(&mut out, arguments, verifier)
            .map_err(|_| too_small(arguments, room, too_big))?;
        let mut is_full = false;
        for (at, child) in children.iter().enumerate().skip(first) {
            if !self.sees(*child) {
                continue;
            }
            let cookie = FIRST_COOKIE + at as u64;
            let attributes = Box::pin(self.entered_attributes(*child, &arguments.attributes)).await;
            let name = self.tree.name(*child);
            if !push(&mut writer, cookie, name, arguments.attributes, &attributes)? {
                is_full = true;
                break;
            }
        }
        if is_full && writer.count() == 0 {
            return Err(too_small(arguments, room, too_big));
        }
        let finished = writer.finish(!is_full);
        finished.map_err(|_| too_small(arguments, room, too_big))?;
        Ok((verifier, out.position() - start))
    }
}

/// The status of a listing without room for an entry. It depends on whether the client's bound or
/// that of the reply was exceeded.
fn too_small(
    arguments: &ReaddirOperation,
    room: usize,
    too_big: OperationStatus,
) -> OperationStatus {
    if room < arguments.maxcount as usize + 8 {
        too_big
    } else {
        OperationStatus::TooSmall
    }
}

/// Appends an entry, if it fits. If its attributes are not available, it carries the error if the
/// client asks for that; otherwise the whole listing fails.
fn push(
    writer: &mut DirectoryWriter<'_, '_>,
    cookie: u64,
    name: &[u8],
    wanted: Bitmap,
    attributes: &EntryAttributes,
) -> Result<bool, OperationStatus> {
    match attributes {
        Ok(attributes) => Ok(writer.push(&NameToList {
            cookie,
            name,
            wanted,
            attributes,
        })),
        Err(_) if wanted.is_empty() => Ok(writer.push(&NameToList {
            cookie,
            name,
            wanted,
            attributes: &[][..],
        })),
        Err(status) if wanted.has(AttributeNumber::ReadError) => Ok(writer.push(&NameToList {
            cookie,
            name,
            wanted: Bitmap::of(&[AttributeNumber::ReadError]),
            attributes: &[Attribute::ReadError(*status)][..],
        })),
        Err(status) => Err(*status),
    }
}
