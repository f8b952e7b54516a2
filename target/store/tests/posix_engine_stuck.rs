//! A device that does not answer: the engine goes on for others.

mod posix_machine;

use std::fs::OpenOptions;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_store::posix::engine::{Backend, Durability, Engine, EngineConfig};
use millrace_store::posix::identity::Identity;
use posix_machine::fuse::Fuse;

const OPERATIONS: u32 = 160;
/// Of which hang.
const STUCK: usize = 100;

struct Stage {
    engine: Engine,
    pool: Pool,
}

impl Stage {
    /// None, recorded as skipped, where there is no such backend.
    fn new(backend: Backend, operations: u32) -> Option<Self> {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        let config = EngineConfig {
            backend,
            operations,
        };
        let engine = Engine::new(config, &pool, &registry.arenas(), None);
        let engine = engine.inspect_err(|error| millrace_testing::skip!("{backend:?}: {error}"));
        Some(Self {
            engine: engine.ok()?,
            pool,
        })
    }

    fn slice(&self) -> Slice {
        let buffer = self.pool.try_acquire(Class::Control).unwrap();
        buffer.into_slice(0..4096)
    }

    async fn write(&self, file: &Arc<OwnedFd>, slice: &Slice, user: &Identity) -> Result<usize> {
        let durability = Durability::None;
        self.engine
            .write(file, 0, slice, durability, user, None)
            .await
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.run_at(Instant::now(), future)
    }

    fn run_at<F: Future>(&self, now: Instant, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = poll(future.as_mut()) {
                return output;
            }
            self.engine.poll(now);
            std::thread::yield_now();
        }
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn open(path: &Path) -> Arc<OwnedFd> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    Arc::new(options.open(path).unwrap().into())
}

#[test]
fn a_device_that_hangs_holds_up_no_other() {
    let Some(fuse) = Fuse::mount(&["file"]) else {
        return;
    };
    for backend in [Backend::Ring, Backend::Threads] {
        let Some(stage) = Stage::new(backend, OPERATIONS) else {
            continue;
        };
        let root = Identity::with_groups(0, 0, &[]);
        let stuck = open(&fuse.path().join("file"));
        let beside = tempfile::NamedTempFile::new().unwrap();
        let sound = open(beside.path());
        fuse.behave(|behaviour| behaviour.silent = true);
        let slices: Vec<_> = (0..STUCK).map(|_| stage.slice()).collect();
        let mut syncs: Vec<_> = slices
            .iter()
            .map(|_| Box::pin(stage.engine.sync(&stuck, true, None)))
            .collect();
        let mut reads: Vec<_> = slices[..4]
            .iter()
            .zip(0..)
            .map(|(slice, n)| {
                Box::pin(
                    stage
                        .engine
                        .read(&stuck, n * 4096, slice, false, &root, None),
                )
            })
            .collect();
        for sync in &mut syncs {
            assert!(poll(sync.as_mut()).is_pending());
        }
        for read in &mut reads {
            assert!(poll(read.as_mut()).is_pending());
        }
        let slice = stage.slice();
        for round in 0..100 {
            let offset = round * 4096;
            let durability = Durability::Data;
            let write = stage
                .engine
                .write(&sound, offset, &slice, durability, &root, None);
            assert_eq!(stage.run(write).unwrap(), 4096);
            stage.run(stage.engine.sync(&sound, true, None)).unwrap();
        }
        assert!(stage.engine.pending() >= STUCK);
        fuse.behave(|behaviour| behaviour.silent = false);
        for sync in syncs {
            stage.run(sync).unwrap();
        }
        for read in reads {
            stage.run(read).unwrap();
        }
    }
}

/// The kernel executes writes of files with the same hash, of 64, one after the other.
#[test]
fn a_write_that_hangs_holds_up_no_write_of_another_file() {
    // If none were cancelled, none would be held up once in 3,000 runs.
    const FILES: usize = 512;
    let Some(fuse) = Fuse::mount(&["file"]) else {
        return;
    };
    for backend in [Backend::Ring, Backend::Threads] {
        let Some(stage) = Stage::new(backend, 2 * FILES as u32) else {
            continue;
        };
        // A user whom a thread has to become.
        let user = Identity::with_groups(1000, 1000, &[]);
        let stuck = open(&fuse.path().join("file"));
        let slice = stage.slice();
        fuse.behave(|behaviour| behaviour.silent = true);
        let mut hanging = Box::pin(stage.write(&stuck, &slice, &user));
        assert!(poll(hanging.as_mut()).is_pending());
        let begun = Instant::now();
        while fuse.held() == 0 {
            stage.engine.poll(begun);
            std::thread::yield_now();
        }
        let beside = tempfile::tempdir().unwrap();
        let path = |file: usize| beside.path().join(file.to_string());
        let files: Vec<_> = (0..FILES).map(|file| open(&path(file))).collect();
        // Those that are begun before anything is known of it, and those after that.
        let overdue = begun + Duration::from_millis(300);
        for times in [[begun, overdue], [overdue, overdue]] {
            let mut writes: Vec<_> = files
                .iter()
                .map(|file| Box::pin(stage.write(file, &slice, &user)))
                .collect();
            for now in times {
                writes.retain_mut(|write| match poll(write.as_mut()) {
                    Poll::Ready(written) => {
                        assert_eq!(written.unwrap(), 4096);
                        false
                    }
                    Poll::Pending => true,
                });
                stage.engine.poll(now);
            }
            for write in writes {
                assert_eq!(stage.run_at(overdue, write).unwrap(), 4096);
            }
            assert_eq!(stage.engine.next_deadline(), None);
        }
        assert!(poll(hanging.as_mut()).is_pending());
        fuse.behave(|behaviour| behaviour.silent = false);
        assert_eq!(stage.run(hanging).unwrap(), 4096);
        // The ring has the writes again.
        let again = stage.run(stage.write(&stuck, &slice, &user));
        assert_eq!(again.unwrap(), 4096);
        assert_eq!(stage.engine.pending(), 0);
    }
}
