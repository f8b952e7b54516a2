//! Setting of attributes (RFC 1813 section 3.3.2).

use super::SIZE_MAX;
use super::attributes::{HAS_LIST, MODE_BITS, SET_GROUP, Stored};
use super::inode::Inode;
use super::permission::{Judged, WRITE, allows, owns, require_write};
use super::tree::Tree;
use crate::{
    Caller, Consistency, Handle, Kind, Modified, Result, SetAttributes, SetTime, StoreError, Time,
};

impl Tree {
    pub fn set_attributes(
        &self,
        caller: &Caller,
        object: Handle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Modified<()> {
        let inode = match self.table.get(object) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        let (consistency, result) = self.set_inode(caller, &inode, set, guard);
        Modified {
            consistency,
            result,
        }
    }

    pub fn set_inode(
        &self,
        caller: &Caller,
        inode: &Inode,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> (Consistency, Result<()>) {
        let kind = inode.kind();
        let change = |stored: &mut Stored| {
            if stored.is_gone() {
                return Err(StoreError::Stale);
            }
            if guard.is_some_and(|guard| guard != stored.changed) {
                return Err(StoreError::NotSync);
            }
            authorize(caller, inode.judged(stored), kind, set)?;
            apply(caller, stored, kind, set, stored.change_time());
            Ok(())
        };
        let (consistency, result) = match (set.size, inode.file()) {
            (Some(_), Ok(file)) => self.resize(inode, file, change),
            _ => inode.attributes.update(|stored| {
                let before = *stored;
                let result = change(stored);
                (inode.changed(&before, stored), result)
            }),
        };
        let gone = result == Err(StoreError::Stale);
        (
            if gone {
                Consistency::default()
            } else {
                consistency
            },
            result,
        )
    }
}

/// Whether the caller may make all of these changes.
pub(super) fn authorize(
    caller: &Caller,
    object: Judged<'_>,
    kind: Kind,
    set: &SetAttributes,
) -> Result<()> {
    let stored = object.stored;
    let superuser = caller.uid == 0;
    let owner = owns(caller, stored);
    let may_own = set
        .uid
        .is_none_or(|uid| superuser || (owner && uid == stored.uid));
    let may_group = |gid| superuser || (owner && (gid == stored.gid || caller.in_group(gid)));
    if !may_own || !set.gid.is_none_or(may_group) || (set.mode.is_some() && !owner) {
        return Err(StoreError::NotOwner);
    }
    for time in [set.accessed, set.modified] {
        match time {
            SetTime::To(time) if time.nanoseconds >= 1_000_000_000 => {
                return Err(StoreError::Invalid);
            }
            SetTime::To(_) if !owner => return Err(StoreError::NotOwner),
            SetTime::Now if !owner && !allows(caller, object, WRITE) => {
                return Err(StoreError::Denied);
            }
            _ => {}
        }
    }
    match (set.size, kind) {
        (None, _) => Ok(()),
        (Some(size), Kind::File) if size > SIZE_MAX => Err(StoreError::TooLarge),
        (Some(_), Kind::File) => require_write(caller, object),
        (Some(_), Kind::Directory) => Err(StoreError::IsDirectory),
        (Some(_), _) => Err(StoreError::Invalid),
    }
}

/// Makes the changes that [`authorize`] has allowed, at the time `now`.
pub(super) fn apply(
    caller: &Caller,
    stored: &mut Stored,
    kind: Kind,
    set: &SetAttributes,
    now: Time,
) {
    if *set == SetAttributes::default() {
        return;
    }
    let superuser = caller.uid == 0;
    stored.changed = now;
    if let Some(size) = set.size {
        stored.size = size;
        stored.modified = now;
        if !superuser {
            stored.clear_set_id();
        }
    }
    stored.uid = set.uid.unwrap_or(stored.uid);
    stored.gid = set.gid.unwrap_or(stored.gid);
    if let Some(mode) = set.mode {
        // Those of the group are the mask of a list.
        stored.mode = stored.mode & HAS_LIST | mode & MODE_BITS;
        if !superuser && !caller.in_group(stored.gid) {
            stored.mode &= !SET_GROUP;
        }
    }
    // Another owner's set-id program would be a gift of rights. Only the superuser may make one in
    // the same step, by naming the mode.
    let given_away = set.uid.is_some() || set.gid.is_some();
    if given_away && kind != Kind::Directory && !(superuser && set.mode.is_some()) {
        stored.clear_set_id();
    }
    for (time, wanted) in [
        (&mut stored.accessed, set.accessed),
        (&mut stored.modified, set.modified),
    ] {
        match wanted {
            SetTime::Keep => {}
            SetTime::Now => *time = now,
            SetTime::To(chosen) => *time = chosen,
        }
    }
}
