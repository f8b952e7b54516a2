//! Access control lists. They are on the heap and count against the store's size, as names do.

use std::sync::Arc;

use super::attributes::{HAS_LIST, MODE_BITS, SET_GROUP, Stored};
use super::inode::Inode;
use super::permission::owns;
use super::space::Space;
use super::tree::Tree;
use crate::{
    ACCESS_ENTRIES_MAX, AccessList, AccessLists, Caller, Handle, Kind, Modified, Result, StoreError,
};

/// Bytes charged for the lists of an object, and for each entry.
const LISTS_BYTES: u64 = 256;
const ENTRY_BYTES: u64 = 8;

/// The lists of an object. Rights of the owner and of others, and the mask, are those of the
/// permission bits.
pub(super) struct KeptLists {
    space: Arc<Space>,
    charged: u64,
    pub lists: AccessLists,
}

impl KeptLists {
    pub fn new(space: &Arc<Space>, lists: AccessLists) -> Result<Arc<Self>> {
        let default = lists.default.as_ref().map_or(0, AccessList::entries);
        let entries = (lists.access.entries() + default) as u64;
        let charged = LISTS_BYTES + entries * ENTRY_BYTES;
        space.charge_heap(charged)?;
        Ok(Arc::new(Self {
            space: Arc::clone(space),
            charged,
            lists,
        }))
    }
}

impl Drop for KeptLists {
    fn drop(&mut self) {
        self.space.discharge_heap(self.charged);
    }
}

/// Lists that a new object begins with, of those of its directory; `stored` gets their mode.
pub(super) fn inherited(
    directory: &Inode,
    kind: Kind,
    stored: &mut Stored,
    space: &Arc<Space>,
) -> Result<Option<Arc<KeptLists>>> {
    let kept = directory.lists.load();
    let default = kept.as_ref().and_then(|kept| kept.lists.default.as_ref());
    let Some(default) = default.filter(|_| kind != Kind::Symlink) else {
        return Ok(None);
    };
    let access = default.inherited(stored.mode);
    stored.set_list(&access);
    let passed_on = (kind == Kind::Directory).then(|| default.clone());
    if !access.is_extended() && passed_on.is_none() {
        return Ok(None);
    }
    let lists = AccessLists {
        access,
        default: passed_on,
    };
    KeptLists::new(space, lists).map(Some)
}

impl Stored {
    /// Shows the permission bits of a list.
    pub fn set_list(&mut self, list: &AccessList) {
        let special = self.mode & MODE_BITS & !0o777;
        let flag = if list.is_extended() { HAS_LIST } else { 0 };
        self.mode = flag | special | list.mode();
    }
}

impl Tree {
    pub fn access_lists(&self, object: Handle) -> Result<AccessLists> {
        self.table.look(object, |inode| {
            let stored = inode.attributes.live()?;
            require_kind(inode)?;
            let kept = inode.lists.load();
            let kept = kept.as_ref().map(|kept| &kept.lists);
            let access = match kept.filter(|_| stored.mode & HAS_LIST != 0) {
                Some(lists) => lists.access.clone().with_mode(stored.mode),
                None => AccessList::of_mode(stored.mode),
            };
            let default = kept.and_then(|lists| lists.default.clone());
            Ok(AccessLists { access, default })
        })
    }

    pub fn set_access_lists(
        &self,
        caller: &Caller,
        object: Handle,
        lists: &AccessLists,
    ) -> Modified<()> {
        let inode = match self.table.get(object) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        let mut writer = inode.attributes.lock();
        let before = writer.stored();
        if before.is_gone() {
            return Modified::failed(StoreError::Stale);
        }
        let mut stored = before;
        let result = self.change_lists(caller, &inode, &mut stored, lists);
        if result.is_ok() {
            stored.touch_changed();
            writer.publish(&stored);
        }
        Modified {
            consistency: inode.changed(&before, &stored),
            result,
        }
    }

    fn change_lists(
        &self,
        caller: &Caller,
        inode: &Inode,
        stored: &mut Stored,
        lists: &AccessLists,
    ) -> Result<()> {
        require_kind(inode)?;
        if lists.default.is_some() && inode.kind() != Kind::Directory {
            return Err(StoreError::Invalid);
        }
        let all = [Some(&lists.access), lists.default.as_ref()];
        let fits = |list: &AccessList| list.entries() <= ACCESS_ENTRIES_MAX;
        if !all.into_iter().flatten().all(fits) {
            return Err(StoreError::Invalid);
        }
        if !owns(caller, stored) {
            return Err(StoreError::NotOwner);
        }
        let needs_keeping = lists.access.is_extended() || lists.default.is_some();
        let kept = needs_keeping.then(|| KeptLists::new(&self.space, lists.clone()));
        inode.lists.store(kept.transpose()?);
        stored.set_list(&lists.access);
        if caller.uid != 0 && !caller.in_group(stored.gid) {
            stored.mode &= !SET_GROUP;
        }
        Ok(())
    }
}

/// Permission bits of symbolic links mean nothing.
fn require_kind(inode: &Inode) -> Result<()> {
    match inode.kind() {
        Kind::Symlink => Err(StoreError::NotSupported),
        _ => Ok(()),
    }
}
