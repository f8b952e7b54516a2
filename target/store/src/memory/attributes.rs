//! Attributes of an object, read without a lock.
//!
//! A sequence lock of atomics. Readers copy all words and repeat if a change came between, so they
//! always see attributes of one moment. Writers hold a lock for a whole change, which may include a
//! change of a file's bytes. Readers wait only while a change is published.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

use crate::{Attributes, Caller, Kind, Result, StoreError, Time};

/// Set user id, set group id and sticky bits, beside the permission bits.
pub(super) const SET_USER: u32 = 0o4000;
pub(super) const SET_GROUP: u32 = 0o2000;
pub(super) const STICKY: u32 = 0o1000;
pub(super) const MODE_BITS: u32 = 0o7777;
/// Beside the mode: whether the access control list has entries for users or groups.
pub(super) const HAS_LIST: u32 = 1 << 31;

/// How often a reader looks again before it gives its core to the writer.
const SPINS_MAX: u32 = 64;
const WORDS: usize = 10;

/// What can change about an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub mode: u32,
    /// The number of names.
    pub links: u32,
    /// The number of holds ([`crate::Namespace::hold`]).
    pub holds: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    /// Counts the times that extents left the file: odd while they are leaving. Who collected
    /// extents without a lock compares it before and after.
    pub revision: u64,
}

impl Stored {
    pub fn attributes(&self, kind: Kind, inode: u64) -> Attributes {
        Attributes {
            kind,
            mode: self.mode & MODE_BITS,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            used: self.used,
            inode,
            file_system: 0,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            // It rises with each change ([`Stored::change_time`]), also from one start to the next.
            change: self.changed.as_nanoseconds(),
        }
    }

    /// Whether the object has ended: it has no name any more, and nobody holds it.
    pub fn is_gone(&self) -> bool {
        self.links == 0 && self.holds == 0
    }

    /// The time of a change made now. Later than the last change even where the clock is not, so
    /// that clients that compare change times miss none.
    pub fn change_time(&self) -> Time {
        let now = Time::now();
        if now > self.changed {
            now
        } else {
            next_nanosecond(self.changed)
        }
    }

    /// Marks a change of attributes alone.
    pub fn touch_changed(&mut self) {
        self.changed = self.change_time();
    }

    /// Marks a change of the data.
    pub fn touch_modified(&mut self) {
        self.touch_changed();
        self.modified = self.changed;
    }

    /// Takes away set-id bits, as a change by someone else than the superuser does. A set group
    /// id bit without group execution means mandatory locking and stays.
    pub fn clear_set_id(&mut self) {
        self.mode &= !SET_USER;
        if self.mode & 0o010 != 0 {
            self.mode &= !SET_GROUP;
        }
    }

    /// Marks a write by a caller that ends at a byte of the file.
    pub fn note_write(&mut self, end: u64, caller: &Caller) {
        self.size = self.size.max(end);
        self.touch_modified();
        if caller.uid != 0 {
            self.clear_set_id();
        }
    }

    fn pack(&self) -> [u64; WORDS] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        [
            pair(self.mode, self.links),
            pair(self.uid, self.gid),
            self.size,
            self.used,
            self.accessed.seconds,
            self.modified.seconds,
            self.changed.seconds,
            pair(self.accessed.nanoseconds, self.modified.nanoseconds),
            pair(self.holds, self.changed.nanoseconds),
            self.revision,
        ]
    }

    fn unpack(words: [u64; WORDS]) -> Self {
        let high = |word: u64| (word >> 32) as u32;
        let low = |word: u64| word as u32;
        let time = |seconds, nanoseconds| Time {
            seconds,
            nanoseconds,
        };
        Self {
            mode: high(words[0]),
            links: low(words[0]),
            holds: high(words[8]),
            uid: high(words[1]),
            gid: low(words[1]),
            size: words[2],
            used: words[3],
            accessed: time(words[4], high(words[7])),
            modified: time(words[5], low(words[7])),
            changed: time(words[6], low(words[8])),
            revision: words[9],
        }
    }
}

/// The attributes of one object, shared by all reactors.
pub(super) struct AttributeCell {
    /// Whether the object is being changed.
    locked: AtomicBool,
    /// Odd while a writer stores.
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl AttributeCell {
    pub fn new(stored: &Stored) -> Self {
        Self {
            locked: AtomicBool::new(false),
            sequence: AtomicU64::new(0),
            words: stored.pack().map(AtomicU64::new),
        }
    }

    /// The attributes of one moment.
    pub fn load(&self) -> Stored {
        let mut spins = 0;
        loop {
            let sequence = self.sequence.load(Acquire);
            if sequence & 1 == 0 {
                let words = std::array::from_fn(|index| self.words[index].load(Relaxed));
                fence(Acquire);
                if self.sequence.load(Relaxed) == sequence {
                    return Stored::unpack(words);
                }
            }
            pause(&mut spins);
        }
    }

    /// A number that tells later changes from those before: see [`AttributeCell::is_at`].
    #[inline]
    pub fn mark(&self) -> u64 {
        self.sequence.load(Acquire)
    }

    /// Whether nothing was changed since a mark. The caller's reads come before this one.
    #[inline]
    pub fn is_at(&self, mark: u64) -> bool {
        fence(Acquire);
        mark & 1 == 0 && self.sequence.load(Relaxed) == mark
    }

    /// The attributes of an object that has not ended.
    pub fn live(&self) -> Result<Stored> {
        let stored = self.load();
        if stored.is_gone() {
            Err(StoreError::Stale)
        } else {
            Ok(stored)
        }
    }

    /// Keeps others from changing the object.
    pub fn lock(&self) -> AttributeWriter<'_> {
        let mut spins = 0;
        loop {
            if let Some(writer) = self.try_lock() {
                return writer;
            }
            pause(&mut spins);
        }
    }

    /// Changes the attributes in one step.
    pub fn update<R>(&self, change: impl FnOnce(&mut Stored) -> R) -> R {
        self.lock().apply(change)
    }

    /// As [`AttributeCell::update`], but gives up where another change is under way.
    pub fn try_update(&self, change: impl FnOnce(&mut Stored)) {
        if let Some(mut writer) = self.try_lock() {
            writer.apply(change);
        }
    }

    fn try_lock(&self) -> Option<AttributeWriter<'_>> {
        if self.locked.load(Relaxed) {
            return None;
        }
        self.locked
            .compare_exchange(false, true, Acquire, Relaxed)
            .ok()?;
        Some(AttributeWriter { cell: self })
    }
}

/// The right to change an object; given back on drop, also when a change panics.
pub(super) struct AttributeWriter<'a> {
    cell: &'a AttributeCell,
}

impl AttributeWriter<'_> {
    /// The attributes as they are.
    pub fn stored(&self) -> Stored {
        let words = &self.cell.words;
        Stored::unpack(std::array::from_fn(|index| words[index].load(Relaxed)))
    }

    /// Makes other attributes those of the object, in one step.
    pub fn publish(&mut self, stored: &Stored) {
        let sequence = self.cell.sequence.load(Relaxed);
        self.cell.sequence.store(sequence + 1, Relaxed);
        // Readers that see a new word see the odd sequence too.
        fence(Release);
        for (word, value) in self.cell.words.iter().zip(stored.pack()) {
            word.store(value, Relaxed);
        }
        self.cell.sequence.store(sequence + 2, Release);
    }

    fn apply<R>(&mut self, change: impl FnOnce(&mut Stored) -> R) -> R {
        let mut stored = self.stored();
        let result = change(&mut stored);
        self.publish(&stored);
        result
    }
}

impl Drop for AttributeWriter<'_> {
    fn drop(&mut self) {
        self.cell.locked.store(false, Release);
    }
}

/// Waits for a moment, and gives the core to another thread if there have been many.
pub(super) fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

fn next_nanosecond(time: Time) -> Time {
    match time.nanoseconds {
        999_999_999.. => Time {
            seconds: time.seconds.saturating_add(1),
            nanoseconds: 0,
        },
        nanoseconds => Time {
            nanoseconds: nanoseconds + 1,
            ..time
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Stored {
        Stored {
            mode: 0o644,
            links: 1,
            holds: 0,
            uid: 2,
            gid: 3,
            size: 4,
            used: 5,
            accessed: Time {
                seconds: 6,
                nanoseconds: 7,
            },
            modified: Time {
                seconds: 8,
                nanoseconds: 9,
            },
            changed: Time {
                seconds: 10,
                nanoseconds: 11,
            },
            revision: 12,
        }
    }

    #[test]
    fn words_keep_every_attribute() {
        let stored = sample();
        let again = Stored::unpack(stored.pack());
        assert_eq!(format!("{stored:?}"), format!("{again:?}"));
    }

    #[test]
    fn change_times_rise_even_when_the_clock_does_not() {
        let future = Time {
            seconds: u64::MAX - 1,
            nanoseconds: 999_999_999,
        };
        let mut stored = Stored {
            changed: future,
            ..sample()
        };
        stored.touch_modified();
        assert_eq!(
            stored.changed,
            Time {
                seconds: u64::MAX,
                nanoseconds: 0
            }
        );
        assert_eq!(stored.modified, stored.changed);
    }

    #[test]
    fn v4_attr_27_readers_never_see_half_a_change() {
        let cell = AttributeCell::new(&Stored {
            size: 0,
            used: 0,
            revision: 0,
            ..sample()
        });
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        cell.update(|stored| {
                            stored.size += 1;
                            stored.used += 1;
                            stored.revision += 1;
                        });
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let stored = cell.load();
                    assert_eq!(stored.size, stored.used);
                    assert_eq!(stored.size, stored.revision);
                }
            });
        });
        assert_eq!(cell.load().size, 40_000);
    }

    #[test]
    fn a_panic_in_a_change_leaves_the_cell_usable_and_unchanged() {
        let cell = AttributeCell::new(&sample());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cell.update(|stored| {
                stored.size = 99;
                panic!("a failing change");
            })
        }));
        assert!(outcome.is_err());
        assert_eq!(cell.load().size, 4);
    }
}
