//! The groups of a caller.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use arrayvec::ArrayVec;

/// Groups stored inline: as many as AUTH_SYS carries (RFC 5531 appendix A).
const FEW: usize = 16;

/// Groups besides the primary one. Up to 16 are stored inline, so that no call with AUTH_SYS
/// allocates; more are shared by the calls of a user.
#[derive(Clone)]
pub struct CallerGroups(GroupStorage);

#[derive(Clone)]
enum GroupStorage {
    Few(ArrayVec<u32, FEW>),
    Many(Arc<[u32]>),
}

impl CallerGroups {
    /// No groups.
    pub const NONE: Self = Self(GroupStorage::Few(ArrayVec::new_const()));

    /// The list shared with other calls, if it is one.
    pub(crate) fn shared(&self) -> Option<&Arc<[u32]>> {
        match &self.0 {
            GroupStorage::Few(_) => None,
            GroupStorage::Many(groups) => Some(groups),
        }
    }
}

impl Default for CallerGroups {
    fn default() -> Self {
        Self::NONE
    }
}

impl Deref for CallerGroups {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        match &self.0 {
            GroupStorage::Few(groups) => groups,
            GroupStorage::Many(groups) => groups,
        }
    }
}

impl From<ArrayVec<u32, FEW>> for CallerGroups {
    #[inline]
    fn from(groups: ArrayVec<u32, FEW>) -> Self {
        Self(GroupStorage::Few(groups))
    }
}

impl From<&Arc<[u32]>> for CallerGroups {
    #[inline]
    fn from(groups: &Arc<[u32]>) -> Self {
        let mut few = ArrayVec::new();
        Self(match few.try_extend_from_slice(groups) {
            Ok(()) => GroupStorage::Few(few),
            Err(_) => GroupStorage::Many(Arc::clone(groups)),
        })
    }
}

impl FromIterator<u32> for CallerGroups {
    fn from_iter<I: IntoIterator<Item = u32>>(groups: I) -> Self {
        let mut groups = groups.into_iter();
        let mut few = ArrayVec::new();
        while !few.is_full() {
            match groups.next() {
                Some(group) => few.push(group),
                None => return few.into(),
            }
        }
        match groups.next() {
            None => few.into(),
            Some(next) => Self(GroupStorage::Many(
                few.into_iter().chain([next]).chain(groups).collect(),
            )),
        }
    }
}

impl<'g> IntoIterator for &'g CallerGroups {
    type Item = &'g u32;
    type IntoIter = std::slice::Iter<'g, u32>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for CallerGroups {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for CallerGroups {}

impl Hash for CallerGroups {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl fmt::Debug for CallerGroups {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gss_sec_12_more_groups_than_auth_sys_carries_are_shared() {
        for count in [0, 1, 16, 17, 1024] {
            let list: Arc<[u32]> = (0..count).collect();
            let groups = CallerGroups::from(&list);
            assert_eq!(groups[..], list[..]);
            assert_eq!(groups, (0..count).collect::<CallerGroups>());
            assert_eq!(Arc::strong_count(&list) > 1, count > 16);
            assert_eq!(groups.shared().is_some(), count > 16);
        }
    }
}
