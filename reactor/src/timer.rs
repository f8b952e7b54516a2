//! Deadlines: a hierarchical timer wheel.
//!
//! Time is counted in ticks of 65.536 us since the wheel was made. Seven levels of 64 slots each
//! cover nine years; later timers stay at that horizon until it has moved. A timer is on the level
//! where its tick and the wheel's current tick first differ, and moves down as its time approaches.
//! Inserting, cancelling and expiring take constant time (amortised over the levels) and, once the
//! slab has grown, no allocation. No timer expires early; each is due at most one tick late.

use std::time::{Duration, Instant};

const TICK_BITS: u32 = 16;
const LEVELS: usize = 7;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// The farthest tick from the current one that does not share its slot.
const HORIZON: u64 = (SLOTS as u64 - 1) << (SLOT_BITS as usize * (LEVELS - 1));
const NONE: u32 = u32::MAX;

/// Identifies one timer of one wheel; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Timers that return a key when they expire.
#[derive(Debug)]
pub struct TimerWheel<K> {
    origin: Instant,
    /// This tick and all earlier ones have expired.
    present: u64,
    levels: [Level; LEVELS],
    nodes: Vec<Node<K>>,
    free: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    occupied: u64,
    slots: [List; SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Debug)]
struct Node<K> {
    /// Absent while the node is free.
    key: Option<K>,
    generation: u32,
    tick: u64,
    level: u8,
    slot: u8,
    previous: u32,
    /// The next one of the slot, or the next free node.
    next: u32,
}

impl<K> TimerWheel<K> {
    /// A wheel whose time begins at `now`.
    pub fn new(now: Instant) -> Self {
        let level = Level {
            occupied: 0,
            slots: [List {
                head: NONE,
                tail: NONE,
            }; SLOTS],
        };
        let levels = [level; LEVELS];
        Self {
            origin: now,
            present: 0,
            levels,
            nodes: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    /// The number of timers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Advances to `now` if no timer is set; does nothing else. The owner of an unused empty wheel
    /// calls this before the next timer is set: else [`TimerWheel::next_deadline`] may be in the
    /// past, for moves between levels that are not needed.
    pub fn catch_up(&mut self, now: Instant) {
        if self.len == 0 {
            self.present = self.present.max(self.tick_before(now));
        }
    }

    /// Sets a timer. One whose deadline has passed expires with the next tick.
    pub fn insert(&mut self, deadline: Instant, key: K) -> TimerId {
        let tick = self.tick_after(deadline).max(self.present + 1);
        let index = if self.free == NONE {
            let (level, slot) = (0, 0);
            let (previous, next) = (NONE, NONE);
            let key = Some(key);
            self.nodes.push(Node {
                key,
                generation: 0,
                tick,
                level,
                slot,
                previous,
                next,
            });
            u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 timers")
        } else {
            let index = self.free;
            let node = &mut self.nodes[index as usize];
            self.free = node.next;
            node.key = Some(key);
            node.tick = tick;
            index
        };
        self.len += 1;
        self.link(index);
        TimerId {
            index,
            generation: self.nodes[index as usize].generation,
        }
    }

    /// Cancels a timer. `None` if it has expired or was cancelled.
    pub fn cancel(&mut self, timer: TimerId) -> Option<K> {
        let node = self.nodes.get(timer.index as usize)?;
        if node.generation != timer.generation || node.key.is_none() {
            return None;
        }
        self.unlink(timer.index);
        self.release(timer.index)
    }

    /// Advances to `now` and appends the keys that expired, by tick, and within a tick by the order
    /// of insertion (except for those set from further away).
    pub fn expired(&mut self, now: Instant, keys: &mut Vec<K>) {
        let now = self.tick_before(now);
        while let Some((level, slot, start)) = self.next_slot()
            && start <= now
        {
            self.present = start;
            self.levels[level].occupied &= !(1 << slot);
            let empty = List {
                head: NONE,
                tail: NONE,
            };
            let mut index = std::mem::replace(&mut self.levels[level].slots[slot], empty).head;
            while index != NONE {
                let Node { next, tick, .. } = self.nodes[index as usize];
                if tick <= start {
                    keys.extend(self.release(index));
                } else {
                    self.link(index);
                }
                index = next;
            }
        }
        self.present = self.present.max(now);
    }

    /// When [`TimerWheel::expired`] has work: never later than the first deadline by more than a
    /// tick, but possibly earlier, when timers only move between levels.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (_, _, start) = self.next_slot()?;
        let nanoseconds = u128::from(start) << TICK_BITS;
        let seconds = u64::try_from(nanoseconds / 1_000_000_000).ok()?;
        let rest = u32::try_from(nanoseconds % 1_000_000_000).expect("below a second");
        self.origin.checked_add(Duration::new(seconds, rest))
    }

    /// The first non-empty slot: its level, index and first tick.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // Timers on lower levels share more of their tick with the current one, so they come first.
        let (number, level) = self
            .levels
            .iter()
            .enumerate()
            .find(|(_, level)| level.occupied != 0)?;
        let shift = SLOT_BITS * u32::try_from(number).expect("seven levels");
        let here = (self.present >> shift) % SLOTS as u64;
        let here = u32::try_from(here).expect("below 64");
        let ahead = level.occupied.rotate_right(here).trailing_zeros();
        let slot = (here + ahead) as usize % SLOTS;
        let start = ((self.present >> shift) + u64::from(ahead)) << shift;
        Some((number, slot, start))
    }

    fn link(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        // Timers beyond it are placed again when the horizon has moved.
        let tick = node.tick.min(self.present + HORIZON);
        let differs = (tick ^ self.present) | 1;
        // Crossing the top level's end differs above it; the slot is then reached by wrapping.
        let level = (differs.ilog2() / SLOT_BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (SLOT_BITS * level)) % SLOTS as u64;
        node.level = u8::try_from(level).expect("seven levels");
        node.slot = u8::try_from(slot).expect("below 64");
        node.next = NONE;
        let level = &mut self.levels[level as usize];
        level.occupied |= 1 << slot;
        let list = &mut level.slots[usize::from(node.slot)];
        node.previous = list.tail;
        let previous = std::mem::replace(&mut list.tail, index);
        match previous {
            NONE => list.head = index,
            previous => self.nodes[previous as usize].next = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let Node {
            level,
            slot,
            previous,
            next,
            ..
        } = self.nodes[index as usize];
        let level = &mut self.levels[usize::from(level)];
        let list = &mut level.slots[usize::from(slot)];
        match previous {
            NONE => list.head = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => list.tail = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        if list.head == NONE {
            level.occupied &= !(1 << slot);
        }
    }

    fn release(&mut self, index: u32) -> Option<K> {
        let node = &mut self.nodes[index as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = std::mem::replace(&mut self.free, index);
        self.len -= 1;
        node.key.take()
    }

    fn tick_before(&self, now: Instant) -> u64 {
        ticks(now.saturating_duration_since(self.origin))
    }

    fn tick_after(&self, deadline: Instant) -> u64 {
        let since = deadline.saturating_duration_since(self.origin);
        ticks(since.saturating_add(Duration::from_nanos((1 << TICK_BITS) - 1)))
    }
}

fn ticks(since: Duration) -> u64 {
    u64::try_from(since.as_nanos() >> TICK_BITS).unwrap_or(u64::MAX)
}
