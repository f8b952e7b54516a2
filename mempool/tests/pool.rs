//! What a pool promises: buffers come back, waiters are served in order, nothing is lost.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use millrace_mempool::{
    Buffer, Class, HugepagePolicy, MemoryAccount, MemoryShare, NoMemory, Pool, PoolConfig,
    Registry, Slice,
};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn pool() -> Pool {
    let registry = Registry::new(HugepagePolicy::Off);
    Pool::new(&registry, PoolConfig { bytes: 4 << 20 }).unwrap()
}

fn drain(pool: &Pool, class: Class) -> Vec<Buffer> {
    std::iter::from_fn(|| pool.try_acquire(class)).collect()
}

#[test]
fn buffers_are_disjoint_and_come_back() {
    let pool = pool();
    let mut buffers: Vec<Buffer> = Class::ALL
        .iter()
        .flat_map(|&class| drain(&pool, class))
        .collect();
    let bytes: usize = buffers.iter().map(Buffer::capacity).sum();
    assert_eq!(bytes, 4 << 20, "every byte can be lent");
    for (number, buffer) in buffers.iter_mut().enumerate() {
        buffer.fill(u8::try_from(number % 251).unwrap());
    }
    for (number, buffer) in buffers.iter().enumerate() {
        let expected = u8::try_from(number % 251).unwrap();
        assert!(buffer.iter().all(|&byte| byte == expected));
    }
    assert_eq!(pool.gauges().in_use(), buffers.len() as u64);
    for class in Class::ALL {
        assert_eq!(
            pool.gauges().class(class).high_water(),
            pool.gauges().class(class).capacity()
        );
    }
    drop(buffers);
    assert_eq!(pool.gauges().in_use(), 0);
}

#[test]
fn what_one_class_took_goes_back_to_the_others() {
    let pool = pool();
    let attainable = || Class::ALL.map(|class| pool.attainable(class));
    let before = attainable();
    for round in 0..3 {
        for class in Class::ALL {
            // As much as ever, whichever class had it before, and all of it usable.
            assert_eq!(attainable(), before, "round {round}");
            let mut all = drain(&pool, class);
            assert_eq!(all.len() as u64, before[class as usize], "{class:?}");
            for buffer in &mut all {
                buffer.fill(round);
            }
            // In another order than they were taken.
            let second: Vec<Buffer> = all.drain(..all.len() / 3).collect();
            drop(all);
            drop(second);
        }
    }
}

#[test]
fn memory_that_comes_back_whole_serves_those_who_wait_for_another_class() {
    let pool = pool();
    let mut small = drain(&pool, Class::Control);
    let large = drain(&pool, Class::Large);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = pin!(pool.acquire(Class::Large));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    // One of each sixteen stays, then all but one of all.
    let kept: Vec<Buffer> = small.drain(..).step_by(16).collect();
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    drop(kept);
    assert!(waiting.as_mut().poll(&mut context).is_ready());
    drop(large);
}

#[test]
fn an_indented_buffer_begins_behind_a_boundary() {
    let pool = pool();
    let mut buffer = pool.try_acquire(Class::Control).unwrap();
    assert!(buffer.as_ptr().addr().is_multiple_of(4096));
    buffer.fill(1);
    buffer.indent(28);
    assert_eq!((buffer.capacity(), buffer.len()), (4068, 4068));
    assert_eq!(buffer.as_ptr().addr() % 4096, 28);
    buffer.fill(2);
    // Not added up.
    buffer.indent(30);
    buffer[..2].copy_from_slice(b"ab");
    let slice = buffer.into_slice(0..4066);
    let mut head = [0; 2];
    slice.copy_to(0, &mut head);
    assert_eq!(&head, b"ab");
    let buffer = slice.try_into_buffer().unwrap();
    assert_eq!(buffer.len(), 4096, "a whole one again");
    assert_eq!((&buffer[27..31], buffer[32]), (&[1, 2, 2, b'a'][..], 2));
    let mut buffer = buffer;
    buffer.indent(5000);
    assert!(buffer.is_empty());
    drop(buffer);
    assert_eq!(pool.gauges().in_use(), 0);
}

#[test]
fn the_last_slice_returns_the_buffer() {
    let pool = pool();
    let mut buffer = pool.try_acquire(Class::Medium).unwrap();
    buffer[..8].copy_from_slice(b"abcdefgh");
    let slice = buffer.into_slice(2..8);
    let (head, tail) = slice.slice(0..4).split_at(1);
    assert_eq!((slice.len(), head.len(), tail.len()), (6, 1, 3));
    let mut bytes = [0; 3];
    tail.copy_to(0, &mut bytes);
    assert_eq!(&bytes, b"def");
    tail.copy_from(1, b"XY");
    slice.fill_zero(5..6);
    slice.copy_from_slice(4, &tail, 1..2);
    slice.copy_to(0, &mut bytes);
    assert_eq!(&bytes, b"cdX");
    drop(tail);
    let slice = slice.try_into_buffer().unwrap_err();
    drop(head);
    let buffer = slice.try_into_buffer().unwrap();
    assert_eq!(buffer.capacity(), Class::Medium.size());
    assert_eq!(&buffer[..8], b"abcdXYX\0");
    assert_eq!(pool.gauges().in_use(), 1);
    drop(buffer);
    assert_eq!(pool.gauges().in_use(), 0);
}

#[test]
fn waiters_are_served_in_order_and_nobody_overtakes() {
    let pool = pool();
    let mut held = drain(&pool, Class::Large);
    let wakes: [Arc<Wakes>; 2] = Default::default();
    let wakers = wakes.clone().map(Waker::from);
    let mut first = pin!(pool.acquire(Class::Large));
    let mut second = pin!(pool.acquire(Class::Large));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(&wakers[0]))
            .is_pending()
    );
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&wakers[1]))
            .is_pending()
    );
    assert_eq!(pool.gauges().class(Class::Large).waiters(), 2);
    held.pop();
    assert_eq!((wakes[0].0.load(Relaxed), wakes[1].0.load(Relaxed)), (1, 0));
    assert!(
        pool.try_acquire(Class::Large).is_none(),
        "the freed buffer is promised"
    );
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&wakers[1]))
            .is_pending()
    );
    let Poll::Ready(buffer) = first.as_mut().poll(&mut Context::from_waker(&wakers[0])) else {
        panic!("served");
    };
    drop(buffer);
    assert_eq!(wakes[1].0.load(Relaxed), 1);
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&wakers[1]))
            .is_ready()
    );
    assert_eq!(pool.gauges().class(Class::Large).waits_total(), 2);
    assert_eq!(pool.gauges().class(Class::Large).waiters(), 0);
}

#[test]
fn a_dropped_waiter_passes_its_buffer_on() {
    let pool = pool();
    let mut held = drain(&pool, Class::Control);
    let mut context = Context::from_waker(Waker::noop());
    let mut futures: Vec<_> = (0..4)
        .map(|_| Box::pin(pool.acquire(Class::Control)))
        .collect();
    for future in &mut futures {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    drop(futures.remove(1));
    held.pop();
    drop(futures.remove(0));
    assert!(futures[1].as_mut().poll(&mut context).is_pending());
    assert!(
        futures[0].as_mut().poll(&mut context).is_ready(),
        "served by the one that left"
    );
    assert!(
        futures[1].as_mut().poll(&mut context).is_ready(),
        "and by the one just dropped"
    );
    drop((held, futures));
    assert_eq!(pool.gauges().in_use(), 0);
    assert_eq!(pool.gauges().class(Class::Control).waiters(), 0);
    assert!(pool.try_acquire(Class::Control).is_some());
}

#[test]
fn growth_serves_those_who_wait() {
    let pool = pool();
    let held = drain(&pool, Class::Large);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = pin!(pool.acquire(Class::Large));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let region = held[0].region();
    pool.grow(2 << 20).unwrap();
    let Poll::Ready(buffer) = waiting.as_mut().poll(&mut context) else {
        panic!("served")
    };
    assert_ne!(buffer.region(), region);
}

#[test]
fn buffers_outlive_their_pool() {
    let pool = pool();
    let mut buffer = pool.try_acquire(Class::Large).unwrap();
    drop(pool);
    buffer.fill(7);
    let slice = buffer.into_slice(0..1 << 20);
    let mut byte = [0];
    slice.copy_to((1 << 20) - 1, &mut byte);
    assert_eq!(byte, [7]);
}

#[test]
fn shared_slices_hold_their_arena() {
    let registry = Registry::new(HugepagePolicy::Off);
    let arena = registry.arena(1).unwrap().share();
    let slice = Slice::shared(&arena, 4096..8192);
    let part = slice.slice(100..200);
    assert_eq!(part.region(), arena.id());
    assert_eq!(
        part.as_ptr() as usize,
        arena.base().as_ptr() as usize + 4196
    );
    drop((slice, arena));
    assert_ne!(registry.arenas().len(), 0);
    let part = part.try_into_buffer().unwrap_err();
    drop(part);
    assert_eq!(registry.arenas().len(), 0);
}

#[test]
#[should_panic(expected = "inside the arena")]
fn shared_slices_stay_inside_the_arena() {
    let arena = Registry::new(HugepagePolicy::Off).arena(1).unwrap().share();
    let _ = Slice::shared(&arena, 0..arena.len() + 1);
}

#[test]
#[should_panic(expected = "inside the memory")]
fn parts_stay_inside_the_slice() {
    let pool = pool();
    let slice = pool.try_acquire(Class::Control).unwrap().into_slice(0..10);
    slice.copy_from(8, b"abc");
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "free memory was written to")]
fn debug_builds_notice_writes_to_free_memory() {
    let pool = pool();
    let slice = pool.try_acquire(Class::Control).unwrap().into_slice(0..10);
    let stale = slice.as_ptr();
    drop(slice);
    // SAFETY: the pool, which outlives the write, keeps the memory mapped; the slice was its only
    // user, and is dropped.
    unsafe { stale.write(1) };
    let _ = pool.try_acquire(Class::Control);
}

#[test]
fn what_is_attainable_is_what_there_is_and_what_can_be_cut() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 4 << 20 }).unwrap();
    let gauges = pool.gauges();
    for class in [Class::Control, Class::Large, Class::Medium] {
        let attainable = pool.attainable(class);
        assert!(attainable >= gauges.class(class).capacity());
        let taken: Vec<_> = std::iter::from_fn(|| pool.try_acquire(class)).collect();
        assert_eq!(taken.len() as u64, attainable);
        assert_eq!(pool.attainable(class), attainable);
    }
}

fn charged<F: Future>(
    pool: &Pool,
    account: &Rc<MemoryAccount>,
    is_late: bool,
    future: Pin<&mut F>,
) -> Poll<F::Output> {
    let _charging = pool.charging(account, is_late);
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_buffer_is_charged_until_its_last_slice_is_gone() {
    let pool = pool();
    let share = Rc::new(MemoryShare::new());
    let account = MemoryAccount::new(&share);
    let charging = pool.charging(&account, false);
    let buffer = pool.try_obtain(Class::Medium).unwrap();
    drop(charging);
    // Not on anybody's behalf.
    let other = pool.try_obtain(Class::Medium).unwrap();
    assert_eq!((account.held(), share.held_bytes()), (1, 64 << 10));
    let slice = buffer.into_slice(0..100);
    let (head, tail) = slice.split_at(50);
    drop((head, other));
    assert_eq!((account.held(), share.held(Class::Medium)), (1, 1));
    drop(tail);
    assert_eq!((account.held(), share.held_bytes()), (0, 0));
    assert_eq!(pool.gauges().in_use(), 0);
    assert_eq!(Rc::strong_count(&account), 1);
}

#[test]
fn a_share_is_waited_for_in_turn_and_without_memory() {
    let pool = pool();
    let share = Rc::new(MemoryShare::new());
    share.set_most(Class::Medium, 2);
    let accounts = [(); 2].map(|()| MemoryAccount::new(&share));
    let charging = pool.charging(&accounts[0], false);
    let held = [(); 2].map(|()| pool.try_obtain(Class::Medium).unwrap());
    assert!(pool.try_obtain(Class::Medium).is_none(), "beyond the share");
    assert!(pool.try_obtain(Class::Large).is_some(), "of another class");
    drop(charging);
    let in_use = pool.gauges().in_use();
    let mut first = Box::pin(pool.obtain(Class::Medium));
    let mut second = Box::pin(pool.obtain(Class::Medium));
    let mut third = Box::pin(pool.obtain(Class::Medium));
    for (waiting, account) in [(&mut first, 0), (&mut second, 1), (&mut third, 1)] {
        let polled = charged(&pool, &accounts[account], false, waiting.as_mut());
        assert!(polled.is_pending());
    }
    assert_eq!((pool.gauges().in_use(), share.waiting()), (in_use, 3));
    let class = pool.gauges();
    assert_eq!(class.class(Class::Medium).waiters(), 0, "not among others");
    drop(held);
    // Whoever comes later does not pass those who wait, nor do they pass each other.
    let charging = pool.charging(&accounts[0], false);
    assert!(pool.try_obtain(Class::Medium).is_none());
    drop(charging);
    assert!(charged(&pool, &accounts[1], false, third.as_mut()).is_pending());
    drop(first);
    assert!(matches!(
        charged(&pool, &accounts[1], false, second.as_mut()),
        Poll::Ready(Ok(_))
    ));
    let Poll::Ready(Ok(buffer)) = charged(&pool, &accounts[1], false, third.as_mut()) else {
        panic!("its turn");
    };
    assert_eq!((accounts[1].held(), share.waiting()), (1, 0));
    drop(buffer);
    assert_eq!(share.held_bytes(), 0);
}

#[test]
fn waiting_on_somebodys_behalf_ends_with_the_connection_and_with_the_time() {
    let pool = pool();
    let share = Rc::new(MemoryShare::new());
    let account = MemoryAccount::new(&share);
    let all = drain(&pool, Class::Large);
    // In the queue of the pool.
    let mut late = Box::pin(pool.obtain(Class::Large));
    assert!(charged(&pool, &account, false, late.as_mut()).is_pending());
    assert_eq!(account.held(), 1, "its part of the share");
    let polled = charged(&pool, &account, true, late.as_mut());
    assert!(matches!(polled, Poll::Ready(Err(NoMemory::Late))));
    drop(late);
    // In that of the share.
    share.set_most(Class::Large, 1);
    let mut ended = Box::pin(pool.obtain(Class::Large));
    let mut behind = Box::pin(pool.obtain(Class::Large));
    assert!(charged(&pool, &account, false, ended.as_mut()).is_pending());
    assert!(charged(&pool, &account, false, behind.as_mut()).is_pending());
    account.end();
    for waiting in [&mut ended, &mut behind] {
        let polled = charged(&pool, &account, false, waiting.as_mut());
        assert!(matches!(polled, Poll::Ready(Err(NoMemory::Ended))));
    }
    drop((ended, behind));
    assert_eq!((account.held(), share.waiting()), (0, 0));
    assert_eq!(pool.gauges().class(Class::Large).waiters(), 0);
    drop(all);
    assert_eq!(pool.gauges().in_use(), 0);
}

#[test]
fn all_that_makes_room_in_a_share_wakes_the_one_whose_turn_it_is() {
    const CLASS: Class = Class::Control;
    let pool = pool();
    let share = Rc::new(MemoryShare::new());
    share.set_most(CLASS, 0);
    assert!(share.has_room(CLASS), "at least one");
    let account = MemoryAccount::new(&share);
    let _charging = pool.charging(&account, false);
    let held = pool.try_obtain(CLASS).unwrap();
    assert!(!share.has_room(CLASS));
    let wakes: [Arc<Wakes>; 4] = Default::default();
    let wakers = wakes.clone().map(Waker::from);
    let [first, second, third, fourth] = [(); 4].map(|()| Box::pin(pool.obtain(CLASS)));
    let mut waiting = [Some(first), Some(second), Some(third), Some(fourth)];
    let mut poll = |index: usize| {
        let waiter = waiting[index].as_mut().unwrap().as_mut();
        waiter.poll(&mut Context::from_waker(&wakers[index]))
    };
    assert!((0..4).all(|index| poll(index).is_pending()));
    let woken = || wakes.each_ref().map(|wakes| wakes.0.load(Relaxed));
    assert_eq!(woken(), [0; 4]);
    drop(held);
    assert_eq!(woken(), [1, 0, 0, 0], "a buffer has come back");
    let second = poll(1);
    assert!(second.is_pending(), "not its turn");
    drop(waiting[0].take());
    assert_eq!(woken(), [1, 1, 0, 0], "the first has left");
    let mut poll = |index: usize| {
        let waiter = waiting[index].as_mut().unwrap().as_mut();
        waiter.poll(&mut Context::from_waker(&wakers[index]))
    };
    share.set_most(CLASS, 2);
    assert_eq!(woken(), [1, 2, 0, 0], "the share has grown");
    let served = poll(1);
    assert!(served.is_ready());
    assert_eq!(woken(), [1, 2, 1, 0], "there is room for one more");
    let served = (served, poll(2));
    assert!(served.1.is_ready());
    assert_eq!((woken(), share.held(CLASS)), ([1, 2, 1, 0], 2));
}

#[test]
fn a_buffer_that_was_taken_otherwise_is_charged_beyond_the_share() {
    let pool = pool();
    let share = Rc::new(MemoryShare::new());
    share.set_most(Class::Medium, 1);
    let account = MemoryAccount::new(&share);
    let buffers = [(); 2].map(|()| pool.try_acquire(Class::Medium).unwrap());
    for buffer in &buffers {
        account.charge(buffer);
    }
    assert_eq!((account.held(), share.held_bytes()), (2, 128 << 10));
    drop(buffers);
    assert_eq!((account.held(), share.held_bytes()), (0, 0));
}
