//! Steady reads, writes and syncs by a ring allocate nothing.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_store::Caller;
use millrace_store::posix::engine::{Backend, Durability, Engine, EngineConfig};
use millrace_store::posix::identity::Identity;
use millrace_testing::allocation::{CountingAllocator, allocated};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const USERS: u32 = 40;

fn caller(number: u32) -> Caller {
    let groups = (0..16).map(|group| 1000 + number % USERS + group);
    Caller {
        uid: 1000 + number % USERS,
        gid: 100,
        groups: groups.collect(),
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Three operations, of which one has to wait for a place.
fn round(engine: &Engine, file: &Arc<OwnedFd>, slices: &[Slice], number: u32) {
    let identity = Identity::of(&caller(number));
    let (data, durability) = (&slices[0], Durability::None);
    let mut write = pin!(engine.write(file, 0, data, durability, &identity, None));
    let mut read = pin!(engine.read(file, 0, &slices[1], false, &identity, None));
    let mut sync = pin!(engine.sync(file, false, None));
    let mut left = [true; 3];
    while left != [false; 3] {
        if left[0] && poll(write.as_mut()).is_ready() {
            left[0] = false;
        }
        if left[1] && poll(read.as_mut()).is_ready() {
            left[1] = false;
        }
        if left[2] && poll(sync.as_mut()).is_ready() {
            left[2] = false;
        }
        engine.poll(Instant::now());
        if engine.arm() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_steady_ring_allocates_nothing() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 4 << 20 }).unwrap();
    let config = EngineConfig {
        backend: Backend::Ring,
        operations: 2,
    };
    let engine = match Engine::new(config, &pool, &registry.arenas(), None) {
        Ok(engine) => engine,
        Err(error) => {
            millrace_testing::skip!("no io_uring, and threads do allocate: {error}");
            return;
        }
    };
    let path = std::env::temp_dir().join(format!("engine-allocation-{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let file: Arc<OwnedFd> = Arc::new(options.open(&path).unwrap().into());
    std::fs::remove_file(&path).unwrap();
    let slices = [Class::Medium, Class::Medium].map(|class| {
        let buffer = pool.try_acquire(class).unwrap();
        buffer.into_slice(0..30_000)
    });
    for number in 0..2 * USERS {
        round(&engine, &file, &slices, number);
    }
    let before = allocated();
    for number in 0..1000 {
        round(&engine, &file, &slices, number);
    }
    assert_eq!(allocated() - before, 0);
}
