//! Changing attributes: all in one step of the cluster, after the rights of the caller were checked.

use super::attributes::MODE_BITS;
use super::call::{CallContext, Changed, FoundObject};
use super::permission::{WRITE, owns};
use super::sys::AttributeChange;
use super::view::ClientView;
use crate::{Caller, Handle, Kind, Modified, Result, SetAttributes, SetTime, StoreError, Time};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

impl ClientView<'_> {
    pub(super) async fn set_attributes(
        &self,
        caller: &Caller,
        object: Handle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Modified<()> {
        let set = *set;
        self.change(caller, object, move |context, found| {
            if guard.is_some_and(|guard| guard != found.attributes.changed) {
                return Err(StoreError::NotSync);
            }
            if set == SetAttributes::default() {
                return Ok(Changed::nothing(()));
            }
            context.apply(found, &set)?;
            Ok(Changed::place(()))
        })
        .await
    }
}

impl CallContext {
    /// Makes all changes, or none.
    ///
    /// # Errors
    /// The caller may not, or errors of the cluster.
    pub fn apply(&self, object: &FoundObject, set: &SetAttributes) -> Result<()> {
        self.authorize(object, set)?;
        let found = &object.attributes;
        // The cluster takes a size that the file has already for no change.
        let modified = match set.modified {
            SetTime::Keep if set.size == Some(found.size) => SetTime::Now,
            modified => modified,
        };
        let change = AttributeChange {
            // Permissions of symbolic links have no effect.
            mode: resulting_mode(&self.caller, object, set).filter(|_| found.kind != Kind::Symlink),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            accessed: time_to_set(set.accessed)?,
            modified: time_to_set(modified)?,
        };
        let changed = object
            .inode
            .set_attributes(&self.session.superuser, &change);
        changed.map_err(|error| self.error(error))
    }

    /// Refuses what a kernel would refuse.
    fn authorize(&self, object: &FoundObject, set: &SetAttributes) -> Result<()> {
        check_times(set)?;
        let (caller, found) = (&self.caller, &object.attributes);
        if set.size.is_some() {
            match found.kind {
                Kind::File => self.require_write(object)?,
                Kind::Directory => return Err(StoreError::IsDirectory),
                Kind::Symlink | Kind::Special(_) => return Err(StoreError::Invalid),
            }
        }
        let owner = owns(caller, found);
        if caller.uid == 0 {
            return Ok(());
        }
        let may_own = set.uid.is_none_or(|uid| owner && uid == found.uid);
        let may_group = set
            .gid
            .is_none_or(|gid| owner && (gid == found.gid || caller.in_group(gid)));
        let times = [set.accessed, set.modified];
        let chosen = times.iter().any(|time| matches!(time, SetTime::To(_)));
        if !may_own || !may_group || (!owner && (set.mode.is_some() || chosen)) {
            return Err(StoreError::NotOwner);
        }
        // Who may write a file may set its times to the current time.
        if times.contains(&SetTime::Now) && !owner {
            self.require(object, WRITE)?;
        }
        Ok(())
    }

    /// Clears the set-id bits of a file that somebody else than the superuser writes.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn clear_set_id(&self, file: &FoundObject) -> Result<()> {
        let mode = file.attributes.mode;
        let left = without_set_id(mode);
        if self.caller.uid == 0 || left == mode {
            return Ok(());
        }
        let change = AttributeChange {
            mode: Some(left),
            ..AttributeChange::default()
        };
        let cleared = file.inode.set_attributes(&self.session.superuser, &change);
        cleared.map_err(|error| self.error(error))
    }
}

/// A mode without set-id bits. Without group execution, that of the group means locking.
fn without_set_id(mode: u32) -> u32 {
    let group = if mode & GROUP_EXECUTE != 0 {
        SET_GROUP
    } else {
        0
    };
    mode & !(SET_USER | group)
}

/// The mode to set, if it changes.
fn resulting_mode(caller: &Caller, object: &FoundObject, set: &SetAttributes) -> Option<u32> {
    let found = &object.attributes;
    let superuser = caller.uid == 0;
    let owned = set.uid.is_some() || set.gid.is_some();
    // A set-id program of another owner would grant that owner's rights: only the superuser may
    // make one in the same step that changes the owner.
    let wanted = set.mode.map(|mode| mode & MODE_BITS);
    let clears = if superuser {
        owned && wanted.is_none()
    } else {
        owned || set.size.is_some() && wanted.is_none()
    };
    let mut mode = wanted.unwrap_or(found.mode);
    if clears && found.kind != Kind::Directory {
        mode = without_set_id(mode);
    }
    let group = set.gid.unwrap_or(found.gid);
    if wanted.is_some() && !superuser && !caller.in_group(group) {
        mode &= !SET_GROUP;
    }
    (wanted.is_some() || mode != found.mode).then_some(mode)
}

/// A time in the form of the library. The current time is this server's, as that of all changes.
///
/// # Errors
/// [`StoreError::Invalid`]: it is no time.
pub(super) fn time_to_set(time: SetTime) -> Result<Option<Time>> {
    match time {
        SetTime::Keep => Ok(None),
        SetTime::Now => Ok(Some(Time::now())),
        SetTime::To(time) if i64::try_from(time.seconds).is_err() => Err(StoreError::Invalid),
        SetTime::To(time) => Ok(Some(time)),
    }
}

/// [`StoreError::Invalid`] for invalid times.
pub(super) fn check_times(set: &SetAttributes) -> Result<()> {
    let bad = |time| matches!(time, SetTime::To(time) if time.nanoseconds >= 1_000_000_000);
    if bad(set.accessed) || bad(set.modified) {
        Err(StoreError::Invalid)
    } else {
        Ok(())
    }
}
