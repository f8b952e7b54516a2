//! The parents of directories, up to the root.
//!
//! Directories are at most [`DEPTH_MAX`] levels deep, so that a walk up the tree is short. Each
//! directory has an upper bound of the levels below it, which is reset when its last subdirectory
//! is removed. So a move is checked without a walk down.
//!
//! Creating a directory takes the tree's ancestry lock shared, and moving one to another directory
//! takes it exclusively, so that both check the depth of the same tree.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::inode::{Inode, InodeHandle};
use super::tree::{ROOT, Tree};
use super::{DEPTH_MAX, lock};
use crate::{Result, StoreError};

/// The position of a directory in the tree.
pub(super) struct Ancestry {
    parent: Mutex<InodeHandle>,
    /// No less than the levels of directories below.
    height: AtomicU32,
}

impl Ancestry {
    pub fn new(parent: InodeHandle) -> Self {
        Self {
            parent: Mutex::new(parent),
            height: AtomicU32::new(0),
        }
    }

    /// The directory that holds this one; the root holds itself.
    pub fn parent(&self) -> InodeHandle {
        *lock(&self.parent)
    }

    pub fn set_parent(&self, parent: InodeHandle) {
        *lock(&self.parent) = parent;
    }

    pub fn height(&self) -> u32 {
        self.height.load(Acquire)
    }

    /// Notes that the last subdirectory is gone.
    pub fn flatten(&self) {
        self.height.store(0, Release);
    }
}

impl Tree {
    /// Calls `visit` for a directory and its parents up to the root, until it asks to stop.
    fn climb(
        &self,
        directory: InodeHandle,
        mut visit: impl FnMut(InodeHandle, &Ancestry) -> bool,
    ) -> Result<()> {
        let mut next = directory;
        loop {
            let at = next;
            let more = self.table.look(at, |inode| {
                let ancestry = inode.ancestry()?;
                next = ancestry.parent();
                Ok(visit(at, ancestry))
            })?;
            if !more || at == ROOT {
                return Ok(());
            }
        }
    }

    /// [`StoreError::NameTooLong`] if a directory with so many levels below it is too deep in
    /// `parent`, and [`StoreError::Invalid`] if it is `parent` or holds it.
    pub fn check_place(&self, parent: InodeHandle, moved: Option<&Inode>) -> Result<()> {
        let mut depth = 0;
        let mut holds = false;
        self.climb(parent, |handle, _| {
            depth += 1;
            holds = moved.is_some_and(|moved| moved.handle == handle);
            !holds
        })?;
        if holds {
            return Err(StoreError::Invalid);
        }
        let height = match moved {
            Some(moved) => moved.ancestry()?.height(),
            None => 0,
        };
        if depth + height > DEPTH_MAX {
            return Err(StoreError::NameTooLong);
        }
        Ok(())
    }

    /// Notes that a directory got a subdirectory with so many levels below.
    pub fn note_height(&self, parent: InodeHandle, below: u32) {
        let mut height = below + 1;
        let noted = self.climb(parent, |_, ancestry| {
            let known = ancestry.height.fetch_max(height, AcqRel);
            let higher = known < height;
            height += 1;
            higher
        });
        debug_assert!(noted.is_ok(), "what holds a directory stays");
    }
}
