//! Objects of a tree, and the table that finds them by handle.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use arc_swap::ArcSwapOption;

use super::access_lists::KeptLists;
use super::ancestry::Ancestry;
use super::attributes::{AttributeCell, Stored};
use super::directory::Directory;
use super::lock;
use super::map::ExtentMap;
use super::symlink::LinkText;
use super::xattrs::XattrSet;
use crate::{Attributes, Consistency, Handle, Kind, Result, SpecialKind, StoreError};

/// An object as the table finds it: half as long as it is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InodeHandle {
    /// Inode number.
    pub inode: u64,
    /// Tells a dead object from a new one in its place.
    pub generation: u64,
}

impl From<InodeHandle> for Handle {
    fn from(own: InodeHandle) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&own.inode.to_be_bytes());
        bytes[8..].copy_from_slice(&own.generation.to_be_bytes());
        Self::new(&bytes).expect("handles are longer")
    }
}

impl From<Handle> for InodeHandle {
    /// A handle of another store converts to one that names no inode.
    fn from(handle: Handle) -> Self {
        let word = |at: usize| {
            let bytes = handle.as_bytes().get(at..at + 8)?;
            bytes.try_into().ok().map(u64::from_be_bytes)
        };
        match (handle.as_bytes().len(), word(0), word(8)) {
            (16, Some(inode), Some(generation)) => Self { inode, generation },
            _ => Self {
                inode: u64::MAX,
                generation: 0,
            },
        }
    }
}

/// One object.
pub(super) struct Inode {
    pub handle: InodeHandle,
    pub attributes: AttributeCell,
    /// Extended attributes; few objects have some.
    pub xattrs: Mutex<Option<Box<XattrSet>>>,
    /// Access control lists that say more than the permission bits; few objects have some.
    pub lists: ArcSwapOption<KeptLists>,
    pub body: Body,
}

/// What an object is.
pub(super) enum Body {
    File(File),
    /// Apart, since most objects are files and need less room.
    Directory(Box<DirectoryBody>),
    Symlink(LinkText),
    Special(SpecialKind),
}

/// A directory.
pub(super) struct DirectoryBody {
    pub names: RwLock<Directory>,
    pub ancestry: Ancestry,
}

impl DirectoryBody {
    pub fn new(parent: InodeHandle) -> Self {
        Self {
            names: RwLock::new(Directory::new()),
            ancestry: Ancestry::new(parent),
        }
    }
}

/// A regular file.
#[derive(Default)]
pub(super) struct File {
    pub map: ExtentMap,
    /// Of the exclusive create that made it.
    pub verifier: Option<[u8; 8]>,
}

impl Inode {
    /// Whether it is the object that a handle with its number was made for.
    fn is(&self, handle: InodeHandle) -> bool {
        self.handle.generation == handle.generation
    }

    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind) => Kind::Special(*kind),
        }
    }

    /// Stored attributes as the face shows them.
    pub fn show(&self, stored: &Stored) -> Attributes {
        stored.attributes(self.kind(), self.handle.inode)
    }

    /// The consistency data for a change of the attributes.
    pub fn changed(&self, before: &Stored, after: &Stored) -> Consistency {
        Consistency {
            before: Some(self.show(before)),
            after: Some(self.show(after)),
        }
    }

    /// What an operation that changed nothing shows.
    pub fn unchanged(&self) -> Consistency {
        match self.attributes.live() {
            Ok(stored) => self.changed(&stored, &stored),
            Err(_) => Consistency::default(),
        }
    }

    /// The regular file that this has to be.
    pub fn file(&self) -> Result<&File> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(StoreError::IsDirectory),
            Body::Symlink(_) | Body::Special(_) => Err(StoreError::Invalid),
        }
    }

    /// The directory that this has to be.
    pub fn directory(&self) -> Result<&RwLock<Directory>> {
        match &self.body {
            Body::Directory(directory) => Ok(&directory.names),
            _ => Err(StoreError::NotDirectory),
        }
    }

    /// The ancestry of a directory; an error for other objects.
    pub fn ancestry(&self) -> Result<&Ancestry> {
        match &self.body {
            Body::Directory(directory) => Ok(&directory.ancestry),
            _ => Err(StoreError::NotDirectory),
        }
    }

    /// Brings the access time forward after a read, where the last change is not older than it:
    /// steady reads then write nothing. Gives way to a change under way.
    pub fn note_access(&self, seen: &Stored) {
        if seen.accessed <= seen.modified || seen.accessed <= seen.changed {
            self.attributes
                .try_update(|stored| stored.accessed = crate::Time::now());
        }
    }
}

/// Inodes of a chunk: few enough that making one takes no longer than some creations.
const CHUNK: u64 = 4096;

type Chunk = Box<[ArcSwapOption<Inode>]>;

/// Finds objects by handle, without a lock.
pub(super) struct InodeTable {
    /// As many as the limit needs, made when their first inode is.
    chunks: Box<[OnceLock<Chunk>]>,
    free: Mutex<FreeNumbers>,
    /// Inodes, and names beyond the first of each, since those take memory too.
    count: AtomicU64,
    limit: u64,
}

#[derive(Default)]
struct FreeNumbers {
    /// Numbers that were used before.
    returned: Vec<u64>,
    /// The first number that was never used.
    next: u64,
}

impl InodeTable {
    pub fn new(limit: u64) -> Self {
        Self {
            chunks: (0..=limit / CHUNK).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(FreeNumbers {
                returned: Vec::new(),
                next: 1,
            }),
            count: AtomicU64::new(0),
            limit,
        }
    }

    /// Has a short look at the object of a handle, without a share in it: the count of shares is
    /// one for all reactors, so steady reads of one object had better not change it.
    pub fn look<T>(
        &self,
        handle: impl Into<InodeHandle>,
        look: impl FnOnce(&Inode) -> Result<T>,
    ) -> Result<T> {
        let handle = handle.into();
        let guard = self.slot(handle.inode).map(ArcSwapOption::load);
        match guard.as_ref().and_then(|guard| guard.as_deref()) {
            Some(inode) if inode.is(handle) => look(inode),
            _ => Err(StoreError::Stale),
        }
    }

    /// The object of a handle.
    pub fn get(&self, handle: impl Into<InodeHandle>) -> Result<Arc<Inode>> {
        let handle = handle.into();
        self.slot(handle.inode)
            .and_then(ArcSwapOption::load_full)
            .filter(|inode| inode.is(handle))
            .ok_or(StoreError::Stale)
    }

    /// Counts one more inode or name.
    pub fn charge(&self) -> Result<()> {
        let fits = |count| (count < self.limit).then_some(count + 1);
        match self.count.fetch_update(AcqRel, Acquire, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::NoSpace),
        }
    }

    /// Takes back a [`InodeTable::charge`].
    pub fn discharge(&self) {
        self.count.fetch_sub(1, AcqRel);
    }

    /// Takes a number for a new inode that has been charged for. It is no larger than the limit, as
    /// numbers are returned before their charge is.
    pub fn take_number(&self) -> u64 {
        let mut free = lock(&self.free);
        free.returned.pop().unwrap_or_else(|| {
            free.next += 1;
            free.next - 1
        })
    }

    /// Makes an object known under its number.
    pub fn insert(&self, inode: Arc<Inode>) {
        let (chunk, index) = place(inode.handle.inode);
        let slots =
            self.chunks[chunk].get_or_init(|| (0..CHUNK).map(|_| ArcSwapOption::empty()).collect());
        slots[index].store(Some(inode));
    }

    /// Forgets an object that has no name any more: its handle is stale from now on.
    pub fn remove(&self, inode: &Inode) {
        if let Some(slot) = self.slot(inode.handle.inode) {
            slot.store(None);
        }
        lock(&self.free).returned.push(inode.handle.inode);
        self.discharge();
    }

    /// Inodes and further names in use.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// The most that [`InodeTable::count`] may reach.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    fn slot(&self, number: u64) -> Option<&ArcSwapOption<Inode>> {
        let (chunk, index) = place(number);
        self.chunks.get(chunk)?.get()?.get(index)
    }
}

/// The chunk of a number, and the index in it.
fn place(number: u64) -> (usize, usize) {
    ((number / CHUNK) as usize, (number % CHUNK) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_up_to_the_limit_has_a_chunk() {
        for limit in [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let table = InodeTable::new(limit);
            let mut last = 0;
            while table.charge().is_ok() {
                last = table.take_number();
            }
            assert_eq!(last, limit);
            assert_eq!(place(last).0 + 1, table.chunks.len());
        }
        assert_eq!(place(CHUNK - 1), (0, 4095));
        assert_eq!(place(CHUNK), (1, 0));
    }

    #[test]
    fn foreign_numbers_are_stale() {
        let table = InodeTable::new(10);
        for inode in [0, 1, 1 << 20, u64::MAX] {
            assert!(
                table
                    .get(InodeHandle {
                        inode,
                        generation: 0
                    })
                    .is_err()
            );
        }
    }

    #[test]
    fn the_limit_counts_what_is_charged() {
        let table = InodeTable::new(2);
        assert_eq!(table.charge(), Ok(()));
        assert_eq!(table.charge(), Ok(()));
        assert_eq!(table.charge(), Err(StoreError::NoSpace));
        table.discharge();
        assert_eq!(table.charge(), Ok(()));
    }
}
