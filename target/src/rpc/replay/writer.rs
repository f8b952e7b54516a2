//! The slots of a journal that is being written.

use std::time::Duration;

use memmap2::MmapMut;
use millrace_reactor::Clock;

use super::CallKey;
use super::layout::{Begin, JournalSlot, SLOT, Sealer};
use super::moment::{Moment, Timeline};
use super::shared_slots::{SharedFile, WrittenSlots};

/// How many slots are examined to find one whose call has ended.
const TRIES: usize = 64;

/// How long a call waits until other servers can read what was recorded of it.
const WRITTEN_WAIT: Duration = Duration::from_secs(1);

/// One reactor's slots.
#[derive(Debug)]
pub struct Writer {
    slots: Slots,
    timeline: Timeline,
    /// When the call of each slot ended; `u64::MAX` while it runs.
    ended: Vec<u64>,
    next: usize,
    sequence: u64,
    /// Calls without a free slot, or with a reply that is longer than a slot.
    unrecorded: u64,
}

/// A slot that holds a call being executed.
#[derive(Debug)]
#[must_use = "a call ends as done, void or unknown"]
pub struct JournalPlace(usize, u64);

/// Slots in a row of a file.
#[derive(Debug)]
pub(super) struct Slots {
    /// The slots: the file itself, or a copy if other servers read the file.
    map: MmapMut,
    sealer: Sealer,
    first: u64,
    /// The file that other servers read.
    shared: Option<SharedFile>,
}

impl Slots {
    /// Slots in `map`, the first of which has the number `first` in the file.
    pub fn new(map: MmapMut, sealer: Sealer, first: u64, shared: Option<SharedFile>) -> Self {
        Self {
            map,
            sealer,
            first,
            shared,
        }
    }

    fn slot(&mut self, index: usize) -> (&mut [u8], u64) {
        let at = index * SLOT;
        (&mut self.map[at..at + SLOT], self.first + index as u64)
    }

    /// Writes that a call is about to be executed.
    pub fn begin(&mut self, index: usize, sequence: u64, begin: &Begin) {
        let sealer = self.sealer;
        let (slot, place) = self.slot(index);
        sealer.begin(slot, place, sequence, begin);
        self.share(index);
    }

    /// Writes that a call was executed and answered so. Says whether the reply is short enough.
    fn done(&mut self, index: usize, sequence: u64, ended: u64, reply: &[u8]) -> bool {
        let sealer = self.sealer;
        let (slot, place) = self.slot(index);
        let fits = sealer.done(slot, place, sequence, ended, reply);
        self.share(index);
        fits
    }

    /// The call of a slot is settled elsewhere.
    pub fn void(&mut self, index: usize, sequence: u64) {
        let sealer = self.sealer;
        let (slot, place) = self.slot(index);
        sealer.void(slot, place, sequence);
        self.share(index);
    }

    /// The content of a slot, and the sequence number that it was written under.
    pub fn read(&mut self, index: usize) -> (JournalSlot, u64) {
        let sealer = self.sealer;
        let (slot, place) = self.slot(index);
        sealer.read(slot, place)
    }

    fn share(&self, index: usize) {
        if let Some(shared) = &self.shared {
            let at = index * SLOT;
            shared.put(self.first + index as u64, &self.map[at..at + SLOT]);
        }
    }
}

impl Writer {
    pub(super) fn new(slots: Slots, timeline: Timeline) -> Self {
        Self {
            ended: vec![0; slots.map.len() / SLOT],
            slots,
            timeline,
            next: 0,
            sequence: 0,
            unrecorded: 0,
        }
    }

    /// Records that a call is about to be executed, which began at `began` and changes the names
    /// that `targets` are the hashes of. `None` where all slots are taken by running calls.
    pub fn begin(
        &mut self,
        key: &CallKey,
        began: Moment,
        targets: [u64; 2],
        contested: bool,
    ) -> Option<JournalPlace> {
        let found = (0..TRIES)
            .map(|step| (self.next + step) % self.ended.len())
            .find(|&index| self.ended[index] != u64::MAX);
        let Some(index) = found else {
            self.next = (self.next + TRIES) % self.ended.len();
            self.unrecorded += 1;
            return None;
        };
        self.next = (index + 1) % self.ended.len();
        self.sequence += 1;
        let begin = Begin {
            key: *key,
            began: self.timeline.time(began),
            wall: began.wall,
            evicted: self.ended[index],
            targets,
            contested,
        };
        self.slots.begin(index, self.sequence, &begin);
        self.ended[index] = u64::MAX;
        Some(JournalPlace(index, self.sequence))
    }

    /// The call was executed, and is answered so.
    pub fn done(&mut self, place: &JournalPlace, now: Moment, reply: &[u8]) {
        let &JournalPlace(index, sequence) = place;
        let ended = self.timeline.time(now);
        self.ended[index] = ended;
        if !self.slots.done(index, sequence, ended, reply) {
            self.unrecorded += 1;
        }
    }

    /// The call was not executed.
    pub fn void(&mut self, place: &JournalPlace) {
        let &JournalPlace(index, sequence) = place;
        self.slots.void(index, sequence);
        self.ended[index] = 0;
    }

    /// The call was abandoned; it is unknown whether it was executed.
    pub fn unknown(&mut self, place: &JournalPlace, now: Moment) {
        self.ended[place.0] = self.timeline.time(now);
    }

    /// Calls that could not be recorded, or not their replies.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// What to wait for until other servers can read all that was recorded, if they do. It ends
    /// after a second at the latest. While the file system is slower than that, nothing waits.
    #[must_use]
    pub fn written(&self, clock: &Clock) -> Option<WrittenSlots> {
        let shared = self.slots.shared.as_ref()?;
        shared.written(|| clock.sleep_until(clock.now() + WRITTEN_WAIT))
    }
}
