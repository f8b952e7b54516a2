//! Extended attributes. They are on the heap and count against the store's size, as names do.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::attributes::{STICKY, Stored};
use super::cost::NAME_BYTES;
use super::inode::Inode;
use super::lock;
use super::permission::{READ, WRITE, owns, require};
use super::space::Space;
use super::tree::Tree;
use crate::{
    Caller, Handle, Kind, Modified, Result, SetXattrHow, StoreError, XATTR_NAME_MAX,
    XATTR_VALUE_MAX,
};

/// Most bytes of all names of an object, each with a zero byte.
const NAMES_MAX: usize = 64 << 10;

/// The extended attributes of an object.
pub(super) struct XattrSet {
    space: Arc<Space>,
    /// Bytes charged for them.
    charged: u64,
    names: usize,
    values: BTreeMap<Box<[u8]>, Box<[u8]>>,
}

/// The bytes charged for an attribute.
fn cost(name: &[u8], value: &[u8]) -> u64 {
    NAME_BYTES + (name.len() + value.len()) as u64
}

impl XattrSet {
    fn new(space: &Arc<Space>) -> Self {
        Self {
            space: Arc::clone(space),
            charged: 0,
            names: 0,
            values: BTreeMap::new(),
        }
    }

    fn set(&mut self, name: &[u8], value: &[u8], how: SetXattrHow) -> Result<()> {
        let old = self.values.get(name).map(|old| cost(name, old));
        match (old, how) {
            (Some(_), SetXattrHow::Create) => return Err(StoreError::Exists),
            (None, SetXattrHow::Replace) => return Err(StoreError::NoXattr),
            _ => {}
        }
        let names = self.names + if old.is_some() { 0 } else { name.len() + 1 };
        if names > NAMES_MAX {
            return Err(StoreError::NoSpace);
        }
        let (new, old) = (cost(name, value), old.unwrap_or(0));
        self.space.charge_heap(new.saturating_sub(old))?;
        self.space.discharge_heap(old.saturating_sub(new));
        self.charged = self.charged + new - old;
        self.names = names;
        self.values.insert(name.into(), value.into());
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> Result<()> {
        let value = self.values.remove(name).ok_or(StoreError::NoXattr)?;
        let bytes = cost(name, &value);
        self.space.discharge_heap(bytes);
        self.charged -= bytes;
        self.names -= name.len() + 1;
        Ok(())
    }
}

impl Drop for XattrSet {
    fn drop(&mut self) {
        self.space.discharge_heap(self.charged);
    }
}

impl Tree {
    pub fn xattr(
        &self,
        caller: &Caller,
        object: Handle,
        name: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let inode = self.readable(caller, object)?;
        let set = lock(&inode.xattrs);
        let set = set.as_ref().ok_or(StoreError::NoXattr)?;
        value.extend_from_slice(set.values.get(name).ok_or(StoreError::NoXattr)?);
        Ok(())
    }

    pub fn xattrs(&self, caller: &Caller, object: Handle, names: &mut Vec<u8>) -> Result<()> {
        let inode = self.readable(caller, object)?;
        if let Some(set) = &*lock(&inode.xattrs) {
            for name in set.values.keys() {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        Ok(())
    }

    pub fn set_xattr(
        &self,
        caller: &Caller,
        object: Handle,
        name: &[u8],
        value: &[u8],
        how: SetXattrHow,
    ) -> Modified<()> {
        self.change_xattrs(caller, object, |set| {
            check_name(name)?;
            if value.len() > XATTR_VALUE_MAX {
                return Err(StoreError::XattrTooLong);
            }
            let fresh = || Box::new(XattrSet::new(&self.space));
            set.get_or_insert_with(fresh).set(name, value, how)
        })
    }

    pub fn remove_xattr(&self, caller: &Caller, object: Handle, name: &[u8]) -> Modified<()> {
        self.change_xattrs(caller, object, |set| {
            set.as_mut().ok_or(StoreError::NoXattr)?.remove(name)
        })
    }

    fn readable(&self, caller: &Caller, object: Handle) -> Result<Arc<Inode>> {
        let inode = self.table.get(object)?;
        let stored = inode.attributes.live()?;
        require_kind(&inode)?;
        require(caller, inode.judged(&stored), READ)?;
        Ok(inode)
    }

    fn change_xattrs(
        &self,
        caller: &Caller,
        object: Handle,
        change: impl FnOnce(&mut Option<Box<XattrSet>>) -> Result<()>,
    ) -> Modified<()> {
        let inode = match self.table.get(object) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        // Values may be long: readers of other things need not wait for their copy.
        let mut set = lock(&inode.xattrs);
        let mut writer = inode.attributes.lock();
        let before = writer.stored();
        if before.is_gone() {
            return Modified::failed(StoreError::Stale);
        }
        let mut stored = before;
        let result = require_change(caller, &inode, &before).and_then(|()| change(&mut set));
        if result.is_ok() {
            stored.touch_changed();
            writer.publish(&stored);
        }
        Modified {
            consistency: inode.changed(&before, &stored),
            result,
        }
    }
}

/// Files and directories have extended attributes (xattr(7)).
fn require_kind(inode: &Inode) -> Result<()> {
    match inode.kind() {
        Kind::File | Kind::Directory => Ok(()),
        Kind::Symlink | Kind::Special(_) => Err(StoreError::Invalid),
    }
}

/// Anybody may write into a directory such as `/tmp`, and only its owner change what it is.
fn require_change(caller: &Caller, inode: &Inode, stored: &Stored) -> Result<()> {
    require_kind(inode)?;
    let is_shared = inode.kind() == Kind::Directory && stored.mode & STICKY != 0;
    if is_shared && !owns(caller, stored) {
        return Err(StoreError::NotOwner);
    }
    require(caller, inode.judged(stored), WRITE)
}

fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(StoreError::Invalid),
        length if length > XATTR_NAME_MAX => Err(StoreError::NameTooLong),
        _ if name.contains(&0) => Err(StoreError::Invalid),
        _ => Ok(()),
    }
}
