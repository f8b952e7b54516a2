//! Some entries of a directory, as read by a helper.

use std::cell::RefCell;
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

/// The most entries of a batch with attributes, each of which costs a few system calls.
pub(super) const DESCRIBED: usize = 256;

/// The same while other clients wait for a helper.
pub(super) const SLICE: usize = 16;

/// A batch without attributes ends with the kernel's buffer after at least this many entries.
const LISTED: usize = 512;

/// The size of the kernel's buffer for entries.
const BUFFER: usize = 32 << 10;

/// Batches whose memory a reactor keeps.
const SPARE: usize = 4;

thread_local! {
    static SPARE_MEMORY: RefCell<Vec<BatchMemory>> = const { RefCell::new(Vec::new()) };
}

/// The memory of a batch. It stays with the reactor that reads it: if a helper allocated it, the
/// reactor could free it only while no helper allocates, and one that does may not be running.
#[derive(Default)]
pub(super) struct BatchMemory {
    entries: Vec<ListingEntry>,
    names: Vec<u8>,
}

impl BatchMemory {
    /// Memory of a batch that this thread has read, or none yet.
    pub fn take() -> Self {
        SPARE_MEMORY.with_borrow_mut(|spare| spare.pop().unwrap_or_default())
    }
}

/// Some entries of a directory.
pub(super) struct Batch {
    memory: BatchMemory,
    /// Where to continue, if the directory does not end here.
    next: Option<u64>,
    /// The attributes of the directory, after its entries were read.
    pub directory: Attributes,
}

struct ListingEntry {
    cookie: u64,
    inode: u64,
    name: Range<usize>,
    found: Option<(Handle, Attributes)>,
}

impl Batch {
    /// Where to continue; `None` at the end of the directory.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    pub fn entries(&self) -> impl Iterator<Item = DirectoryEntry<'_>> {
        let BatchMemory { entries, names } = &self.memory;
        entries.iter().map(|entry| DirectoryEntry {
            cookie: entry.cookie,
            name: &names[entry.name.clone()],
            inode: entry.inode,
            handle: entry.found.map(|(handle, _)| handle),
            attributes: entry.found.map(|(_, attributes)| attributes),
        })
    }

    /// Keeps its memory for a later batch of this thread.
    pub fn recycle(self) {
        let mut memory = self.memory;
        memory.entries.clear();
        memory.names.clear();
        SPARE_MEMORY.with_borrow_mut(|spare| {
            if spare.len() < SPARE {
                spare.push(memory);
            }
        });
    }
}

/// Reads a batch of the entries after `cookie`. Runs on a helper.
///
/// # Errors
/// The caller may not read the directory, or it is removed; [`StoreError::BadCookie`] if the file
/// system does not know the position.
pub(super) fn read(
    client: ClientKey,
    volume: Volume,
    identity: Identity,
    place: &OpenObject,
    cookie: u64,
    attributes: bool,
    mut memory: BatchMemory,
) -> Result<Batch> {
    let context = JobContext { volume, identity };
    // An open directory may have been removed since.
    context.live(place)?;
    context.require_inside(place)?;
    let path = proc_path(place.path.as_fd());
    let (directory, searchable) = context
        .act(|| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = open(&*path, flags, Mode::empty())?;
            // A caller who may list a directory but not search it gets names, but no attributes.
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
    let BatchMemory { entries, names } = &mut memory;
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
        // The parent of the volume's root is the root, unlike in the kernel.
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
        memory,
        next,
        directory: context.live(place)?,
    })
}

/// The object of an entry, `None` if it was removed in the meantime or cannot be examined.
fn describe(
    context: &JobContext,
    place: &OpenObject,
    name: &CStr,
) -> Result<Option<(Handle, Attributes)>> {
    match context.find(place, name) {
        Ok(found) => Ok(Some((found.handle, found.attributes))),
        // A lack of descriptors is not a property of the entry.
        Err(StoreError::Delay) => Err(StoreError::Delay),
        Err(_) => Ok(None),
    }
}
