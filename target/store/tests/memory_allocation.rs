//! Steady reads and overwrites allocate nothing, and names and objects no more than they count.

mod common;

use common::*;
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_store::{FileData, Handle, Namespace, Stability, Store};
use millrace_testing::allocation::{CountingAllocator, allocations, taken_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn round(
    store: &MemoryStore,
    file: Handle,
    length: u32,
    slices: &mut Vec<millrace_mempool::Slice>,
) {
    now(store.read(&ROOT, file, 0, length, slices)).unwrap();
    slices.clear();
    let staged = now(store.stage_write(&ROOT, file, 0, length, slices)).unwrap();
    slices[0].copy_from(0, b"overwritten");
    let written = now(store.commit_write(staged, Stability::FileSync))
        .result
        .unwrap();
    assert_eq!(written.length, length);
    slices.clear();
    now(store.attributes(file)).unwrap();
    let at_once = store.immediate().unwrap();
    assert!(at_once.write(&ROOT, file, 70_000, b"in place").is_some());
    now(store.read(&ROOT, file, 70_000, 8, slices)).unwrap();
    assert!(at_once.write(&ROOT, file, 70_000, b"replaced").is_some());
    slices.clear();
}

#[test]
fn steady_reads_and_overwrites_allocate_nothing() {
    assert_eq!(
        allocations(|| drop(std::hint::black_box(Box::new(1)))),
        1,
        "counting works"
    );
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    write(&store, file, 0, &[7; 1 << 20]).unwrap();
    let mut slices = Vec::with_capacity(64);
    for length in [4096, 1 << 20] {
        round(&store, file, length, &mut slices);
        let count = allocations(|| {
            for _ in 0..1000 {
                round(&store, file, length, &mut slices);
            }
        });
        assert_eq!(count, 0, "for {length} bytes");
    }
}

#[test]
fn several_writes_in_flight_allocate_nothing_once_warm() {
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    write(&store, file, 0, &[7; 1 << 20]).unwrap();
    let mut slices = Vec::with_capacity(64);
    let mut flight = Vec::with_capacity(32);
    let mut pass = || {
        for index in 0..32 {
            let offset = index * 4096;
            let staged = now(store.stage_write(&ROOT, file, offset, 4096, &mut slices)).unwrap();
            flight.push(staged);
        }
        for staged in flight.drain(..) {
            now(store.commit_write(staged, Stability::FileSync))
                .result
                .unwrap();
        }
        slices.clear();
    };
    pass();
    assert_eq!(allocations(|| (0..100).for_each(|_| pass())), 0);
}

#[test]
fn overwrites_of_blocks_that_readers_hold_allocate_nothing() {
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    write(&store, file, 0, &[7; 1 << 20]).unwrap();
    let (mut lent, mut slices) = (Vec::with_capacity(64), Vec::with_capacity(64));
    let mut pass = |offset: u64, length: u32| {
        now(store.read(&ROOT, file, 0, 1 << 20, &mut lent)).unwrap();
        let staged = now(store.stage_write(&ROOT, file, offset, length, &mut slices)).unwrap();
        now(store.commit_write(staged, Stability::FileSync))
            .result
            .unwrap();
        slices.clear();
        lent.clear();
    };
    for (offset, length) in [(1 << 19, 1 << 17), (65_536 + 100, 4096), (17, 50)] {
        pass(offset, length);
        let count = allocations(|| (0..100).for_each(|_| pass(offset, length)));
        assert_eq!(count, 0, "{length} bytes at {offset}");
    }
}

/// Objects or names that a kind of them is measured by.
const MANY: usize = 20_000;

fn measure(kind: &str, length: usize, mut make: impl FnMut(&MemoryStore, Handle, &[u8])) {
    let store = store_of(MemoryConfig {
        inodes: Some(1 << 20),
        ..config(64 << 20)
    });
    let parent = make_directory(&store, store.root(), b"parent");
    let first = create(&store, &ROOT, parent, b"first");
    let before = (taken_bytes(), used(&store) as i64);
    let name = |number: usize| format!("{number:0length$}");
    for number in 0..MANY {
        make(&store, first, name(number).as_bytes());
    }
    let taken = taken_bytes() - before.0;
    let counted = used(&store) as i64 - before.1;
    assert!(
        taken <= counted,
        "{kind}: {taken} bytes are taken and {counted} are counted"
    );
    for number in 5..MANY {
        let name = name(number);
        let removed = now(store.remove(&ROOT, parent, name.as_bytes())).result;
        if removed.is_err() {
            now(store.remove_directory(&ROOT, parent, name.as_bytes()))
                .result
                .unwrap();
        }
    }
    // Numbers of inodes stay: of a place each, and a place among the free ones, in lists that grow
    // by doubling.
    let taken = taken_bytes() - before.0;
    let most = used(&store) as i64 - before.1 + 32 * MANY as i64;
    assert!(taken <= most, "{kind}: {taken} bytes stay of {most}");
}

#[test]
fn names_and_objects_take_no_more_than_they_count() {
    let parent = |store: &MemoryStore| now(store.lookup(&ROOT, store.root(), b"parent")).unwrap().0;
    for length in [5, 100, 255] {
        measure("files", length, |store, _, name| {
            create(store, &ROOT, parent(store), name);
        });
        measure("links", length, |store, first, name| {
            now(store.link(&ROOT, first, parent(store), name))
                .result
                .unwrap();
        });
        measure("short texts", length, |store, _, name| {
            let text = [b'x'; 255];
            now(store.symlink(&ROOT, parent(store), name, &text, &mode(0o777)))
                .result
                .unwrap();
        });
    }
    measure("directories", 5, |store, _, name| {
        make_directory(store, parent(store), name);
    });
}

#[test]
fn a_directory_with_one_name_takes_no_more_than_it_counts() {
    let store = store_of(MemoryConfig {
        inodes: Some(1 << 20),
        ..config(64 << 20)
    });
    let before = (taken_bytes(), used(&store) as i64);
    for number in 0..MANY {
        let name = format!("{number:05}");
        let directory = make_directory(&store, store.root(), name.as_bytes());
        now(store.symlink(&ROOT, directory, b"l", b"text", &mode(0o777)))
            .result
            .unwrap();
    }
    let taken = taken_bytes() - before.0;
    let counted = used(&store) as i64 - before.1;
    assert!(
        taken <= counted,
        "{taken} bytes are taken and {counted} are counted"
    );
}
