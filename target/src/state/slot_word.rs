//! The word that decides who may use a slot of a session.
//!
//! It holds the sequence number of the last request and a phase. A request or a retry takes the
//! slot by one compare-exchange of an idle word. From then until it stores an idle word it is the
//! only user of the slot's content. A request that does not get the slot never waits.
//!
//! The word is generic over its atomic integer, so that the model test explores all interleavings
//! of this code.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word that several threads share.
pub(super) trait SharedWord {
    /// Reads the word. Writes before the store of its value are visible (acquire).
    fn read(&self) -> u64;
    /// Replaces `from` by `to`, or returns the present value.
    fn exchange(&self, from: u64, to: u64) -> Result<(), u64>;
    /// Writes the word and publishes all that was done before.
    fn publish(&self, value: u64);
}

impl SharedWord for AtomicU64 {
    fn read(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn exchange(&self, from: u64, to: u64) -> Result<(), u64> {
        self.compare_exchange(from, to, Ordering::Acquire, Ordering::Acquire)
            .map(|_| ())
    }

    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

/// A request with the sequence number of the word is executed.
const EXECUTING: u64 = 1 << 32;
/// The reply to the request with the sequence number of the word is read.
const REPLAYING: u64 = 2 << 32;

/// How often a lost exchange is tried again: the word has changed in between, and may be idle.
const ATTEMPTS: usize = 4;

/// The permission for a request with a given sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotWordOutcome {
    /// It is new. The caller owns the slot until [`SlotWord::finish`] or [`SlotWord::abandon`].
    Execute,
    /// It repeats the last one. The caller owns the slot until [`SlotWord::finish`].
    Replay,
    /// The slot is taken.
    Busy,
    /// Its sequence number is neither the last one nor the next one.
    Misordered,
}

/// The word of a slot. A new one is idle with sequence number 0.
#[derive(Debug)]
pub(super) struct SlotWord<W>(W);

impl<W: SharedWord> SlotWord<W> {
    pub fn new(word: W) -> Self {
        Self(word)
    }

    /// Takes the slot for a request with this sequence number, if it is its turn.
    pub fn begin(&self, sequence: u32) -> SlotWordOutcome {
        let mut seen = self.0.read();
        for _ in 0..ATTEMPTS {
            #[allow(clippy::cast_possible_truncation)] // The sequence number is the low half.
            let last = seen as u32;
            let phase = seen & !u64::from(u32::MAX);
            let is_last = sequence == last;
            let is_next = sequence == last.wrapping_add(1);
            let (busy, outcome) = match phase {
                0 if is_next => (EXECUTING, SlotWordOutcome::Execute),
                0 if is_last => (REPLAYING, SlotWordOutcome::Replay),
                EXECUTING if is_last => return SlotWordOutcome::Busy,
                REPLAYING if is_last || is_next => return SlotWordOutcome::Busy,
                _ => return SlotWordOutcome::Misordered,
            };
            match self.0.exchange(seen, busy | u64::from(sequence)) {
                Ok(()) => return outcome,
                Err(now) => seen = now,
            }
        }
        SlotWordOutcome::Busy
    }

    /// Takes the slot if nobody uses it. The caller owns it until [`SlotWord::finish`].
    pub fn take_idle(&self) -> bool {
        let seen = self.0.read();
        let is_idle = seen <= u64::from(u32::MAX);
        is_idle && self.0.exchange(seen, EXECUTING | seen).is_ok()
    }

    /// Gives the slot back. The request with this sequence number is the last one now.
    pub fn finish(&self, sequence: u32) {
        self.0.publish(u64::from(sequence));
    }

    /// Gives the slot back as it was before the request with this sequence number.
    pub fn abandon(&self, sequence: u32) {
        self.0.publish(u64::from(sequence.wrapping_sub(1)));
    }

    /// Whether a request is executed now.
    pub fn is_executing(&self) -> bool {
        self.0.read() & EXECUTING != 0
    }
}
