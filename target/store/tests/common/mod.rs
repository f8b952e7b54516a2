//! What the tests of stores share.

#![allow(dead_code)] // Each test file uses its part.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use millrace_mempool::{HugepagePolicy, Registry, Slice};
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_store::{
    Attributes, Caller, CreateHow, Handle, Modified, ReadOutcome, Result, SetAttributes, Stability,
    Store, Written,
};

pub const ROOT: Caller = Caller::SUPERUSER;

thread_local! {
    /// What has operations go on that wait, where a test's store has such.
    static DRIVER: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Ends the parking of the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// From now on operations of this thread may wait; `step` is called for as long as they do.
pub fn drive(step: impl Fn() + 'static) {
    DRIVER.set(Some(Box::new(step)));
}

/// Runs a future to its end. It never has to wait unless the thread has a driver.
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // What is ready at once needs no waker, which would be an allocation.
    if let Poll::Ready(output) = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => DRIVER.with_borrow(|driver| match driver {
                Some(step) => step(),
                None => panic!("operations of a memory store are ready at once"),
            }),
        }
    }
}

pub fn config(size_bytes: u64) -> MemoryConfig {
    MemoryConfig {
        size_bytes,
        inodes: None,
        file_system: 7,
        epoch: 1,
        root_mode: 0o755,
        root_uid: 0,
        root_gid: 0,
    }
}

pub fn store_of(config: MemoryConfig) -> MemoryStore {
    MemoryStore::new(&Registry::new(HugepagePolicy::Off), config).unwrap()
}

/// A store of 8 MiB whose root anyone may write.
pub fn store() -> MemoryStore {
    store_of(MemoryConfig {
        root_mode: 0o777,
        ..config(8 << 20)
    })
}

pub fn user(uid: u32) -> Caller {
    Caller {
        uid,
        gid: uid,
        groups: millrace_store::CallerGroups::NONE,
    }
}

pub fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..Default::default()
    }
}

pub fn size(size: u64) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..Default::default()
    }
}

pub fn owner(uid: u32, gid: u32) -> SetAttributes {
    SetAttributes {
        uid: Some(uid),
        gid: Some(gid),
        ..Default::default()
    }
}

pub fn create(store: &impl Store, caller: &Caller, directory: Handle, name: &[u8]) -> Handle {
    let how = CreateHow::Guarded(mode(0o644));
    now(store.create(caller, directory, name, &how))
        .result
        .unwrap()
        .0
}

pub fn make_directory(store: &impl Store, directory: Handle, name: &[u8]) -> Handle {
    now(store.make_directory(&ROOT, directory, name, &mode(0o755)))
        .result
        .unwrap()
        .0
}

pub fn attributes(store: &impl Store, object: Handle) -> Attributes {
    now(store.attributes(object)).unwrap()
}

/// Copies bytes into slices one after the other.
pub fn fill(slices: &[Slice], mut bytes: &[u8]) {
    for slice in slices {
        let (part, rest) = bytes.split_at(slice.len());
        slice.copy_from(0, part);
        bytes = rest;
    }
    assert!(bytes.is_empty(), "the slices cover the write");
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

pub fn write_as(
    store: &impl Store,
    caller: &Caller,
    file: Handle,
    offset: u64,
    bytes: &[u8],
) -> Result<Modified<Written>> {
    let mut slices = Vec::new();
    let length = bytes.len() as u32;
    let staged = now(store.stage_write(caller, file, offset, length, &mut slices))?;
    fill(&slices, bytes);
    Ok(now(store.commit_write(staged, Stability::Unstable)))
}

pub fn write(store: &impl Store, file: Handle, offset: u64, bytes: &[u8]) -> Result<Written> {
    write_as(store, &ROOT, file, offset, bytes)?.result
}

pub fn read_as(
    store: &impl Store,
    caller: &Caller,
    file: Handle,
    offset: u64,
    length: u32,
) -> Result<(Vec<u8>, ReadOutcome)> {
    let mut slices = Vec::new();
    let outcome = now(store.read(caller, file, offset, length, &mut slices))?;
    let bytes = gather(&slices);
    assert_eq!(bytes.len(), outcome.length as usize);
    Ok((bytes, outcome))
}

pub fn read(store: &impl Store, file: Handle, offset: u64, length: u32) -> Vec<u8> {
    read_as(store, &ROOT, file, offset, length).unwrap().0
}

/// Bytes of memory taken.
pub fn used(store: &impl Store) -> u64 {
    let statistics = now(store.statistics(store.root())).unwrap();
    statistics.total_bytes - statistics.free_bytes
}

/// Inodes taken.
pub fn inodes(store: &impl Store) -> u64 {
    let statistics = now(store.statistics(store.root())).unwrap();
    statistics.total_inodes - statistics.free_inodes
}

/// Names of a directory in listing order, with `.` and `..`.
pub fn list(store: &impl Store, directory: Handle) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut sink = |entry: millrace_store::DirectoryEntry<'_>| {
        names.push(entry.name.to_vec());
        true
    };
    let verifier = millrace_store::CookieVerifier::default();
    let outcome = now(store.read_directory(&ROOT, directory, 0, verifier, false, &mut sink));
    assert!(outcome.unwrap().end);
    names
}

/// Bytes that tell their place and a seed.
pub fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| seed ^ (index % 251) as u8)
        .collect()
}
