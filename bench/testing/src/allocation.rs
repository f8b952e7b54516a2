//! Counts what each thread takes from the heap.
//!
//! A test program declares `#[global_allocator] static ALLOCATOR: CountingAllocator =
//! CountingAllocator;`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static TAKEN: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
#[derive(Debug)]
pub struct CountingAllocator;

// SAFETY: all work is the system allocator's. The counts are thread-locals without destructors,
// which take no memory. Memory that is moved counts as new memory, as `realloc` does by default.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        TAKEN.set(TAKEN.get() + taken_for(layout));
        MOST.set(MOST.get().max(TAKEN.get()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        TAKEN.set(TAKEN.get() - taken_for(layout));
        // SAFETY: the caller keeps the contract of `dealloc`, and `alloc` had the pointer from
        // `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that an allocator takes for a request: a word more, in steps of two.
fn taken_for(layout: Layout) -> i64 {
    let bytes = (layout.size() + 8).next_multiple_of(16).max(32);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes that this thread has taken and not given back, with what an allocator adds. Negative if it
/// gave back what others took.
#[must_use]
pub fn taken_bytes() -> i64 {
    TAKEN.get()
}

/// The most bytes that this thread had taken at once while something was done, beside what it had
/// before.
///
/// # Panics
///
/// If the program has another allocator.
pub fn most_taken_bytes<T>(action: impl FnOnce() -> T) -> i64 {
    let _ = allocated();
    let before = TAKEN.get();
    MOST.set(before);
    drop(action());
    MOST.get() - before
}

/// Allocations of this thread so far.
///
/// # Panics
///
/// If the program has another allocator.
#[must_use]
pub fn allocated() -> u64 {
    let count = COUNT.get();
    drop(black_box(Box::new(0_u8)));
    let has_counted = COUNT.replace(count) > count;
    assert!(has_counted, "CountingAllocator is not the global allocator");
    count
}

/// Allocations of this thread while something is done.
///
/// # Panics
///
/// If the program has another allocator.
pub fn allocations<T>(action: impl FnOnce() -> T) -> u64 {
    let before = allocated();
    drop(action());
    allocated() - before
}

/// The result of an action whose allocations do not count.
pub fn uncounted<T>(action: impl FnOnce() -> T) -> T {
    let before = COUNT.get();
    let result = action();
    COUNT.set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn allocations_count_unless_they_shall_not() {
        let before = taken_bytes();
        let mut kept = Vec::new();
        let count = allocations(|| {
            drop(black_box(Box::new(1)));
            kept.reserve_exact(100);
            uncounted(|| drop(black_box(Box::new(2))));
            kept.reserve_exact(200);
            kept.push(1_u8);
        });
        assert_eq!(count, 3);
        assert_eq!(taken_bytes() - before, 208);
        drop(black_box(kept));
        assert_eq!(taken_bytes(), before);
        let most = most_taken_bytes(|| {
            drop(black_box(vec![0_u8; 1000]));
            black_box(vec![0_u8; 100])
        });
        assert_eq!(most, 1008);
        assert_eq!(most_taken_bytes(|| {}), 0);
        assert_eq!(allocations(|| {}), 0);
    }
}
