//! What clients hold of files: opens and locked bytes, as they were answered.
//!
//! A client gives up what an operation frees as soon as it sends it: without an answer it may be free.
//! It has what an operation grants only when that is answered. So what two clients have at the same
//! time must never conflict.

use std::collections::BTreeMap;
use std::ops::Range;

use millrace_wire::nfs4::StateId;

/// Bytes of a file that are locked.
pub const BYTES: usize = 24;
/// Lock owners of a client.
pub const OWNERS: usize = 2;

/// The bytes that a lock owner has of a file: shared or exclusive.
#[derive(Clone, Debug, Default)]
pub struct OwnedLocks {
    /// The stateid, once there is one.
    pub state: Option<StateId>,
    /// By byte: whether it is exclusive.
    pub bytes: [Option<bool>; BYTES],
}

impl OwnedLocks {
    /// Runs of bytes of one mode.
    pub fn runs(&self) -> Vec<(Range<usize>, bool)> {
        let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
        for (byte, mode) in self.bytes.iter().enumerate() {
            let Some(exclusive) = *mode else { continue };
            match runs.last_mut() {
                Some((run, last)) if run.end == byte && *last == exclusive => run.end += 1,
                _ => runs.push((byte..byte + 1, exclusive)),
            }
        }
        runs
    }
}

/// A file that a client has open.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The open.
    pub open: StateId,
    /// A mask of access.
    pub access: u32,
    /// A mask of denied access.
    pub deny: u32,
    /// By lock owner.
    pub locks: [OwnedLocks; OWNERS],
}

/// The files that a client has open.
pub type Holdings = BTreeMap<usize, OpenFile>;

/// Who denies an open, or needs what it denies. `by` is the client that asks.
pub fn open_conflict<'a>(
    all: impl Iterator<Item = &'a Holdings>,
    by: Option<usize>,
    file: usize,
    (access, deny): (u32, u32),
) -> Option<usize> {
    let mut others = all.enumerate().filter(|(client, _)| Some(*client) != by);
    let found = others.find(|(_, holdings)| {
        let open = holdings.get(&file);
        open.is_some_and(|open| open.deny & access != 0 || open.access & deny != 0)
    });
    found.map(|(client, _)| client)
}

/// Who has a lock that excludes another one: the client and its lock owner. `by` are those of the
/// one that asks.
pub fn lock_conflict<'a>(
    all: impl Iterator<Item = &'a Holdings>,
    by: Option<(usize, usize)>,
    file: usize,
    (range, exclusive): (Range<usize>, bool),
) -> Option<(usize, usize)> {
    for (client, holdings) in all.enumerate() {
        let Some(open) = holdings.get(&file) else {
            continue;
        };
        for (owner, locks) in open.locks.iter().enumerate() {
            let excludes = |mode: &Option<bool>| mode.is_some_and(|held| held || exclusive);
            if by != Some((client, owner)) && locks.bytes[range.clone()].iter().any(excludes) {
                return Some((client, owner));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings(access: u32, deny: u32, locked: &[(Range<usize>, bool)]) -> Holdings {
        let mut open = OpenFile {
            open: StateId::ANONYMOUS,
            access,
            deny,
            locks: Default::default(),
        };
        for (range, exclusive) in locked {
            open.locks[0].bytes[range.clone()].fill(Some(*exclusive));
        }
        Holdings::from([(3, open)])
    }

    #[test]
    fn opens_conflict_by_what_either_denies() {
        let all = [holdings(1, 2, &[])];
        let conflict = |by, file, modes| open_conflict(all.iter(), by, file, modes);
        assert_eq!(conflict(None, 3, (2, 0)), Some(0), "it denies writing");
        assert_eq!(conflict(None, 3, (1, 1)), Some(0), "it reads");
        assert_eq!(conflict(None, 3, (1, 2)), None);
        assert_eq!(conflict(None, 4, (3, 3)), None);
        assert_eq!(conflict(Some(0), 3, (3, 3)), None);
    }

    #[test]
    fn locks_conflict_unless_both_are_shared_or_of_one_owner() {
        let all = [holdings(3, 0, &[(0..4, true), (4..8, false)])];
        let conflict = |by, range, exclusive| lock_conflict(all.iter(), by, 3, (range, exclusive));
        assert_eq!(conflict(None, 3..9, false), Some((0, 0)));
        assert_eq!(conflict(None, 4..9, false), None);
        assert_eq!(conflict(None, 7..9, true), Some((0, 0)));
        assert_eq!(conflict(None, 8..9, true), None);
        assert_eq!(conflict(Some((0, 0)), 0..9, true), None);
        assert_eq!(conflict(Some((0, 1)), 0..1, true), Some((0, 0)));
        let runs = all[0][&3].locks[0].runs();
        assert_eq!(runs, [(0..4, true), (4..8, false)]);
    }
}
