//! A pool in its steady state allocates nothing from the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise, unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn turn(pool: &Pool) {
    let mut context = Context::from_waker(Waker::noop());
    let large = pool.try_acquire(Class::Large).unwrap();
    let slice = large.into_slice(0..1 << 20);
    let (head, tail) = slice.clone().split_at(100);
    let mut waiting = pin!(pool.acquire(Class::Large));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop((slice, head, tail));
    assert!(waiting.as_mut().poll(&mut context).is_ready());
    let control: [_; 8] = std::array::from_fn(|_| pool.try_acquire(Class::Control).unwrap());
    drop(control);
}

#[test]
fn lending_and_waiting_allocate_nothing() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).unwrap();
    turn(&pool);
    let before = COUNT.get();
    for _ in 0..100 {
        turn(&pool);
    }
    assert_eq!(COUNT.get(), before);
    let held = vec![0_u8; 10];
    assert_eq!(COUNT.get(), before + 1, "the count counts");
    drop(held);
}
