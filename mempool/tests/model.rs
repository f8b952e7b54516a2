//! Random lending, slicing, waiting and cancelling against a model of a pool.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use millrace_mempool::{Acquire, Buffer, Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    TryAcquire(Class),
    Wait(Class),
    PollWaiter(usize),
    DropWaiter(usize),
    IntoSlice(usize, usize),
    CloneSlice(usize),
    Split(usize, usize),
    IntoBuffer(usize),
    DropBuffer(usize),
    DropSlice(usize),
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        Just(Class::Control),
        Just(Class::Medium),
        Just(Class::Large)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0..64_usize;
    prop_oneof![
        4 => class().prop_map(Step::TryAcquire),
        4 => class().prop_map(Step::Wait),
        4 => index.clone().prop_map(Step::PollWaiter),
        1 => index.clone().prop_map(Step::DropWaiter),
        2 => (index.clone(), 0..4096_usize).prop_map(|(at, cut)| Step::IntoSlice(at, cut)),
        2 => index.clone().prop_map(Step::CloneSlice),
        1 => (index.clone(), 0..4096_usize).prop_map(|(at, cut)| Step::Split(at, cut)),
        2 => index.clone().prop_map(Step::IntoBuffer),
        2 => index.clone().prop_map(Step::DropBuffer),
        3 => index.prop_map(Step::DropSlice),
    ]
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Waiter {
    future: Pin<Box<Acquire>>,
    woken: Arc<Flag>,
    class: Class,
    number: u64,
}

/// Who waits and who was served. What there is to lend the pool tells itself.
#[derive(Default)]
struct Model {
    queues: [VecDeque<u64>; 3],
    served: Vec<u64>,
}

struct World {
    pool: Pool,
    model: Model,
    buffers: Vec<Buffer>,
    /// With the number of the loan that they belong to.
    slices: Vec<(Slice, u64, Class)>,
    waiters: Vec<Waiter>,
    next: u64,
}

impl World {
    fn new() -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 4 << 20 }).unwrap();
        let (buffers, slices, waiters) = Default::default();
        let mut world = Self {
            pool,
            model: Model::default(),
            buffers,
            slices,
            waiters,
            next: 0,
        };
        // Few of the reserves, so that they run out.
        for (class, count) in [(Class::Control, 60), (Class::Medium, 26)] {
            for _ in 0..count {
                world.step(Step::TryAcquire(class));
            }
        }
        world
    }

    /// Whether there is a buffer for who comes.
    fn has_room(&self, class: Class) -> bool {
        let in_use = self.pool.gauges().class(class).in_use();
        self.pool.attainable(class) > in_use && self.model.queues[class as usize].is_empty()
    }

    /// Takes in who was served since: those who came first.
    fn note_served(&mut self) {
        for class in Class::ALL {
            let queue = &mut self.model.queues[class as usize];
            let woken = |number: u64| {
                let mut waiters = self.waiters.iter();
                let waiter = waiters.find(|waiter| waiter.number == number);
                waiter.is_some_and(|waiter| waiter.woken.0.load(Relaxed))
            };
            while let Some(first) = queue.pop_front_if(|first| woken(*first)) {
                self.model.served.push(first);
            }
            assert!(!queue.iter().any(|&number| woken(number)), "out of turn");
        }
    }

    /// What can be had of each class of a pool at rest.
    fn fresh() -> [u64; 3] {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 4 << 20 }).unwrap();
        Class::ALL.map(|class| pool.attainable(class))
    }

    fn lend(&mut self, mut buffer: Buffer) {
        // A buffer is exclusive: a stamp at both ends stays until the buffer goes.
        let stamp = self.next.to_le_bytes();
        self.next += 1;
        let end = buffer.capacity();
        buffer[..8].copy_from_slice(&stamp);
        buffer[end - 8..].copy_from_slice(&stamp);
        self.buffers.push(buffer);
    }

    fn step(&mut self, step: Step) {
        let pick = |index: usize, len: usize| (len > 0).then(|| index % len);
        match step {
            Step::TryAcquire(class) => {
                let expected = self.has_room(class);
                let buffer = self.pool.try_acquire(class);
                assert_eq!(buffer.is_some(), expected);
                if let Some(buffer) = buffer {
                    self.lend(buffer);
                }
            }
            Step::Wait(class) => {
                let future = Box::pin(self.pool.acquire(class));
                let woken = Arc::new(Flag::default());
                let number = self.next;
                self.next += 1;
                self.waiters.push(Waiter {
                    future,
                    woken,
                    class,
                    number,
                });
                let expected = self.has_room(class);
                if !expected {
                    self.model.queues[class as usize].push_back(number);
                }
                assert_eq!(self.poll_waiter(self.waiters.len() - 1), expected);
            }
            Step::PollWaiter(index) => {
                let Some(index) = pick(index, self.waiters.len()) else {
                    return;
                };
                let number = self.waiters[index].number;
                let served = self.model.served.iter().position(|&other| other == number);
                if let Some(served) = served {
                    self.model.served.remove(served);
                }
                assert_eq!(self.waiters[index].woken.0.load(Relaxed), served.is_some());
                assert_eq!(self.poll_waiter(index), served.is_some());
            }
            Step::DropWaiter(index) => {
                let Some(index) = pick(index, self.waiters.len()) else {
                    return;
                };
                let Waiter {
                    number,
                    class,
                    future,
                    ..
                } = self.waiters.remove(index);
                drop(future);
                if let Some(at) = self.model.served.iter().position(|&other| other == number) {
                    self.model.served.remove(at);
                } else {
                    self.model.queues[class as usize].retain(|&other| other != number);
                }
            }
            Step::IntoSlice(index, cut) => {
                let Some(index) = pick(index, self.buffers.len()) else {
                    return;
                };
                let buffer = self.buffers.swap_remove(index);
                let (class, end) = (buffer.class(), buffer.capacity());
                let stamp = u64::from_le_bytes(buffer[..8].try_into().unwrap());
                self.slices
                    .push((buffer.into_slice(cut..end), stamp, class));
            }
            Step::CloneSlice(index) => {
                let Some(index) = pick(index, self.slices.len()) else {
                    return;
                };
                let copy = self.slices[index].clone();
                self.slices.push(copy);
            }
            Step::Split(index, cut) => {
                let Some(index) = pick(index, self.slices.len()) else {
                    return;
                };
                let (slice, stamp, class) = self.slices.swap_remove(index);
                let at = cut.min(slice.len());
                let (head, tail) = slice.split_at(at);
                self.slices
                    .extend([(head, stamp, class), (tail, stamp, class)]);
            }
            Step::IntoBuffer(index) => {
                let Some(index) = pick(index, self.slices.len()) else {
                    return;
                };
                let (slice, stamp, class) = self.slices.swap_remove(index);
                let sole = self.slices.iter().all(|(_, other, _)| *other != stamp);
                match slice.try_into_buffer() {
                    Ok(buffer) => {
                        assert!(sole);
                        check_stamps(&buffer, stamp);
                        self.buffers.push(buffer);
                    }
                    Err(slice) => {
                        assert!(!sole);
                        self.slices.push((slice, stamp, class));
                    }
                }
            }
            Step::DropBuffer(index) => {
                let Some(index) = pick(index, self.buffers.len()) else {
                    return;
                };
                let buffer = self.buffers.swap_remove(index);
                let stamp = u64::from_le_bytes(buffer[..8].try_into().unwrap());
                check_stamps(&buffer, stamp);
                drop(buffer);
            }
            Step::DropSlice(index) => {
                let Some(index) = pick(index, self.slices.len()) else {
                    return;
                };
                drop(self.slices.swap_remove(index));
            }
        }
    }

    fn poll_waiter(&mut self, index: usize) -> bool {
        let waiter = &mut self.waiters[index];
        let waker = Waker::from(Arc::clone(&waiter.woken));
        match waiter
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
        {
            Poll::Ready(buffer) => {
                self.waiters.remove(index);
                self.lend(buffer);
                true
            }
            Poll::Pending => false,
        }
    }

    fn check_gauges(&self) {
        let gauges = self.pool.gauges();
        for class in Class::ALL {
            let gauges = gauges.class(class);
            let waiters = gauges.waiters();
            assert_eq!(waiters, self.model.queues[class as usize].len() as u64);
            assert!(gauges.capacity() >= gauges.in_use());
            if waiters > 0 {
                let attainable = self.pool.attainable(class);
                assert_eq!(attainable, gauges.in_use(), "nobody waits beside memory");
            }
            assert!(gauges.high_water() >= gauges.in_use());
        }
    }
}

fn check_stamps(buffer: &Buffer, stamp: u64) {
    let end = buffer.capacity();
    assert_eq!(&buffer[..8], &stamp.to_le_bytes());
    assert_eq!(&buffer[end - 8..], &stamp.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_pool_behaves_like_its_model(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        let before = World::fresh();
        for step in steps {
            world.step(step);
            world.note_served();
            world.check_gauges();
        }
        let World { pool, buffers, slices, waiters, .. } = world;
        // Waiters that were served hold buffers too; in this order some are passed on.
        drop(buffers);
        drop(waiters);
        drop(slices);
        let gauges = pool.gauges();
        prop_assert_eq!(gauges.in_use(), 0);
        // Whatever was in demand meanwhile, every class has again what it began with.
        prop_assert_eq!(Class::ALL.map(|class| pool.attainable(class)), before);
        for class in Class::ALL {
            prop_assert_eq!(gauges.class(class).waiters(), 0);
            let capacity = gauges.class(class).capacity();
            let all: Vec<_> = std::iter::from_fn(|| pool.try_acquire(class)).collect();
            prop_assert!(all.len() as u64 >= capacity, "no buffer was lost");
        }
    }
}
