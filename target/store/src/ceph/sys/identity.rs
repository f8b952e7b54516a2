//! On whose behalf a call is made.

use std::ptr::NonNull;

use super::bindings::{RawIdentity, ceph_userperm_destroy, ceph_userperm_new};
use crate::Caller;

/// A user with its groups.
pub struct Identity {
    raw: NonNull<RawIdentity>,
    /// The library uses this list, and does not copy it.
    _groups: Box<[u32]>,
}

// SAFETY: the library only reads it, and nothing of it belongs to a thread.
unsafe impl Send for Identity {}
// SAFETY: as above.
unsafe impl Sync for Identity {}

impl Identity {
    /// The identity of a caller.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn of(caller: &Caller) -> Self {
        let mut groups: Box<[u32]> = (*caller.groups).into();
        let count = i32::try_from(groups.len()).expect("at most sixteen");
        // SAFETY: the list has as many groups as told, and lives as long as the identity.
        let raw = unsafe { ceph_userperm_new(caller.uid, caller.gid, count, groups.as_mut_ptr()) };
        Self {
            raw: NonNull::new(raw).expect("memory"),
            _groups: groups,
        }
    }

    pub(super) fn as_ptr(&self) -> *const RawIdentity {
        self.raw.as_ptr()
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        // SAFETY: it is this value's own, and no call uses it any more.
        unsafe { ceph_userperm_destroy(self.raw.as_ptr()) }
    }
}
