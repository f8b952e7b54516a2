//! What earlier processes left in journals.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::CallKey;
use super::layout::{Begin, Fault, Header, JournalSlot, PAGE, SLOT, Sealer, Shape};

/// A call that an earlier process recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub begin: Begin,
    /// When it was last seen, by the clock of processes, which stops while no process runs; `None`
    /// if the other times determine it, or if it was at the process's end.
    pub heard: Option<u64>,
    /// When it had been executed, and its reply; `None` if it is not known whether it was.
    pub done: Option<(u64, Box<[u8]>)>,
}

/// What an earlier process left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The key of the calls' checksums.
    pub(super) key: [u8; 16],
    /// Calls, the latest last.
    pub(super) calls: Vec<Recorded>,
}

/// The use of a name by a call.
#[derive(Clone, Debug)]
struct UsedName {
    /// The hash of the name.
    target: u64,
    key: CallKey,
    /// When the call was first begun, by both clocks.
    began: (u64, u64),
    ended: u64,
}

/// Journals that are read together. All have the same key and timeline.
#[derive(Clone, Debug, Default)]
pub(super) struct JournalReader {
    calls: HashMap<CallKey, Recorded>,
    used: Vec<UsedName>,
    /// Since when every region still has all its calls.
    complete: u64,
}

impl JournalReader {
    /// Takes in the calls of a journal, whose header has been checked.
    pub fn take(&mut self, bytes: &[u8], header: &Header) {
        self.read(bytes, header, true);
    }

    /// Takes in what names the calls of a journal have used, but not the calls.
    pub fn take_uses(&mut self, bytes: &[u8], header: &Header) {
        self.read(bytes, header, false);
    }

    /// There may be more uses of names than those that were read.
    pub fn miss_uses(&mut self) {
        self.complete = u64::MAX;
    }

    fn read(&mut self, bytes: &[u8], header: &Header, with_calls: bool) {
        let (shape, sealer) = (header.shape, Sealer::new(&header.key));
        for (place, slot) in (0..).zip(bytes[PAGE..].chunks_exact(SLOT)) {
            let (begin, done) = match sealer.read(slot, place).0 {
                JournalSlot::Empty => continue,
                JournalSlot::Begun(begin) => (begin, None),
                JournalSlot::Done {
                    begin,
                    ended,
                    reply,
                } => (begin, Some((ended, reply))),
            };
            // Slots that were carried over have not been another's before.
            let heard = (place < u64::from(shape.carried)).then_some(begin.evicted);
            if heard.is_none() {
                self.complete = self.complete.max(begin.evicted);
            }
            // A call that the last process only took over was executed before that process began,
            // if at all. Otherwise a client that died with open calls would make all later calls
            // doubtful.
            let ended = match (&done, heard) {
                (Some((ended, _)), _) => *ended,
                (None, Some(_)) => begin.began,
                (None, None) => u64::MAX,
            };
            let names = begin.targets.iter().filter(|target| **target != 0);
            self.used.extend(names.map(|&target| UsedName {
                target,
                key: begin.key,
                began: (begin.began, begin.wall),
                ended,
            }));
            if !with_calls {
                continue;
            }
            let one = Recorded { begin, heard, done };
            match self.calls.entry(begin.key) {
                Entry::Occupied(mut other) => {
                    other.get_mut().merge(one);
                }
                Entry::Vacant(place) => {
                    place.insert(one);
                }
            }
        }
    }

    /// The calls. Those that are older than `age`, counted from the latest, are left out: while no
    /// process ran, no client could have begun anything.
    pub fn left(self, key: [u8; 16], age: Duration) -> Left {
        let Self {
            calls,
            mut used,
            complete,
        } = self;
        let mut calls: Vec<Recorded> = calls.into_values().collect();
        let newest = calls.iter().map(|call| call.heard().max(call.last()));
        let newest = newest.max().unwrap_or(0);
        let oldest = newest.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        calls.retain(|call| call.is_open() || call.heard() >= oldest);
        // Calls that are not known to have ended are forgotten last.
        calls.sort_unstable_by_key(|call| (call.done.is_none(), call.last()));
        used.sort_unstable_by_key(|name| name.target);
        for call in calls.iter_mut().filter(|call| call.done.is_none()) {
            let Begin {
                key,
                began,
                wall,
                targets,
                ..
            } = call.begin;
            let contested = |target: &u64| {
                let first = used.partition_point(|name| name.target < *target);
                used[first..]
                    .iter()
                    .take_while(|name| name.target == *target)
                    // A repetition under another key has the times of the first execution.
                    .any(|name| {
                        name.key != key && name.began != (began, wall) && name.ended >= began
                    })
            };
            call.begin.contested |= complete >= began || targets.iter().any(contested);
        }
        Left { key, calls }
    }
}

impl Left {
    /// Reads a file of this boot of the host. Calls that are older than `age`, counted from the
    /// latest, are left out.
    ///
    /// # Errors
    /// It is not a whole file of this layout and boot.
    pub fn read(bytes: &[u8], boot: &[u8; 16], age: Duration) -> Result<Self, Fault> {
        let header = Header::decode(bytes, bytes.len() as u64)?;
        if header.boot != *boot {
            return Err(Fault::OtherBoot);
        }
        let mut reader = JournalReader::default();
        reader.take(bytes, &header);
        Ok(reader.left(header.key, age))
    }

    /// A file of one region with these bytes as slots, cut to whole pages, to test
    /// [`read`](Self::read) on damaged slots. The key of its checksums is zero.
    #[must_use]
    pub fn whole(slots: &[u8], boot: [u8; 16]) -> Vec<u8> {
        let slots = &slots[..slots.len() / PAGE * PAGE];
        let shape = Shape {
            carried: 0,
            regions: 1,
            slots: u32::try_from(slots.len() / SLOT).unwrap_or(u32::MAX),
        };
        let header = Header {
            shape,
            boot,
            key: [0; 16],
        };
        [&header.encode()[..], slots].concat()
    }

    /// Executed calls with a known reply.
    #[must_use]
    pub fn done(&self) -> usize {
        self.calls.iter().filter(|call| call.done.is_some()).count()
    }

    /// Calls of which it is not known whether they were executed.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.calls.len() - self.done()
    }

    /// Forgets the oldest calls beyond a number. Restarts the clock of the others at `now`: their
    /// time does not run while there is no process.
    pub(super) fn carry(&mut self, entries: usize, now: u64) {
        let excess = self.calls.len().saturating_sub(entries);
        self.calls.drain(..excess);
        let newest = self.calls.iter().map(|call| call.heard().max(call.last()));
        let newest = newest.max().unwrap_or(0);
        for call in &mut self.calls {
            let heard = if call.is_open() { newest } else { call.heard() };
            call.begin.evicted = now.saturating_sub(newest.saturating_sub(heard));
        }
    }
}
impl Recorded {
    /// Whether it was being executed when the process ended, as far as is known.
    fn is_open(&self) -> bool {
        self.done.is_none() && self.heard.is_none()
    }

    /// When it ended, or else began.
    fn last(&self) -> u64 {
        let ended = self.done.as_ref().map(|(ended, _)| *ended);
        ended.unwrap_or(self.begin.began)
    }

    /// When it was last seen.
    fn heard(&self) -> u64 {
        self.heard.unwrap_or_else(|| self.last())
    }

    /// Takes in another record of the same call.
    fn merge(&mut self, other: Self) {
        match (&self.done, &other.done) {
            // Both may have been executed, or one of them twice.
            (None, None) => {
                let contested = self.begin.contested || other.begin.contested;
                self.heard = self
                    .heard
                    .zip(other.heard)
                    .map(|(one, other)| one.max(other));
                if other.begin.began < self.begin.began {
                    self.begin = other.begin;
                }
                self.begin.contested = contested;
            }
            // A call that began after the other had been answered is another call with a reused
            // XID.
            _ if other.last() > self.last() => *self = other,
            _ => {}
        }
    }
}
