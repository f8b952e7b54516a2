//! Cases that the engine above cannot show.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, SharedArena, Slice};

use io_uring::squeue;

use super::{BUFFERS, Ring};
use crate::posix::engine::Durability;
use crate::posix::sys::record::{PendingCall, begin, call_of};
use crate::posix::sys::work::{HeldResources, Work, WorkEntry};

/// The changes and syncs in progress on a ring, for recordings.
#[derive(Default)]
pub struct RecordedCalls {
    pending: HashMap<usize, PendingCall>,
    /// Completions that are withheld.
    withheld: Vec<(usize, i32)>,
}

impl RecordedCalls {
    pub fn begin(&mut self, operation: &squeue::Entry, file: &OwnedFd) {
        let place = usize::try_from(operation.get_user_data()).unwrap();
        if let Some(pending) = call_of(operation).and_then(|call| begin(file, call)) {
            self.pending.insert(place, pending);
        }
    }

    /// Processes completions, from `first` on.
    pub fn reap(&mut self, completed: &mut Vec<(usize, i32)>, first: usize) {
        self.withheld.extend(completed.drain(first..));
        let pending = &mut self.pending;
        self.withheld.retain(|&(place, outcome)| {
            if pending.get(&place).is_some_and(PendingCall::is_held) {
                return true;
            }
            if let Some(call) = pending.remove(&place) {
                call.end(outcome >= 0);
            }
            completed.push((place, outcome));
            false
        });
    }
}

/// None, recorded as skipped, if there are no rings.
fn ring(places: u32) -> Option<Ring> {
    let ring = Ring::new(places, true);
    ring.inspect_err(|error| millrace_testing::skip!("no io_uring: {error}"))
        .ok()
}

/// A file without a name.
fn file() -> Arc<OwnedFd> {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    let mode = rustix::fs::Mode::RUSR;
    Arc::new(rustix::fs::open(std::env::temp_dir(), flags, mode).unwrap())
}

fn slice(arena: &SharedArena, range: std::ops::Range<usize>) -> Slice {
    Slice::shared(arena, range)
}

fn transfer(ring: &mut Ring, file: &Arc<OwnedFd>, slice: &Slice, work: Work) {
    let mut done = 0;
    while done < slice.len() {
        let held = HeldResources {
            file: Arc::clone(file),
            slice: Some(slice.clone()),
        };
        let entry = WorkEntry {
            work,
            offset: done as u64,
            from: done,
            length: slice.len() - done,
        };
        let asked = ring.push(0, held, &entry, 0);
        let outcome = loop {
            ring.turn();
            if let Some((place, outcome, _)) = ring.take() {
                assert_eq!(place, 0);
                break outcome;
            }
            std::thread::yield_now();
        };
        assert_eq!(usize::try_from(outcome).ok(), Some(asked));
        done += asked;
    }
}

#[test]
fn slices_may_lie_in_several_pieces() {
    let Some(mut ring) = ring(1) else { return };
    ring.piece = 1 << 20;
    let registry = Registry::new(HugepagePolicy::Off);
    let arenas = [(); 2].map(|()| registry.arena(4 << 20).unwrap().share());
    let arenas = [&arenas[0], &arenas[1]];
    for arena in arenas {
        ring.register(arena.arena()).unwrap();
    }
    assert_eq!(ring.arenas[1].first, 4);
    let file = file();
    for (range, pieces) in [
        (0..4 << 20, 4),
        ((1 << 20) - 1..(1 << 20) + 1, 2),
        (5 << 18..6 << 18, 1),
        (0..1 << 20, 1),
        (100..(3 << 20) + 5, 4),
    ] {
        let from = slice(arenas[1], range.clone());
        let entry = WorkEntry {
            work: Work::Read { cached: false },
            offset: 0,
            from: 0,
            length: from.len(),
        };
        let first = range.start >> 20;
        let end = (first + 1) << 20;
        let found = ring.buffer(&from, &entry);
        let buffer = u16::try_from(4 + first).unwrap();
        assert_eq!(found, (Some(buffer), end.min(range.end) - range.start));
        assert_eq!((range.end - 1) / (1 << 20) - first + 1, pieces);
        let bytes: Vec<u8> = (0..from.len()).map(|n| (n / 1000) as u8).collect();
        from.copy_from(0, &bytes);
        transfer(&mut ring, &file, &from, Work::Write(Durability::None));
        let back = slice(arenas[0], range);
        transfer(&mut ring, &file, &back, Work::Read { cached: false });
        let mut found = vec![0; bytes.len()];
        back.copy_to(0, &mut found);
        assert!(found == bytes);
    }
}

#[test]
fn a_full_table_refuses_and_takes_again_what_was_given_back() {
    let Some(mut ring) = ring(1) else { return };
    ring.piece = 4096;
    let registry = Registry::new(HugepagePolicy::Off);
    let pieces = (2 << 20) / 4096;
    let fit = BUFFERS as usize / pieces;
    let mut arenas: Vec<_> = (0..fit).map(|_| registry.arena(2 << 20).unwrap()).collect();
    for arena in &arenas {
        ring.register(arena.arena()).unwrap();
    }
    let another = registry.arena(2 << 20).unwrap().share();
    ring.register(another.arena()).unwrap_err();
    arenas.remove(fit / 2);
    ring.register(another.arena()).unwrap();
    assert_eq!(ring.arenas.len(), fit);
    let file = file();
    let whole = slice(&another, 0..8192);
    transfer(&mut ring, &file, &whole, Work::Write(Durability::None));
}

#[test]
fn what_the_kernel_may_still_write_is_never_used_again() {
    let Some(mut ring) = ring(1) else { return };
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).unwrap();
    let (out, inward) = rustix::pipe::pipe().unwrap();
    let held = HeldResources {
        file: Arc::new(out),
        slice: Some(pool.try_acquire(Class::Control).unwrap().into_slice(0..4)),
    };
    let entry = WorkEntry {
        work: Work::Read { cached: false },
        offset: 0,
        from: 0,
        length: 4,
    };
    ring.push(0, held, &entry, 0);
    ring.turn();
    drop(ring);
    assert_eq!(pool.gauges().class(Class::Control).in_use(), 1);
    // This side of the pipe is open as well, so this does not raise a signal.
    std::io::Write::write_all(&mut File::from(inward), b"late").unwrap();
}

#[test]
#[should_panic(expected = "within the slice")]
fn entries_beyond_their_slice_do_not_reach_the_kernel() {
    let Some(mut ring) = ring(1) else {
        panic!("within the slice: not tested");
    };
    let registry = Registry::new(HugepagePolicy::Off);
    let arena = registry.arena(2 << 20).unwrap().share();
    let held = HeldResources {
        file: file(),
        slice: Some(slice(&arena, 0..100)),
    };
    let entry = WorkEntry {
        work: Work::Read { cached: false },
        offset: 0,
        from: 50,
        length: 51,
    };
    ring.push(0, held, &entry, 0);
}
