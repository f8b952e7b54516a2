//! The window against a model, under threads, and in all interleavings.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;

use super::{Sequence, SequenceWindow, WindowWord};
use crate::SEQUENCE_MAX;

/// The text of RFC 2203 5.3.3.1: the highest number, and those seen.
struct Model {
    size: u64,
    highest: u64,
    seen: BTreeSet<u32>,
}

impl Model {
    fn look(&self, number: u32) -> Sequence {
        if number >= SEQUENCE_MAX {
            Sequence::TooLarge
        } else if u64::from(number) + self.size <= self.highest {
            Sequence::Old
        } else if self.seen.contains(&number) {
            Sequence::Seen
        } else {
            Sequence::Fresh
        }
    }

    fn mark(&mut self, number: u32) -> bool {
        let is_fresh = self.look(number) == Sequence::Fresh;
        if is_fresh {
            self.seen.insert(number);
            self.highest = self.highest.max(number.into());
        }
        is_fresh
    }
}

fn window(size: u32) -> SequenceWindow {
    SequenceWindow::new(size)
}

#[test]
fn gss_seq_01_the_first_number_may_be_any_below_maxseq() {
    for first in [0, 1, 31, 32, 2048, 0x7fff_ffff] {
        let window = window(2048);
        assert_eq!(window.look(first), Sequence::Fresh);
        assert!(window.mark(first));
        assert_eq!(window.look(first), Sequence::Seen);
        assert!(!window.mark(first));
    }
    for large in [SEQUENCE_MAX, SEQUENCE_MAX + 1, u32::MAX] {
        let window = window(2048);
        assert_eq!(window.look(large), Sequence::TooLarge);
        assert!(!window.mark(large));
    }
}

#[test]
fn gss_seq_02_the_window_of_the_highest_number_is_open_and_nothing_below() {
    for size in [1, 2, 31, 32, 33, 64, 2048] {
        let window = window(size);
        let highest = 100_000;
        assert!(window.mark(highest));
        assert_eq!(window.look(highest - size), Sequence::Old);
        assert!(!window.mark(highest - size));
        for number in highest - size + 1..highest {
            assert_eq!(window.look(number), Sequence::Fresh, "{size}: {number}");
            assert!(window.mark(number), "{size}: {number}");
            assert!(!window.mark(number), "{size}: {number}");
        }
    }
}

#[test]
fn gss_seq_04_a_look_far_ahead_changes_nothing() {
    let window = window(64);
    assert!(window.mark(10));
    assert_eq!(window.look(1_000_000), Sequence::Fresh);
    assert_eq!(window.look(9), Sequence::Fresh);
    assert!(window.mark(9));
}

proptest! {
    #[test]
    fn gss_seq_02_the_window_is_that_of_the_model(
        size in 1_u32..200,
        start in prop_oneof![Just(0_u32), 0..1000_u32, SEQUENCE_MAX - 2000..SEQUENCE_MAX],
        steps in prop::collection::vec((any::<bool>(), -300_i64..120), 1..400),
    ) {
        let window = window(size);
        let mut model = Model { size: size.into(), highest: 0, seen: BTreeSet::new() };
        let mut at = i64::from(start);
        for (is_mark, by) in steps {
            let number = u32::try_from((at + by).max(0)).expect("small");
            prop_assert_eq!(window.look(number), model.look(number), "{}", number);
            if is_mark {
                prop_assert_eq!(window.mark(number), model.mark(number), "{}", number);
                at = at.max(i64::from(number)) + 1;
            }
        }
    }
}

/// Four threads mark the same numbers in different orders. None is marked twice, and those that
/// never left the window are marked once.
#[test]
fn gss_seq_05_threads_that_mark_the_same_numbers_share_them() {
    const COUNT: u32 = 40_000;
    let window = window(COUNT);
    let winners: Vec<_> = (0..COUNT).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for step in [1, 7, 11, 13] {
            let (window, winners) = (&window, &winners);
            scope.spawn(move || {
                for at in 0..COUNT {
                    let number = (u64::from(at) * step % u64::from(COUNT)) as u32;
                    if window.mark(number) {
                        winners[number as usize].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let wrong = winners
        .iter()
        .filter(|won| won.load(Ordering::Relaxed) != 1);
    assert_eq!(wrong.count(), 0);
}

/// As above, with a window that moves on.
#[test]
fn gss_seq_05_no_number_is_taken_twice_while_the_window_moves() {
    const COUNT: u32 = 100_000;
    let window = window(40);
    let winners: Vec<_> = (0..COUNT).map(|_| AtomicU32::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (window, winners) = (&window, &winners);
            scope.spawn(move || {
                for number in 0..COUNT {
                    if window.mark(number) {
                        winners[number as usize].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let twice = winners.iter().filter(|won| won.load(Ordering::Relaxed) > 1);
    assert_eq!(twice.count(), 0);
}

/// An atomic word of the model checker.
#[derive(Default)]
struct ModelWord(loom::sync::atomic::AtomicU64);

impl WindowWord for ModelWord {
    fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(old, new, success, failure).is_ok()
    }
}

/// Two reactors get the same call at once, and a third one moves the word on to a later block.
#[test]
fn gss_seq_05_in_all_interleavings_one_of_two_reactors_marks_a_number() {
    for (first, other) in [(5, 5), (5, 6), (5, 5 + 2 * 32)] {
        loom::model(move || {
            let window = loom::sync::Arc::new(SequenceWindow::<ModelWord>::new(1));
            let shared = window.clone();
            let thread = loom::thread::spawn(move || (shared.mark(first), shared.mark(other)));
            let own = window.mark(first);
            let (theirs, later) = thread.join().unwrap();
            assert!(!(own && theirs), "{first} is marked twice");
            assert!(own || theirs, "{first} is not marked");
            assert!(first != other || !later);
            assert!(other <= first || later);
            assert_eq!(window.look(other.max(first)), Sequence::Seen);
        });
    }
}

/// The ring of a real window has one word type; this holds it to the size that the design counts
/// on.
#[test]
fn a_window_of_2048_has_65_words() {
    let window: SequenceWindow<AtomicU64> = SequenceWindow::new(2048);
    assert_eq!(window.words.len(), 65);
}
