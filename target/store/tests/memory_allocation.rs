//! Steady reads and overwrites allocate nothing.

mod common;

use std::cell::Cell;

use common::*;
use millrace_store::{Handle, Stability, Store, memory::MemoryStore};

#[allow(unsafe_code)]
mod counting {
    //! Counts the allocations of each thread.

    use std::alloc::{GlobalAlloc, Layout, System};

    use super::ALLOCATIONS;

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    // SAFETY: All work is the system allocator's; the count is a plain thread-local number, which
    // itself never allocates.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
            // SAFETY: The caller keeps the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: `memory` came from `System.alloc` with this layout.
            unsafe { System.dealloc(memory, layout) }
        }
    }
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of this thread while an action runs.
fn allocations(action: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    action();
    ALLOCATIONS.get() - before
}

fn round(
    store: &MemoryStore,
    file: Handle,
    length: u32,
    slices: &mut Vec<millrace_mempool::Slice>,
) {
    now(store.read(&ROOT, file, 0, length, slices)).unwrap();
    slices.clear();
    let staged = now(store.stage_write(&ROOT, file, 0, length, slices)).unwrap();
    slices[0].copy_from(0, b"overwritten");
    let written = now(store.commit_write(staged, Stability::FileSync))
        .result
        .unwrap();
    assert_eq!(written.length, length);
    slices.clear();
    now(store.attributes(file)).unwrap();
}

#[test]
fn steady_reads_and_overwrites_allocate_nothing() {
    assert_eq!(
        allocations(|| drop(std::hint::black_box(Box::new(1)))),
        1,
        "counting works"
    );
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    write(&store, file, 0, &[7; 1 << 20]).unwrap();
    let mut slices = Vec::with_capacity(64);
    for length in [4096, 1 << 20] {
        round(&store, file, length, &mut slices);
        let count = allocations(|| {
            for _ in 0..1000 {
                round(&store, file, length, &mut slices);
            }
        });
        assert_eq!(count, 0, "for {length} bytes");
    }
}

#[test]
fn several_writes_in_flight_allocate_nothing_once_warm() {
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    write(&store, file, 0, &[7; 1 << 20]).unwrap();
    let mut slices = Vec::with_capacity(64);
    let mut flight = Vec::with_capacity(32);
    let mut pass = || {
        for index in 0..32 {
            let offset = index * 4096;
            let staged = now(store.stage_write(&ROOT, file, offset, 4096, &mut slices)).unwrap();
            flight.push(staged);
        }
        for staged in flight.drain(..) {
            now(store.commit_write(staged, Stability::FileSync))
                .result
                .unwrap();
        }
        slices.clear();
    };
    pass();
    assert_eq!(allocations(|| (0..100).for_each(|_| pass())), 0);
}

#[test]
fn overwrites_of_blocks_that_readers_hold_allocate_nothing() {
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    write(&store, file, 0, &[7; 1 << 20]).unwrap();
    let (mut lent, mut slices) = (Vec::with_capacity(64), Vec::with_capacity(64));
    let mut pass = |offset: u64, length: u32| {
        now(store.read(&ROOT, file, 0, 1 << 20, &mut lent)).unwrap();
        let staged = now(store.stage_write(&ROOT, file, offset, length, &mut slices)).unwrap();
        now(store.commit_write(staged, Stability::FileSync))
            .result
            .unwrap();
        slices.clear();
        lent.clear();
    };
    for (offset, length) in [(1 << 19, 1 << 17), (65_536 + 100, 4096), (17, 50)] {
        pass(offset, length);
        let count = allocations(|| (0..100).for_each(|_| pass(offset, length)));
        assert_eq!(count, 0, "{length} bytes at {offset}");
    }
}
