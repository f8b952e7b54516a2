//! A pool in its steady state allocates nothing from the heap.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_testing::allocation::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

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
    let count = allocations(|| (0..100).for_each(|_| turn(&pool)));
    assert_eq!(count, 0);
}
