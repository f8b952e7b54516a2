//! How names behave as a directory of a memory store grows to a million.
//!
//! `GLIBC_TUNABLES=glibc.malloc.mxfast=0 cargo run --release -p millrace-store --example
//! directory_growth` has freed memory joined at once, as millraced does; without it the worst removal
//! takes as long as joining all of it.

use std::error::Error;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millrace_mempool::{HugepagePolicy, Registry};
use millrace_store::memory::{MemoryConfig, MemoryStore, NAME_BYTES, OBJECT_BYTES};
use millrace_store::{
    Caller, CookieVerifier, CreateHow, DirectoryEntry, Handle, Namespace, SetAttributes, Store,
};
use rustix::time::{ClockId, clock_gettime};

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Entries of one listing call, as a client with 64 KiB replies asks for.
const PAGE_ENTRIES: usize = 500;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "names", "create", "worst", "lookup", "list", "remove", "worst"
    );
    for count in SIZES {
        let store = MemoryStore::new(
            &Registry::new(HugepagePolicy::Off),
            MemoryConfig {
                // Twice the names, and what else there is.
                size_bytes: 2 * count as u64 * (OBJECT_BYTES + NAME_BYTES + 16) + (4 << 20),
                inodes: Some(2 * count as u64 + 2),
                file_system: 1,
                epoch: 1,
                root_mode: 0o755,
                root_uid: 0,
                root_gid: 0,
            },
        )?;
        measure(&store, count)?;
    }
    Ok(())
}

fn measure(store: &MemoryStore, count: usize) -> Result<(), Box<dyn Error>> {
    let (caller, root) = (Caller::SUPERUSER, store.root());
    let names: Vec<_> = (0..count)
        .map(|number| format!("file-{number:08}").into_bytes())
        .collect();
    // A stride that visits every name once, far from the last.
    let far: Vec<_> = (0..count).map(|index| index * 7_368_787 % count).collect();

    let start = clock();
    for name in &names {
        create(store, root, name)?;
    }
    let created = clock() - start;

    // Again, looking at the clock each time, for the one that takes longest.
    let set = SetAttributes::default();
    let (other, _) = now(store.make_directory(&caller, root, b"other", &set)).result?;
    let mut worst = Duration::ZERO;
    for name in &names {
        let before = clock();
        create(store, other, name)?;
        worst = worst.max(clock() - before);
    }

    let start = clock();
    for index in &far {
        now(store.lookup(&caller, root, &names[*index]))?;
    }
    let lookup = clock() - start;

    let start = clock();
    let (mut cookie, mut verifier, mut listed) = (0, CookieVerifier::default(), 0);
    loop {
        let (from, mut room) = (cookie, PAGE_ENTRIES);
        let mut sink = |entry: DirectoryEntry<'_>| {
            if room > 0 {
                room -= 1;
                listed += 1;
                cookie = entry.cookie;
                return true;
            }
            false
        };
        let outcome = now(store.read_directory(&caller, root, from, verifier, true, &mut sink))?;
        verifier = outcome.verifier;
        if outcome.end {
            break;
        }
    }
    let list = clock() - start;
    assert_eq!(listed, count + 3);

    let start = clock();
    for index in &far {
        now(store.remove(&caller, root, &names[*index])).result?;
    }
    let remove = clock() - start;
    let mut worst_remove = Duration::ZERO;
    for index in &far {
        let before = clock();
        now(store.remove(&caller, other, &names[*index])).result?;
        worst_remove = worst_remove.max(clock() - before);
    }

    let each = |time: Duration| format!("{} ns", time.as_nanos() / count as u128);
    println!(
        "{count:>9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
        each(created),
        format!("{} us", worst.as_micros()),
        each(lookup),
        each(list),
        each(remove),
        format!("{} us", worst_remove.as_micros()),
    );
    Ok(())
}

fn create(store: &MemoryStore, directory: Handle, name: &[u8]) -> Result<(), Box<dyn Error>> {
    let how = CreateHow::Guarded(SetAttributes::default());
    now(store.create(&Caller::SUPERUSER, directory, name, &how)).result?;
    Ok(())
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
