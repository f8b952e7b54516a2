//! What the tests share: an engine with memory, files, and a way to run futures.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use millrace_mempool::{
    Arena, Class, HugepagePolicy, Pool, PoolConfig, Registry, SharedArena, Slice,
};
use millrace_reactor::Alarm;
use millrace_store::posix::engine::{Backend, Engine, EngineConfig};
use millrace_store::posix::identity::Identity;

/// What this system has of the two; where it has no ring, that is recorded as skipped.
pub fn backends() -> Vec<Backend> {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).unwrap();
    let config = EngineConfig {
        backend: Backend::Ring,
        operations: 1,
    };
    match Engine::new(config, &pool, &[], None) {
        Ok(_) => vec![Backend::Ring, Backend::Threads],
        Err(error) => {
            millrace_testing::skip!("no io_uring, only threads are tested: {error}");
            let config = EngineConfig {
                backend: Backend::Auto,
                ..config
            };
            let engine = Engine::new(config, &pool, &[], None).unwrap();
            assert_eq!(engine.backend(), Backend::Threads);
            vec![Backend::Threads]
        }
    }
}

type MakeEngine = fn(EngineConfig, &Pool, &[Arc<Arena>], Option<Alarm>) -> std::io::Result<Engine>;

/// An engine and its memory.
pub struct Stage {
    pub engine: Engine,
    pub pool: Pool,
    pub registry: Registry,
}

impl Stage {
    pub fn new(backend: Backend, operations: u32) -> Self {
        Self::with_memory(backend, operations, 32 << 20)
    }

    /// Of each backend, and of a ring whose thread may not act as others.
    pub fn of_all_kinds(operations: u32) -> Vec<Self> {
        let backends = backends();
        let beside_devices = backends.contains(&Backend::Ring).then_some(Backend::Ring);
        let beside_devices = beside_devices
            .map(|backend| Self::made_by(Engine::beside_devices, backend, operations, 32 << 20));
        let plain = backends.into_iter();
        let plain = plain.map(|backend| Self::new(backend, operations));
        plain.chain(beside_devices).collect()
    }

    pub fn with_memory(backend: Backend, operations: u32, bytes: usize) -> Self {
        Self::made_by(Engine::new, backend, operations, bytes)
    }

    fn made_by(make: MakeEngine, backend: Backend, operations: u32, bytes: usize) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes }).unwrap();
        let config = EngineConfig {
            backend,
            operations,
        };
        let engine = make(config, &pool, &registry.arenas(), None).unwrap();
        assert_eq!(engine.backend(), backend);
        Self {
            engine,
            pool,
            registry,
        }
    }

    /// A slice of the pool's with these bytes.
    pub fn slice_of(&self, bytes: &[u8]) -> Slice {
        let slice = self.slice(bytes.len());
        slice.copy_from(0, bytes);
        slice
    }

    /// A slice of the pool's, of at most a mebibyte.
    pub fn slice(&self, length: usize) -> Slice {
        let class = Class::ALL.into_iter().find(|class| class.size() >= length);
        let class = class.expect("no longer than the pool's buffers");
        let buffer = self.pool.try_acquire(class).expect("enough memory");
        buffer.into_slice(0..length)
    }

    /// Runs a future to its end.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = poll_once(future.as_mut()) {
                return output;
            }
            self.engine.poll(Instant::now());
            std::thread::yield_now();
        }
    }

    /// Turns until nothing is under way.
    pub fn finish(&self) {
        while self.engine.pending() > 0 {
            self.engine.poll(Instant::now());
            std::thread::yield_now();
        }
    }
}

pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A piece of an arena of its own.
pub fn slice_of_arena(arena: &SharedArena, range: std::ops::Range<usize>) -> Slice {
    Slice::shared(arena, range)
}

pub fn superuser() -> Identity {
    Identity::with_groups(0, 0, &[])
}

/// A folder that every user may use, gone with this value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    pub fn within(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millrace-engine-{}-{number}", std::process::id());
        let path = parent.join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An open file with these bytes.
    pub fn file(&self, name: &str, bytes: &[u8]) -> Arc<OwnedFd> {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(path);
        Arc::new(file.unwrap().into())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
