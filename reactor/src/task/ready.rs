//! The set of woken tasks: a bitmap with a summary, set from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Wake;

use crate::alarm::Alarm;

const BITS: usize = 64;

/// A bit per task; the summary has a bit per word that may hold one.
///
/// Order matters in both directions: a waker sets the task's bit before the summary's, and the
/// runner clears the summary's bit before it takes the word. So a bit that is missed by one pass
/// leaves its summary bit for the next.
pub(super) struct ReadySet {
    summary: Box<[AtomicU64]>,
    words: Box<[AtomicU64]>,
    alarm: Option<Alarm>,
}

impl ReadySet {
    pub fn new(capacity: usize, alarm: Option<Alarm>) -> Self {
        let words = capacity.div_ceil(BITS);
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            summary: zeros(words.div_ceil(BITS)),
            words: zeros(words),
            alarm,
        }
    }

    /// Marks a task and rings the reactor.
    pub fn set(&self, index: usize) {
        let word = index / BITS;
        if self.words[word].fetch_or(1 << (index % BITS), SeqCst) == 0 {
            self.summary[word / BITS].fetch_or(1 << (word % BITS), SeqCst);
        }
        if let Some(alarm) = &self.alarm {
            alarm.ring();
        }
    }

    /// Takes all current marks, in order of index, and passes them on. Marks set in the meantime
    /// stay for the next pass, unless their word is still to come.
    pub fn take(&self, mut each: impl FnMut(usize)) {
        for (place, summary) in self.summary.iter().enumerate() {
            // The plain load avoids taking the cache line exclusively in an idle pass.
            if summary.load(SeqCst) == 0 {
                continue;
            }
            for bit in ones(summary.swap(0, SeqCst)) {
                let word = place * BITS + bit;
                for bit in ones(self.words[word].swap(0, SeqCst)) {
                    each(word * BITS + bit);
                }
            }
        }
    }
}

fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

/// Wakes the task in one slot of a set.
pub(super) struct PlaceWaker {
    pub ready: Arc<ReadySet>,
    pub index: usize,
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        self.ready.set(self.index);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.set(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::ReadySet;

    #[test]
    fn marks_are_taken_once_and_in_order() {
        let ready = ReadySet::new(10_000, None);
        let marks = [0, 1, 63, 64, 4095, 4096, 9999];
        for &mark in marks.iter().rev() {
            ready.set(mark);
            ready.set(mark);
        }
        let mut taken = Vec::new();
        ready.take(|index| taken.push(index));
        assert_eq!(taken, marks);
        ready.take(|index| panic!("{index} was taken already"));
    }

    #[test]
    fn marks_set_during_a_pass_are_not_lost() {
        let ready = ReadySet::new(128, None);
        ready.set(5);
        let mut taken = Vec::new();
        for _ in 0..3 {
            ready.take(|index| {
                taken.push(index);
                if taken.len() < 3 {
                    ready.set(5);
                }
            });
        }
        assert_eq!(taken, [5, 5, 5]);
    }
}
