//! What operations on a memory store cost, and what small files take beside their data.
//!
//! `cargo run --release -p millrace-store --example memory_figures`

use std::error::Error;
use std::fs;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millrace_mempool::{HugepagePolicy, Registry, Slice};
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_store::{
    Caller, CreateHow, FileData, Handle, Namespace, SetAttributes, Stability, Store,
};
use rustix::time::{ClockId, clock_gettime};

const SMALL_FILES: usize = 100_000;
const ROUNDS: u32 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new(
        &Registry::new(HugepagePolicy::Off),
        MemoryConfig {
            size_bytes: 512 << 20,
            inodes: Some(2 * SMALL_FILES as u64),
            file_system: 1,
            epoch: 1,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
        },
    )?;
    small_files(&store)?;
    let file = create(&store, b"large")?;
    let mut slices = Vec::new();
    write(&store, file, 0, 2 << 20, &mut slices)?;
    for (offset, length) in [(0, 1 << 20), (1 << 20, 1 << 20), (0, 4096), (1 << 20, 4096)] {
        steady(&store, file, offset, length)?;
    }
    Ok(())
}

fn small_files(store: &MemoryStore) -> Result<(), Box<dyn Error>> {
    let before = resident()?;
    let mut slices = Vec::new();
    let start = clock();
    for number in 0..SMALL_FILES {
        let file = create(store, format!("small-{number:06}").as_bytes())?;
        write(store, file, 0, 1000, &mut slices)?;
    }
    let time = (clock() - start).as_nanos() / SMALL_FILES as u128;
    let heap = (resident()? - before) / SMALL_FILES;
    println!("small file: {time} ns to make, 4096 bytes of data memory, {heap} bytes beside");
    Ok(())
}

fn steady(
    store: &MemoryStore,
    file: Handle,
    offset: u64,
    length: u32,
) -> Result<(), Box<dyn Error>> {
    let caller = Caller::SUPERUSER;
    let mut slices = Vec::new();
    now(store.read(&caller, file, offset, length, &mut slices))?;
    let count = slices.len();
    slices.clear();
    let start = clock();
    for _ in 0..ROUNDS {
        now(store.read(&caller, file, offset, length, &mut slices))?;
        slices.clear();
    }
    let read = (clock() - start) / ROUNDS;
    let start = clock();
    for _ in 0..ROUNDS {
        write(store, file, offset, length, &mut slices)?;
    }
    let write = (clock() - start) / ROUNDS;
    println!("{length} bytes at {offset}: {count} slices, read {read:?}, overwrite {write:?}");
    Ok(())
}

fn create(store: &MemoryStore, name: &[u8]) -> Result<Handle, Box<dyn Error>> {
    let how = CreateHow::Guarded(SetAttributes::default());
    Ok(
        now(store.create(&Caller::SUPERUSER, store.root(), name, &how))
            .result?
            .0,
    )
}

/// Stages and commits; the bytes themselves are the fabric's business.
fn write(
    store: &MemoryStore,
    file: Handle,
    offset: u64,
    length: u32,
    slices: &mut Vec<Slice>,
) -> Result<(), Box<dyn Error>> {
    let staged = now(store.stage_write(&Caller::SUPERUSER, file, offset, length, slices))?;
    now(store.commit_write(staged, Stability::Unstable)).result?;
    slices.clear();
    Ok(())
}

/// Bytes of memory that this process occupies. That of file data is all there from the start.
fn resident() -> Result<usize, Box<dyn Error>> {
    let statistics = fs::read_to_string("/proc/self/statm")?;
    let pages = statistics
        .split(' ')
        .nth(1)
        .ok_or("statm has a second field")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// Time that this thread has had a core: others on the machine do not count.
fn clock() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// Runs a future that never has to wait.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("operations of a memory store are ready at once"),
    }
}
