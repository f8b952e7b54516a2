//! Files that are held while clients have them open, also without a name.

use std::sync::{Arc, Weak};

use super::inode::InodeHandle;
use super::tree::Tree;
use crate::{FileHold, Handle, Result, StoreError};

impl Tree {
    pub fn hold(self: &Arc<Self>, file: Handle) -> Result<FileHold> {
        let inode = self.table.get(file)?;
        inode.file()?;
        inode.attributes.update(|stored| {
            if stored.is_gone() {
                return Err(StoreError::Stale);
            }
            stored.holds += 1;
            Ok(())
        })?;
        Ok(FileHold::new(HeldInode {
            tree: Arc::downgrade(self),
            handle: inode.handle,
        }))
    }
}

/// One hold of a file.
struct HeldInode {
    /// The memory of a store that is served no longer is freed whoever holds its files.
    tree: Weak<Tree>,
    handle: InodeHandle,
}

impl Drop for HeldInode {
    fn drop(&mut self) {
        let Some(tree) = self.tree.upgrade() else {
            return;
        };
        // A file that is held is in the table.
        if let Ok(inode) = tree.table.get(self.handle) {
            let is_gone = inode.attributes.update(|stored| {
                stored.holds -= 1;
                stored.is_gone()
            });
            if is_gone {
                tree.end(&inode);
            }
        }
    }
}
