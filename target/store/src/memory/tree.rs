//! The tree that all clones of a store share, and its simplest operations.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, RwLock};

use millrace_mempool::{ArenaError, Registry};

use arc_swap::ArcSwapOption;

use super::attributes::{AttributeCell, MODE_BITS, Stored};
use super::clone::CLONE_BLOCK;
use super::cost;
use super::inode::{Body, DirectoryBody, Inode, InodeHandle, InodeTable};
use super::namespace::directory_size;
use super::permission;
use super::space::Space;
use super::{BYTES_PER_INODE, DEFAULT_INODES_MIN, LINKS_MAX, MemoryConfig, NAME_MAX, SIZE_MAX};
use crate::{
    AccessMask, Attributes, Caller, Consistency, Handle, Modified, Properties, Result, Statistics,
    StoreError, Time, WriteVerifier,
};

/// The root's handle does not change from one start to the next. No other object has its number.
pub(super) const ROOT: InodeHandle = InodeHandle {
    inode: 1,
    generation: 1,
};

/// One tree.
pub(super) struct Tree {
    pub space: Arc<Space>,
    pub table: InodeTable,
    /// Held shared to create a directory, and exclusively to move one to another.
    pub ancestry: RwLock<()>,
    pub verifier: WriteVerifier,
    file_system: u64,
    /// Start of this process's generations.
    epoch: u64,
    created: AtomicU64,
}

impl Tree {
    pub fn new(
        registry: &Registry,
        config: &MemoryConfig,
    ) -> std::result::Result<Self, ArenaError> {
        let space = Arc::new(Space::new(registry, config.size_bytes)?);
        let default_inodes = (space.total() / BYTES_PER_INODE).max(DEFAULT_INODES_MIN);
        let tree = Self {
            space,
            table: InodeTable::new(config.inodes.unwrap_or(default_inodes).max(1)),
            ancestry: RwLock::new(()),
            verifier: WriteVerifier(config.epoch.to_be_bytes()),
            file_system: config.file_system,
            epoch: scramble(config.epoch),
            created: AtomicU64::new(0),
        };
        let now = Time::now();
        let root = Inode {
            handle: ROOT,
            attributes: AttributeCell::new(&Stored {
                mode: config.root_mode & MODE_BITS,
                links: 2,
                holds: 0,
                uid: config.root_uid,
                gid: config.root_gid,
                size: directory_size(0),
                used: 0,
                accessed: now,
                modified: now,
                changed: now,
                revision: 0,
            }),
            xattrs: Mutex::default(),
            lists: ArcSwapOption::empty(),
            body: Body::Directory(Box::new(DirectoryBody::new(ROOT))),
        };
        let (charged, number) = (tree.table.charge(), tree.table.take_number());
        debug_assert!(charged.is_ok() && number == ROOT.inode);
        tree.table.insert(Arc::new(root));
        Ok(tree)
    }

    /// A generation that no object of this or another start has had, but for a chance of 2^-64.
    pub fn next_generation(&self) -> u64 {
        scramble(self.epoch.wrapping_add(self.created.fetch_add(1, Relaxed)))
    }

    pub fn attributes(&self, object: Handle) -> Result<Attributes> {
        self.table.look(object, |inode| {
            let stored = inode.attributes.live()?;
            Ok(inode.show(&stored))
        })
    }

    /// What an operation that changed nothing shows of an object.
    pub fn unchanged(&self, object: Handle) -> Consistency {
        self.table
            .get(object)
            .map(|inode| inode.unchanged())
            .unwrap_or_default()
    }

    pub fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attributes)> {
        self.table.look(object, |inode| {
            let stored = inode.attributes.live()?;
            let granted = permission::access(caller, inode.kind(), inode.judged(&stored), wanted);
            Ok((granted, inode.show(&stored)))
        })
    }

    /// Any caller who found a link may read it, as in POSIX; its permission bits mean nothing.
    pub fn read_link(
        &self,
        _caller: &Caller,
        link: Handle,
        text: &mut Vec<u8>,
    ) -> Result<Attributes> {
        let inode = self.table.get(link)?;
        let stored = inode.attributes.live()?;
        let Body::Symlink(target) = &inode.body else {
            return Err(StoreError::Invalid);
        };
        target.append_to(text);
        inode.note_access(&stored);
        Ok(inode.show(&stored))
    }

    pub fn commit(&self, file: Handle, _offset: u64, _length: u32) -> Modified<WriteVerifier> {
        let inode = match self.table.get(file) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        let outcome = inode.attributes.live().and_then(|_| inode.file());
        Modified {
            consistency: inode.unchanged(),
            result: outcome.map(|_| self.verifier),
        }
    }

    pub fn statistics(&self, object: Handle) -> Result<Statistics> {
        let attributes = self.attributes(object)?;
        let total_bytes = self.space.total();
        let free_bytes = total_bytes.saturating_sub(self.space.used());
        let count = self.table.count();
        // No more than there are bytes for.
        let free_inodes = self
            .table
            .limit()
            .saturating_sub(count)
            .min(free_bytes / cost::OBJECT_LEAST_BYTES);
        Ok(Statistics {
            total_bytes,
            free_bytes,
            available_bytes: free_bytes,
            total_inodes: count + free_inodes,
            free_inodes,
            available_inodes: free_inodes,
            attributes,
        })
    }

    pub fn properties(&self) -> Properties {
        Properties {
            name_max: NAME_MAX as u32,
            links_max: LINKS_MAX,
            size_max: SIZE_MAX,
            file_system: self.file_system,
            clone_block: Some(CLONE_BLOCK),
            xattrs: true,
            access_lists: true,
            counts_changes: true,
            changes_elsewhere: false,
            shared_by_servers: false,
            leases: false,
        }
    }
}

/// Spreads a number over 64 bits, one to one (the finalizer of SplitMix64).
fn scramble(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
