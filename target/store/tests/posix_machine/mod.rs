//! What the tests of the posix store's data share: a small reactor, folders, and a file system
//! that fails when it is told to.

#![allow(dead_code)] // Each test file uses its part.

pub mod fuse;

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::Clock;
use millrace_reactor::task::{TaskId, TaskSet};
use millrace_store::posix::PosixStore;
use millrace_store::posix::engine::{Backend, Engine, EngineConfig};
use millrace_store::posix::volume::{Direct, Groups, Limits, Mounts, Sync, Volume, VolumeConfig};
use millrace_store::{
    Caller, CreateHow, FileData, Handle, Modified, Namespace, ReadOutcome, Result, SetAttributes,
    Stability, Store, WriteVerifier, Written,
};

pub const ROOT: Caller = Caller::SUPERUSER;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// One reactor's loop, turned by the test. Its clock goes on only as the test says, as no test
/// depends on real time.
pub struct Machine {
    pub engine: Engine,
    pub clock: Clock,
    pub pool: Pool,
    now: Cell<Instant>,
    turns: Cell<u64>,
    tasks: RefCell<TaskSet<Task>>,
    stores: RefCell<Vec<PosixStore>>,
}

impl Machine {
    pub fn new(backend: Backend) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 32 << 20 }).unwrap();
        let now = Instant::now();
        let config = EngineConfig {
            backend,
            operations: 64,
        };
        let engine = Engine::new(config, &pool, &registry.arenas(), None).unwrap();
        Self {
            engine,
            clock: Clock::new(now),
            pool,
            now: Cell::new(now),
            turns: Cell::new(0),
            tasks: RefCell::new(TaskSet::new(1024, None)),
            stores: RefCell::default(),
        }
    }

    pub fn store(&self, volume: &Volume) -> PosixStore {
        let store = PosixStore::new(volume, &self.engine, &self.clock);
        self.stores.borrow_mut().push(store.clone());
        store
    }

    /// One turn of the loop.
    pub fn turn(&self) {
        self.turns.set(self.turns.get() + 1);
        let work = self.engine.poll(self.now.get());
        let woken = self.clock.turn(self.now.get());
        for store in self.stores.borrow().iter() {
            store.poll(self.now.get());
        }
        let mut ended = Vec::new();
        let polled = self.tasks.borrow_mut().run(&mut ended);
        for task in ended {
            if let Err(panic) = task.outcome {
                std::panic::resume_unwind(panic);
            }
        }
        if work + woken + polled == 0 {
            // The kernel and other threads have to come to their part.
            std::thread::yield_now();
        }
    }

    pub fn turns(&self) -> u64 {
        self.turns.get()
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    /// Begins something that goes on with the turns; what it comes to appears in the cell.
    pub fn begin<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Pending<T> {
        let place = Rc::new(RefCell::new(None));
        let result = Rc::clone(&place);
        let task: Task = Box::pin(async move {
            let value = future.await;
            result.replace(Some(value));
        });
        let Ok(task) = self.tasks.borrow_mut().spawn(task) else {
            panic!("there is room for some tasks");
        };
        Pending { task, place }
    }

    /// Drops a task wherever it waits, as the end of a connection does.
    pub fn cancel<T>(&self, pending: &Pending<T>) {
        assert!(self.tasks.borrow_mut().cancel(pending.task));
    }

    /// Turns until something is so.
    pub fn until(&self, mut so: impl FnMut() -> bool) {
        while !so() {
            self.turn();
        }
    }

    pub fn wait<T>(&self, pending: &Pending<T>) -> T {
        self.until(|| pending.is_done());
        pending.take()
    }

    /// Runs a future to its end.
    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let pending = self.begin(future);
        self.wait(&pending)
    }
}

pub struct Pending<T> {
    task: TaskId,
    place: Rc<RefCell<Option<T>>>,
}

impl<T> Pending<T> {
    pub fn is_done(&self) -> bool {
        self.place.borrow().is_some()
    }

    pub fn take(&self) -> T {
        self.place.borrow_mut().take().expect("it is done")
    }
}

/// A folder that is gone with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(parent: &Path, name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("millrace-{}-{number}-{name}", std::process::id());
        let path = parent.join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// One on a disk and one in memory.
    pub fn both(name: &str) -> [Self; 2] {
        [
            Self::new(&std::env::temp_dir(), name),
            Self::new(Path::new("/dev/shm"), name),
        ]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn config(root: &Path, direct: Direct) -> VolumeConfig {
    VolumeConfig {
        name: "test".to_owned(),
        root: root.to_owned(),
        direct,
        sync: Sync::Relaxed,
        groups: Groups::Client,
        mounts: Mounts::Hide,
        exclusive: false,
        limits: Limits::default(),
        state: None,
    }
}

/// Writes from slices of the store's, all at once.
pub async fn write(
    store: &PosixStore,
    caller: &Caller,
    file: Handle,
    offset: u64,
    bytes: &[u8],
    stability: Stability,
) -> Modified<Written> {
    let mut slices = Vec::new();
    let length = u32::try_from(bytes.len()).unwrap();
    let staged = store
        .stage_write(caller, file, offset, length, &mut slices)
        .await;
    let staged = match staged {
        Ok(staged) => staged,
        Err(error) => return Modified::failed(error),
    };
    assert_eq!(staged.length, length);
    let mut rest = bytes;
    for slice in &slices {
        let (part, more) = rest.split_at(slice.len());
        slice.copy_from(0, part);
        rest = more;
    }
    assert!(rest.is_empty(), "the slices cover the write");
    store.commit_write(staged, stability).await
}

pub async fn read(
    store: &PosixStore,
    caller: &Caller,
    file: Handle,
    offset: u64,
    length: u32,
) -> Result<(Vec<u8>, ReadOutcome)> {
    let mut slices = Vec::new();
    let outcome = store
        .read(caller, file, offset, length, &mut slices)
        .await?;
    let bytes = gather(&slices);
    assert_eq!(bytes.len(), outcome.length as usize);
    Ok((bytes, outcome))
}

pub fn gather(slices: &[Slice]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slice in slices {
        let start = bytes.len();
        bytes.resize(start + slice.len(), 0);
        slice.copy_to(0, &mut bytes[start..]);
    }
    bytes
}

pub async fn create(store: &PosixStore, name: &str) -> Handle {
    let set = SetAttributes {
        mode: Some(0o644),
        ..SetAttributes::default()
    };
    let how = CreateHow::Guarded(set);
    let made = store
        .create(&ROOT, store.root(), name.as_bytes(), &how)
        .await;
    made.result.unwrap();
    lookup(store, name).await
}

pub async fn lookup(store: &PosixStore, name: &str) -> Handle {
    let found = store.lookup(&ROOT, store.root(), name.as_bytes()).await;
    found.unwrap().0
}

pub async fn commit(store: &PosixStore, file: Handle) -> Result<WriteVerifier> {
    store.commit(file, 0, 0).await.result
}

pub async fn resize(store: &PosixStore, file: Handle, size: u64) {
    let set = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    let done = store.set_attributes(&ROOT, file, &set, None).await;
    done.result.unwrap();
}

/// Bytes that tell their place and a seed.
pub fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| seed ^ (index % 251) as u8)
        .collect()
}
