//! Ranges against a bitmap of 64 bytes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::state::ranges::{LockedRange, LockedRanges};

const BYTES: u64 = 64;
const OWNERS: usize = 3;

/// What a random step does: owner, first byte, length, and the mode, or none to unlock.
type RangeStep = (usize, u64, u64, Option<LockMode>);

fn steps() -> impl Strategy<Value = Vec<RangeStep>> {
    let mode = prop_oneof![
        Just(None),
        Just(Some(LockMode::Read)),
        Just(Some(LockMode::Write))
    ];
    let step = (0..OWNERS, 0..BYTES, 1..=BYTES, mode);
    proptest::collection::vec(step, 1..60)
}

/// The mode that each owner has on each byte.
struct ByteMap([[Option<LockMode>; OWNERS]; BYTES as usize]);

impl ByteMap {
    fn empty() -> Self {
        Self([[None; OWNERS]; BYTES as usize])
    }

    fn set(&mut self, owner: usize, bytes: std::ops::Range<u64>, mode: Option<LockMode>) {
        for byte in bytes {
            self.0[byte as usize][owner] = mode;
        }
    }

    fn conflicts(&self, owner: usize, mut bytes: std::ops::Range<u64>, mode: LockMode) -> bool {
        bytes.any(|byte| {
            let owners = self.0[byte as usize].iter().enumerate();
            let mut others = owners.filter(|(other, _)| *other != owner);
            others.any(|(_, other)| other.is_some_and(|other| other.excludes(mode)))
        })
    }

    /// Runs of equal bytes of all owners.
    fn runs(&self) -> usize {
        let runs = |owner: usize| {
            let modes = self.0.iter().map(|owners| owners[owner]);
            let before = std::iter::once(None).chain(modes.clone());
            let begins = before.zip(modes);
            begins
                .filter(|(before, mode)| mode.is_some() && before != mode)
                .count()
        };
        (0..OWNERS).map(runs).sum()
    }
}

/// The end of the range and the range. Steps up to the last byte run to the end of all files.
fn range(first: u64, length: u64) -> (u64, ByteRange) {
    let end = (first + length).min(BYTES);
    let length = if end == BYTES { u64::MAX } else { end - first };
    (end, ByteRange::new(first, length).unwrap())
}

proptest! {
    #[test]
    fn v4_lock_06_ranges_behave_as_single_bytes(steps in steps()) {
        let mut map = ByteMap::empty();
        let mut ranges = LockedRanges::default();
        for (owner, first, length, mode) in steps {
            let (end, range) = range(first, length);
            let index = u32::try_from(owner).unwrap();
            if let Some(mode) = mode {
                let conflicts = map.conflicts(owner, first..end, mode);
                let found = ranges.conflicts(Some(index), range, mode).next();
                prop_assert_eq!(found.is_some(), conflicts);
                if conflicts {
                    continue;
                }
                ranges.lock(LockedRange { range, mode, owner: index, state: index });
            } else {
                ranges.unlock(index, range);
            }
            map.set(owner, first..end, mode);
            prop_assert_eq!(ranges.len(), map.runs(), "split and merged as little as possible");
            let mut seen = ByteMap::empty();
            for one in ranges.iter() {
                let end = one.range.offset().saturating_add(one.range.length()).min(BYTES);
                seen.set(one.owner as usize, one.range.offset()..end, Some(one.mode));
            }
            prop_assert_eq!(seen.0, map.0);
        }
    }

    #[test]
    fn v4_lock_06_locks_of_clients_behave_as_single_bytes(steps in steps()) {
        let mut map = ByteMap::empty();
        let mut bed = TestBed::new();
        let owners = [b"a", b"b", b"c"].map(|name| {
            let client = bed.client(name);
            let open = bed.open_both(&client, b"o", file(1));
            (client, open)
        });
        let mut locks: [Option<Stateid>; OWNERS] = [None; OWNERS];
        for (owner, first, length, mode) in steps {
            let (client, open) = &owners[owner];
            let (end, range) = range(first, length);
            let held = locks[owner];
            let outcome = match (mode, held) {
                (None, None) => continue,
                (None, Some(lock)) => bed.unlock(client, file(1), lock, (first, range.length())),
                (Some(mode), held) => {
                    let holder = match held {
                        Some(lock) => LockHolder::Existing(lock),
                        None => LockHolder::New { open: *open, owner: b"l" },
                    };
                    let outcome =
                        bed.lock(client, file(1), holder, (first, range.length()), mode);
                    let denied = matches!(outcome, Err(StateError::Denied(_)));
                    prop_assert_eq!(denied, map.conflicts(owner, first..end, mode));
                    if denied {
                        continue;
                    }
                    outcome
                }
            };
            let lock = outcome.unwrap();
            prop_assert_eq!(lock.sequence, held.map_or(1, |held| held.sequence + 1));
            locks[owner] = Some(lock);
            map.set(owner, first..end, mode);
        }
    }
}

#[test]
fn v4_lock_06_neighbours_of_different_states_are_not_merged() {
    let mut ranges = LockedRanges::default();
    let mut lock = |offset, state, mode| {
        ranges.lock(LockedRange {
            range: ByteRange::new(offset, 10).unwrap(),
            mode,
            owner: 1,
            state,
        });
        ranges.len()
    };
    assert_eq!(lock(0, 1, LockMode::Read), 1);
    assert_eq!(lock(10, 2, LockMode::Read), 2);
    assert_eq!(lock(20, 2, LockMode::Write), 3);
    assert_eq!(lock(30, 2, LockMode::Write), 3);
    ranges.unlock_states(&BTreeSet::from([2]));
    assert_eq!(ranges.len(), 1);
    assert!(ranges.has_state(1) && !ranges.has_state(2));
}
