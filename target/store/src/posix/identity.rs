//! The identity by which the kernel performs an operation.
//!
//! The kernel checks what a caller may do: permissions, quotas, reserved blocks, set-id bits, and
//! the owner of new objects. It uses the credentials of the calling thread, or of the *personality*
//! of a ring's operation. Both are used:
//!
//! * **Data** (reads and writes): a ring's operation carries the caller's personality, which is
//!   registered when the caller is first seen. The ring knows a bounded number of them.
//! * **Names and attributes**: a helper thread assumes the caller's credentials for one job
//!   ([`assume`]), which checks, changes and syncs.
//! * **Names and rights that the kernel has in memory**: the reactor assumes the caller's credentials
//!   itself, for queries that do not block (`query_as`).
//!
//! A thread that has assumed other credentials has new ones afterwards, although equal, and can no
//! longer use the RDMA devices that it has opened (`ib_safe_file_access` in the kernel). So a reactor
//! that uses devices never does: a helper registers personalities for it, and looks up what another
//! reactor would itself.
//!
//! Measured by `examples/credentials.rs` on Linux 6.18 and tmpfs, on two shared virtual processors:
//!
//! | what | each |
//! | --- | --- |
//! | 4 KiB write by a ring, 16 at once: as the process / as one user / as 1000 users in turn | 0.9 / 0.9 / 1.0 us |
//! | the same, with a new registration for every user | 5.2 us |
//! | a thread assumes a user and restores its own credentials, supplementary groups as the last time | 2.3 us |
//! | the same with 16 other groups / with 1000 other groups | 4.2 / 580 us |
//! | a personality registered and unregistered, including the thread's part | 3.7 us |
//! | a helper's empty job, round trip / as a user | 2.5 / 5.3 us |
//! | `statx`: helper as a user / ring, one at once / ring, 16 at once | 5.6 / 2.9 / 0.65 us |
//! | open and close: helper as a user / ring, one at once / ring, 16 at once | 5.8 / 0.9 / 0.7 us |
//! | `mkdir` and `rmdir`, 16 at once: helper, one job / ring, one after the other | 10.8 / 4.6 us |
//!
//! So personalities are almost free once registered, and cheaper to register than a write; data
//! belongs in the ring. For a single system call about names a ring would be faster too. But one
//! operation of the protocol is four to eight of them that depend on one another, under a
//! directory's lock; some are not available in rings (handles, most changes of attributes); and
//! calls that may block run on threads of the kernel that all volumes of a reactor share, where one
//! dead device could use them all up. One job as the caller costs 3 us more than one as the
//! superuser, which is little compared with the disk latency of a durable change.
//!
//! Besides user and groups, a caller other than user 0 loses the capabilities that bypass
//! permission checks of file systems, and the one that bypasses quotas and reserved blocks
//! (CAP_SYS_RESOURCE), as with Linux's own server. If the process may not act on behalf of others
//! ([`privileged`]), all operations are done as the process itself.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrayvec::ArrayVec;

pub use super::sys::identity::{assume, can_act_as_others, privileged};
pub(super) use super::sys::identity::{is_own, query_as};
use crate::Caller;

/// Groups stored inline: as many as calls can carry.
const FEW: usize = 16;

/// A user with groups, as assumed by threads and registered with rings. Equal ones have the same
/// rights. With up to 16 groups, making and cloning one allocates nothing.
#[derive(Clone, Debug)]
pub struct Identity {
    uid: u32,
    gid: u32,
    groups: Groups,
}

#[derive(Clone, Debug)]
enum Groups {
    Few(ArrayVec<u32, FEW>),
    Many(Arc<[u32]>),
}

impl Identity {
    /// The identity of a caller, with the groups of the call. An ascending shared list is shared.
    #[must_use]
    pub fn of(caller: &Caller) -> Self {
        match caller.groups.shared() {
            Some(groups) if groups.is_sorted_by(|one, next| one < next) => Self {
                uid: caller.uid,
                gid: caller.gid,
                groups: Groups::Many(Arc::clone(groups)),
            },
            _ => Self::with_groups(caller.uid, caller.gid, &caller.groups),
        }
    }

    /// A user with other groups; their order and repetitions are irrelevant.
    #[must_use]
    pub fn with_groups(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            uid,
            gid,
            groups: Groups::of(groups),
        }
    }

    /// User.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Primary group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Supplementary groups, ascending.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        match &self.groups {
            Groups::Few(groups) => groups,
            Groups::Many(groups) => groups,
        }
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().binary_search(&gid).is_ok()
    }

    /// Whether it is the user that bypasses permission checks.
    #[must_use]
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }
}

impl Groups {
    fn of(groups: &[u32]) -> Self {
        let mut few = ArrayVec::new();
        if few.try_extend_from_slice(groups).is_ok() {
            few.sort_unstable();
            let count = distinct(&mut few);
            few.truncate(count);
            return Self::Few(few);
        }
        let mut many = groups.to_vec();
        many.sort_unstable();
        many.dedup();
        Self::Many(many.into())
    }
}

/// Moves the distinct elements of a sorted list to its front. Returns their number.
fn distinct(sorted: &mut [u32]) -> usize {
    let mut count = 0;
    for index in 0..sorted.len() {
        if count == 0 || sorted[count - 1] != sorted[index] {
            sorted[count] = sorted[index];
            count += 1;
        }
    }
    count
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        (self.uid, self.gid, self.groups()) == (other.uid, other.gid, other.groups())
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.uid, self.gid, self.groups()).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::Arc;

    use super::Identity;
    use crate::Caller;

    #[test]
    fn order_and_repetitions_of_groups_mean_nothing() {
        let many: Vec<u32> = (0..40).map(|group| group % 20).collect();
        let state = RandomState::new();
        for (one, other) in [
            (&[][..], &[][..]),
            (&[3, 1, 2, 1, 3][..], &[1, 2, 3][..]),
            (&many[..], &many[..20]),
            (&[7; 17][..], &[7][..]),
        ] {
            let one = Identity::with_groups(1, 2, one);
            let other = Identity::with_groups(1, 2, other);
            assert_eq!(one, other);
            assert_eq!(one.groups(), other.groups());
            assert_eq!(state.hash_one(&one), state.hash_one(&other));
        }
        // An ascending list that is shared stays so, and any other one is sorted.
        for (list, is_shared) in [((0..20).collect(), true), ((0..20).rev().collect(), false)] {
            let list: Arc<[u32]> = list;
            let caller = Caller {
                uid: 1,
                gid: 2,
                groups: (&list).into(),
            };
            let identity = Identity::of(&caller);
            assert_eq!(identity, Identity::with_groups(1, 2, &many));
            assert_eq!(Arc::strong_count(&list), if is_shared { 3 } else { 2 });
        }
        let identity = Identity::with_groups(1, 2, &[5, 4, 5]);
        assert_eq!(identity.groups(), [4, 5]);
        for other in [
            Identity::with_groups(0, 2, &[4, 5]),
            Identity::with_groups(1, 0, &[4, 5]),
            Identity::with_groups(1, 2, &[4]),
        ] {
            assert_ne!(identity, other);
            assert_ne!(state.hash_one(&identity), state.hash_one(&other));
        }
    }
}
