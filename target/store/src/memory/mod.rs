//! A store in memory.
//!
//! File data is in extents of registered memory, which the fabric fills and reads without a copy.
//! Names and attributes are on the heap. All reactors share the tree. Reads and attributes take no
//! lock, writes lock the file during their commit, and names lock their directory. Only moving a
//! directory to another one takes a lock of the whole store. All contents are lost with the
//! process; the root's handle stays valid after a restart.
//!
//! | module | content |
//! | --- | --- |
//! | `space`, `extent`, `free`, `scattered` | registered memory: free memory and reference counts |
//! | `map` | the extents of a file, by offset |
//! | `data`, `overwrite` | reading, writing, resizing |
//! | `ranges`, `turn` | space and holes of files |
//! | `attributes`, `set`, `permission` | attributes, their changes, and permissions |
//! | `xattrs` | extended attributes |
//! | `inode`, `tree` | objects and handles |
//! | `directory`, `namespace`, `rename` | names |
//! | `holds` | files without names that are open |
//! | `ancestry` | parents of directories, and depth |
//! | `cost` | the charge of names and objects against the store's size |
//!
//! The access time is set by the first read after each change, as with "relatime", so that further
//! reads write nothing. The change time of an object strictly increases.

#![deny(unsafe_code)]

mod access_lists;
mod ancestry;
mod at_once;
mod attributes;
mod clone;
mod cost;
mod data;
mod directory;
mod extent;
mod free;
mod holds;
mod inode;
mod lend;
mod map;
mod namespace;
mod overwrite;
mod permission;
mod ranges;
mod rename;
mod scattered;
mod set;
mod space;
mod symlink;
mod tree;
mod xattrs;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_mempool::{Arena, ArenaError, Registry, Slice};

pub use self::cost::{DIRECTORY_BYTES, NAME_BYTES, OBJECT_BYTES, SHORT_TEXT_MAX};
use self::space::Space;
pub use self::space::mapped_bytes;
use self::tree::{ROOT, Tree};
use crate::{
    AccessControl, AccessLists, AccessMask, Attributes, Caller, CookieVerifier, CopiedRange,
    CreateHow, DirectoryEntry, DirectoryOutcome, ExtendedAttributes, FileData, FileHold,
    FileRanges, FoundRange, Handle, Immediate, Linked, Modified, Namespace, Properties,
    RangeContent, ReadOutcome, Renamed, Result, SetAttributes, SetXattrHow, SpecialKind, Stability,
    StagedWrite, Statistics, Store, Time, UsageAdvice, WriteVerifier, Written,
};

/// Longest name in a directory, in bytes.
pub const NAME_MAX: usize = 255;
/// Most names of one object that is not a directory.
pub const LINKS_MAX: u32 = 65_000;
/// Largest file, in bytes.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Most directories on the way from the root, which does not count, to a directory. A client whose
/// path names have 4096 bytes can hardly name what is deeper.
pub const DEPTH_MAX: u32 = 1024;
/// Longest text of a symbolic link, in bytes.
pub const SYMLINK_MAX: usize = 4095;

/// One inode per so many bytes, where the configuration names no number.
const BYTES_PER_INODE: u64 = 4096;
const DEFAULT_INODES_MIN: u64 = 16 * 1024;

/// The parameters of a memory store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Memory for file data in bytes, taken and registered at once with some spare memory
    /// ([`mapped_bytes`]); rounded down to whole pages of 4 KiB. Names, objects and the texts of
    /// links count against it: [`OBJECT_BYTES`] for each object ([`DIRECTORY_BYTES`] for a
    /// directory), [`NAME_BYTES`] and its length for each name, its length for the text of a link,
    /// or a page of 4 KiB if that is longer than [`SHORT_TEXT_MAX`]. They live on the heap beside
    /// this memory, but for long texts.
    pub size_bytes: u64,
    /// Most inodes, where each further hard link counts as one; one per 4 KiB of memory if absent,
    /// and no fewer than 16,384.
    pub inodes: Option<u64>,
    /// Number of the file system, for clients to tell exports apart.
    pub file_system: u64,
    /// Different at each start of the process (the time of the start will do): makes handles from
    /// before a restart stale and is the write verifier.
    pub epoch: u64,
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
}

/// A store in memory. Clones share one tree, also between threads.
#[derive(Clone)]
pub struct MemoryStore {
    tree: Arc<Tree>,
}

impl MemoryStore {
    /// An empty store.
    ///
    /// # Errors
    /// When the memory cannot be mapped or registered.
    #[allow(clippy::needless_pass_by_value)] // Built for this one call.
    pub fn new(registry: &Registry, config: MemoryConfig) -> std::result::Result<Self, ArenaError> {
        Ok(Self {
            tree: Arc::new(Tree::new(registry, &config)?),
        })
    }

    /// The arenas that a store of [`MemoryConfig::size_bytes`] maps: pairs of how many, and of how
    /// many bytes each.
    #[must_use]
    pub fn arenas_of(size_bytes: u64) -> [(u64, u64); 3] {
        space::arenas_of(size_bytes)
    }
}

/// How full a store is, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes for file data in all.
    pub total_bytes: u64,
    /// Bytes taken.
    pub used_bytes: u64,
    /// Those of them that names and objects take.
    pub names_bytes: u64,
    /// Inodes taken.
    pub inodes: u64,
    /// The most inodes; `None` if only the bytes bound their number, as in some folders.
    pub total_inodes: Option<u64>,
}

impl MemoryStore {
    /// Whether both are one and the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tree, &other.tree)
    }

    /// How full it is now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let Tree { space, table, .. } = &*self.tree;
        Usage {
            total_bytes: space.total(),
            used_bytes: space.used(),
            names_bytes: space.heap(),
            inodes: table.count(),
            total_inodes: Some(table.limit()),
        }
    }
}

/// A store that is no longer served, but may still be in use. Freeing it takes long, so the holder
/// of this value chooses the thread for that.
pub struct Remains {
    store: Option<MemoryStore>,
    space: Option<Arc<Space>>,
    arenas: Vec<Arc<Arena>>,
}

impl MemoryStore {
    /// The reference to keep until all other users are gone.
    #[must_use]
    pub fn remains(&self) -> Remains {
        Remains {
            store: Some(self.clone()),
            space: Some(self.tree.space.clone()),
            arenas: self.tree.space.arenas().cloned().collect(),
        }
    }
}

impl Remains {
    /// Frees the parts without other users. Returns whether everything is freed.
    pub fn free(&mut self) -> bool {
        if let Some(store) = &self.store {
            if Arc::strong_count(&store.tree) > 1 {
                return false;
            }
            self.store = None;
        }
        // Data on its way to a client holds its memory.
        if let Some(space) = &self.space {
            if Arc::strong_count(space) > 1 {
                return false;
            }
            self.space = None;
        }
        self.arenas.retain(|arena| Arc::strong_count(arena) > 1);
        self.arenas.is_empty()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let space = &self.tree.space;
        formatter
            .debug_struct("MemoryStore")
            .field("total", &space.total())
            .field("used", &space.used())
            .finish_non_exhaustive()
    }
}

/// Calls the operation of the same name of the tree.
macro_rules! tree {
    ($store:ident.$operation:ident($($argument:ident),*)) => {
        $store.tree.$operation($($argument),*)
    };
}

/// The same, for a store of which one operation goes on in steps.
macro_rules! ranges {
    ($store:ident.allocate($($argument:ident),*)) => {
        $store.tree.allocate($($argument),*).await
    };
    ($store:ident.clone_range($($argument:ident),*)) => {
        $store.tree.clone_range($($argument),*).await
    };
    ($store:ident.$operation:ident($($argument:ident),*)) => {
        $store.tree.$operation($($argument),*)
    };
}

impl Namespace for MemoryStore {
    forward_namespace!(tree);
}

impl FileData for MemoryStore {
    type Reservation = Option<Box<data::Reservation>>;

    forward_file_data!(tree);
}

impl FileRanges for MemoryStore {
    forward_file_ranges!(ranges);
}

impl AccessControl for MemoryStore {
    forward_access_control!(tree);
}

impl ExtendedAttributes for MemoryStore {
    forward_extended_attributes!(tree);
}

impl Store for MemoryStore {
    fn immediate(&self) -> Option<Immediate<'_>> {
        Some(Immediate::of_memory(self))
    }

    fn root(&self) -> Handle {
        ROOT.into()
    }

    fn properties(&self) -> Properties {
        self.tree.properties()
    }

    fn outlives_process(&self) -> bool {
        false
    }
}

/// Locks a mutex, ignoring poison: changes are prepared first, so the data is consistent even after
/// a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
