//! Slots of a session: each executes one request at a time and keeps the last reply
//! (RFC 8881 section 2.10.6).
//!
//! [`SlotWord`] decides who may use a slot. Its owner takes the record out of the slot and puts it
//! back before it gives the slot up, so the record has one user at a time, in safe code.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crossbeam_utils::atomic::AtomicCell;

use super::slot_limits::SlotLimits;
use super::slot_word::{SlotWord, SlotWordOutcome};

/// Buffers up to this size stay with their slot for later replies, also while nothing is cached.
const KEPT_BUFFER: usize = 1024;

/// Distinguishes a retry from another request with the same sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFingerprint {
    /// Who calls, with squashing applied.
    pub caller: u64,
    /// Checksum of operations and of the beginning of their arguments.
    pub checksum: u64,
}

/// A reply cached by a slot. It is unchanged by later requests of the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedReply(Arc<Vec<u8>>);

impl Deref for CachedReply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The outcome of a request's begin.
#[derive(Debug)]
pub enum SlotBegin<'a> {
    /// It is new: the caller executes it.
    New(SlotClaim<'a>),
    /// It repeats the last one; with its reply if that was cached.
    Replay(Option<CachedReply>),
    /// It repeats one that is still being executed, or coincides with a retry of the last one.
    InProgress,
    /// Its sequence number is out of order.
    Misordered,
    /// It has the sequence number of the last request and differs from it.
    FalseRetry,
}

/// A slot of a session, on a cache line of its own.
#[repr(align(64))]
pub struct SessionSlot {
    pub(super) word: SlotWord<AtomicU64>,
    /// Out of the slot while a request is executed or its reply is read; `None` before the first.
    pub(super) record: AtomicCell<Option<Box<SlotRecord>>>,
    /// Longest reply that is cached.
    cached_max: usize,
    /// What its last reply told about the slots of the session.
    pub(super) told: SlotLimits,
}

impl std::fmt::Debug for SessionSlot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SessionSlot")
            .field("word", &self.word)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) struct SlotRecord {
    fingerprint: RequestFingerprint,
    is_cached: bool,
    pub(super) reply: Arc<Vec<u8>>,
}

impl SessionSlot {
    /// A slot that no request has used.
    pub(super) fn new(cached_max: usize, highest: u32) -> Self {
        Self {
            word: SlotWord::new(AtomicU64::new(0)),
            record: AtomicCell::new(None),
            cached_max,
            told: SlotLimits::new(highest),
        }
    }

    /// Begins anew, with sequence number 0 and without the reply that it kept. A slot that is used
    /// stays as it is.
    pub(super) fn reset(&self) {
        if self.word.take_idle() {
            self.record.store(None);
            self.word.finish(0);
        }
    }

    /// Begins a request. It never waits, and allocates nothing.
    pub fn begin(&self, sequence: u32, fingerprint: RequestFingerprint) -> SlotBegin<'_> {
        match self.word.begin(sequence) {
            SlotWordOutcome::Execute => SlotBegin::New(SlotClaim {
                slot: self,
                sequence,
                fingerprint,
                is_open: true,
            }),
            SlotWordOutcome::Replay => {
                let record = self.record.take();
                let begin = match &record {
                    // Sequence number 0 of a slot that was never used.
                    None => SlotBegin::Misordered,
                    Some(record) if record.fingerprint != fingerprint => SlotBegin::FalseRetry,
                    Some(record) => SlotBegin::Replay(
                        record.is_cached.then(|| CachedReply(record.reply.clone())),
                    ),
                };
                self.record.store(record);
                self.word.finish(sequence);
                begin
            }
            SlotWordOutcome::Busy => SlotBegin::InProgress,
            SlotWordOutcome::Misordered => SlotBegin::Misordered,
        }
    }

    /// The claim of a request that was detached with this sequence number.
    pub(super) fn resume(&self, sequence: u32, fingerprint: RequestFingerprint) -> SlotClaim<'_> {
        SlotClaim {
            slot: self,
            sequence,
            fingerprint,
            is_open: true,
        }
    }

    /// Whether a request is executed now.
    pub(super) fn is_executing(&self) -> bool {
        self.word.is_executing()
    }
}

/// A slot that a request has taken. Dropping it ends the request without a cached reply.
#[derive(Debug)]
#[must_use]
pub struct SlotClaim<'a> {
    slot: &'a SessionSlot,
    sequence: u32,
    fingerprint: RequestFingerprint,
    is_open: bool,
}

impl SlotClaim<'_> {
    /// Ends the request. Its reply, the body of the RPC message in parts, is kept for retries if
    /// it is given and no longer than the session allows; returns whether it is.
    pub fn finish(mut self, reply: Option<&[&[u8]]>) -> bool {
        self.end(reply)
    }

    /// Gives the slot back as if the request had not been sent.
    pub fn abandon(mut self) {
        self.is_open = false;
        self.slot.word.abandon(self.sequence);
    }

    /// Lets the request go on without borrowing the slot: [`SessionSlot::resume`] takes it up.
    pub(super) fn detach(mut self) {
        self.is_open = false;
    }

    fn end(&mut self, reply: Option<&[&[u8]]>) -> bool {
        self.is_open = false;
        let length = |parts: &&[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
        let reply = reply.filter(|parts| length(parts) <= self.slot.cached_max);
        let mut record = self.slot.record.take().unwrap_or_default();
        record.fingerprint = self.fingerprint;
        record.is_cached = reply.is_some();
        let kept = match Arc::get_mut(&mut record.reply) {
            Some(buffer) => buffer,
            // A retry is still being answered from the old buffer.
            None => {
                record.reply = Arc::default();
                Arc::get_mut(&mut record.reply).expect("it was made here")
            }
        };
        kept.clear();
        if let Some(parts) = reply {
            kept.reserve_exact(length(&parts));
            for part in parts {
                kept.extend_from_slice(part);
            }
        } else {
            kept.shrink_to(KEPT_BUFFER);
        }
        self.slot.record.store(Some(record));
        self.slot.word.finish(self.sequence);
        reply.is_some()
    }
}

impl Drop for SlotClaim<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.end(None);
        }
    }
}
