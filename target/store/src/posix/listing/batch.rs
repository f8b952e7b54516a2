//! Some entries of a directory, as a helper reads them.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, accessat, open, seek};
use rustix::io::Errno;

use crate::posix::descriptor::proc_path;
use crate::posix::errors::store_error;
use crate::posix::identity::Identity;
use crate::posix::namespace::{JobContext, OpenObject};
use crate::posix::volume::Volume;
use crate::{Attributes, ClientKey, DirectoryEntry, Handle, Result, StoreError};

/// Most entries of a batch with attributes, each of which costs a few calls of the kernel.
pub(super) const DESCRIBED: usize = 256;

/// The same where other clients wait for a helper.
pub(super) const SLICE: usize = 16;

/// From how many entries on a batch without attributes ends with what the kernel gave at once.
const LISTED: usize = 512;

/// Bytes that the kernel fills with entries at once.
const BUFFER: usize = 32 << 10;

/// Some entries of a directory.
pub(super) struct Batch {
    entries: Vec<ListingEntry>,
    names: Vec<u8>,
    /// Where to go on, if the directory does not end here.
    next: Option<u64>,
    /// The directory itself, after its entries were read.
    pub directory: Attributes,
}

struct ListingEntry {
    cookie: u64,
    inode: u64,
    name: Range<usize>,
    found: Option<(Handle, Attributes)>,
}

impl Batch {
    /// Where to go on; `None` at the end of the directory.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    pub fn entries(&self) -> impl Iterator<Item = DirectoryEntry<'_>> {
        self.entries.iter().map(|entry| DirectoryEntry {
            cookie: entry.cookie,
            name: &self.names[entry.name.clone()],
            inode: entry.inode,
            handle: entry.found.map(|(handle, _)| handle),
            attributes: entry.found.map(|(_, attributes)| attributes),
        })
    }
}

/// Reads a batch from the place after `cookie` on. Runs on a helper.
///
/// # Errors
/// The caller may not read the directory, or it is gone; [`StoreError::BadCookie`] where the file
/// system knows no such place.
pub(super) fn read(
    client: ClientKey,
    volume: Volume,
    identity: Identity,
    place: &OpenObject,
    cookie: u64,
    attributes: bool,
) -> Result<Batch> {
    let context = JobContext { volume, identity };
    // What was found open may have been removed since.
    context.live(place)?;
    context.require_inside(place)?;
    let path = proc_path(place.path.as_fd());
    let (directory, searchable) = context
        .act(|| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = open(&*path, flags, Mode::empty())?;
            // Who may list a directory but not search it learns names, and nothing of the objects.
            let searchable =
                attributes && accessat(CWD, &*path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
            Ok((directory, searchable))
        })
        .map_err(store_error)?;
    if cookie != 0 {
        let from = i64::try_from(cookie).map_err(|_| StoreError::BadCookie)?;
        match seek(&directory, SeekFrom::Start(from as u64)) {
            Ok(_) => {}
            Err(Errno::INVAL) => return Err(StoreError::BadCookie),
            Err(error) => return Err(store_error(error)),
        }
    }

    let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut raw = RawDir::new(&directory, &mut buffer);
    let (mut entries, mut names) = (Vec::new(), Vec::new());
    let mut next = None;
    while let Some(entry) = raw.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::NOENT) => return Err(StoreError::Stale),
            Err(Errno::INVAL) => return Err(StoreError::BadCookie),
            Err(error) => return Err(store_error(error)),
        };
        let (mut inode, cookie) = (entry.ino(), entry.next_entry_cookie());
        let name = entry.file_name();
        let mut found = None;
        // Above the root of the volume is the root, which the kernel does not know.
        if searchable || name == c".." {
            found = describe(&context, place, name)?;
            inode = found.map_or(inode, |(_, attributes)| attributes.inode);
        }
        let start = names.len();
        names.extend_from_slice(name.to_bytes());
        entries.push(ListingEntry {
            cookie,
            inode,
            name: start..names.len(),
            found: found.filter(|_| searchable),
        });
        let full = if searchable {
            let count = entries.len();
            let helpers = context.volume.helpers();
            count >= DESCRIBED || count.is_multiple_of(SLICE) && helpers.is_wanted_by_others(client)
        } else {
            entries.len() >= LISTED && raw.is_buffer_empty()
        };
        if full {
            next = Some(cookie);
            break;
        }
    }
    Ok(Batch {
        entries,
        names,
        next,
        directory: context.live(place)?,
    })
}

/// The object of an entry, `None` if it is gone meanwhile or cannot be looked at.
fn describe(
    context: &JobContext,
    place: &OpenObject,
    name: &CStr,
) -> Result<Option<(Handle, Attributes)>> {
    match context.find(place, name) {
        Ok(found) => Ok(Some((found.handle, found.attributes))),
        // A lack of descriptors is no property of the entry.
        Err(StoreError::Delay) => Err(StoreError::Delay),
        Err(_) => Ok(None),
    }
}
