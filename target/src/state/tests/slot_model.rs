//! All interleavings of the code that takes and gives back a slot.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::state::slot_word::{SharedWord, SlotWord, SlotWordOutcome};

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

/// A slot with what its word protects. The model fails if two threads use that at a time, or if
/// one does not see what another has done before.
struct ModelSlot {
    word: SlotWord<AtomicU64>,
    record: UnsafeCell<()>,
    executed: [AtomicU64; 3],
}

impl ModelSlot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: SlotWord::new(AtomicU64::new(0)),
            record: UnsafeCell::new(()),
            executed: [const { 0 }; 3].map(AtomicU64::new),
        })
    }

    /// What a request does. `kept` says whether it is executed or given back.
    fn request(&self, sequence: u32, kept: bool) -> SlotWordOutcome {
        let outcome = self.word.begin(sequence);
        match outcome {
            SlotWordOutcome::Execute if kept => {
                self.record.with_mut(|_| ());
                let executed = &self.executed[sequence as usize];
                executed.fetch_add(1, Ordering::Relaxed);
                self.word.finish(sequence);
            }
            SlotWordOutcome::Execute => {
                self.record.with(|_| ());
                self.word.abandon(sequence);
            }
            SlotWordOutcome::Replay => {
                self.record.with_mut(|_| ());
                self.word.finish(sequence);
            }
            SlotWordOutcome::Busy | SlotWordOutcome::Misordered => {}
        }
        outcome
    }

    fn executed(&self, sequence: usize) -> u64 {
        self.executed[sequence].load(Ordering::Relaxed)
    }
}

#[test]
fn v4_sess_43_one_of_three_equal_requests_is_executed() {
    let mut model = loom::model::Builder::new();
    // Of three threads all interleavings would take minutes.
    model.preemption_bound = Some(2);
    model.check(|| {
        let slot = ModelSlot::new();
        let others = [(), ()].map(|()| {
            let slot = slot.clone();
            thread::spawn(move || slot.request(1, true))
        });
        let own = slot.request(1, true);
        let outcomes = others.map(|other| other.join().unwrap());
        for outcome in outcomes.into_iter().chain([own]) {
            assert_ne!(outcome, SlotWordOutcome::Misordered);
        }
        assert_eq!(slot.executed(1), 1);
        assert_eq!(slot.request(1, true), SlotWordOutcome::Replay);
    });
}

#[test]
fn v4_sess_43_the_next_request_meets_a_retry_of_the_last_one() {
    loom::model(|| {
        let slot = ModelSlot::new();
        assert_eq!(slot.request(1, true), SlotWordOutcome::Execute);
        let retry = {
            let slot = slot.clone();
            thread::spawn(move || slot.request(1, true))
        };
        let next = slot.request(2, true);
        assert_ne!(retry.join().unwrap(), SlotWordOutcome::Execute);
        let busy = next == SlotWordOutcome::Busy;
        assert!(busy || next == SlotWordOutcome::Execute);
        assert_eq!((slot.executed(1), slot.executed(2)), (1, u64::from(!busy)));
    });
}

#[test]
fn v4_sess_44_a_request_given_back_leaves_its_number_to_the_next() {
    loom::model(|| {
        let slot = ModelSlot::new();
        let faulty = {
            let slot = slot.clone();
            thread::spawn(move || slot.request(1, false))
        };
        let own = slot.request(1, true);
        faulty.join().unwrap();
        if own == SlotWordOutcome::Busy {
            assert_eq!(slot.request(1, true), SlotWordOutcome::Execute);
        }
        assert_eq!(slot.executed(1), 1);
    });
}
