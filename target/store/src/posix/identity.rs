//! On whose behalf the kernel does something.

use std::sync::Arc;

use crate::Caller;

/// A user with groups, as threads take it on and rings know it. Clones share one value; equal ones
/// mean the same rights.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Arc<Person>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Person {
    uid: u32,
    gid: u32,
    groups: Box<[u32]>,
}

impl Identity {
    /// Who a caller is, with the groups that came along.
    #[must_use]
    pub fn of(caller: &Caller) -> Self {
        Self::with_groups(caller.uid, caller.gid, &caller.groups)
    }

    /// A user with these other groups; their order and repetitions mean nothing.
    #[must_use]
    pub fn with_groups(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        Self(Arc::new(Person {
            uid,
            gid,
            groups: groups.into(),
        }))
    }

    /// User.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Primary group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Other groups, ascending.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.0.groups
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.0.gid == gid || self.0.groups.binary_search(&gid).is_ok()
    }

    /// Whether it is the user that passes permission checks.
    #[must_use]
    pub fn is_superuser(&self) -> bool {
        self.0.uid == 0
    }
}
