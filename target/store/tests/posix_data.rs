//! READ and WRITE of the posix store: bytes and ends of files, whichever way they go.

mod posix_machine;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millrace_store::posix::PosixStore;
use millrace_store::posix::engine::Backend;
use millrace_store::posix::volume::{Direct, Volume};
use millrace_store::{Caller, Handle, Namespace, Stability, Store, StoreError};
use posix_machine::*;

const WAYS: [Direct; 3] = [Direct::Auto, Direct::Always, Direct::Never];
const PAGE: u64 = 4096;

/// Small, fast and the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A range below `size`: pages, long runs of pages, or any bytes.
    fn range(&mut self, size: u64) -> (u64, u64) {
        match self.below(4) {
            0 => (self.below(size / PAGE) * PAGE, PAGE),
            1 => {
                let pages = 16 + self.below(16);
                (self.below(size / PAGE - pages) * PAGE, pages * PAGE)
            }
            2 => {
                let length = 1 + self.below(3 * PAGE);
                (self.below(size - length), length)
            }
            _ => {
                let length = 1 + self.below(100 << 10);
                (self.below(size - length), length)
            }
        }
    }
}

fn volume(root: &Path, direct: Direct) -> Volume {
    Volume::open(config(root, direct)).unwrap()
}

#[test]
fn bytes_and_ends_of_files_are_right_whichever_way_they_go() {
    for folder in Folder::both("ends") {
        for direct in WAYS {
            let machine = Machine::new(Backend::Auto);
            let store = machine.store(&volume(&folder.0, direct));
            let name = format!("{direct:?}");
            machine.run(async move {
                let file = create(&store, &name).await;
                let (bytes, outcome) = read(&store, &ROOT, file, 0, 4096).await.unwrap();
                assert!(bytes.is_empty() && outcome.end_of_file, "an empty file");
                let data = pattern(7, 200_000);
                let done = write(&store, &ROOT, file, 0, &data, Stability::Unstable).await;
                assert_eq!(done.result.unwrap().length, 200_000);
                assert_eq!(done.consistency.after.unwrap().size, 200_000);
                let cases: [(u64, u32); 12] = [
                    (0, 200_000),
                    (0, 1 << 20),
                    (0, 131_072),
                    (65_536, 65_536),
                    (65_536, 131_072),
                    (196_608, 65_536),
                    (1, 4096),
                    (4095, 100_000),
                    (199_999, 1),
                    (199_999, 2),
                    (200_000, 1),
                    (131_072, 65_536),
                ];
                for (offset, length) in cases {
                    let (bytes, outcome) = read(&store, &ROOT, file, offset, length).await.unwrap();
                    let end = (offset + u64::from(length)).min(200_000);
                    let expected = &data[offset as usize..end as usize];
                    assert!(bytes == expected, "{direct:?} {offset} {length}");
                    assert_eq!(outcome.end_of_file, end == 200_000, "{offset} {length}");
                    assert_eq!(outcome.attributes.size, 200_000);
                }
                for offset in [
                    200_001,
                    1 << 40,
                    i64::MAX as u64 - 1,
                    i64::MAX as u64,
                    u64::MAX,
                ] {
                    let (bytes, outcome) = read(&store, &ROOT, file, offset, 4096).await.unwrap();
                    assert!(bytes.is_empty() && outcome.end_of_file, "at {offset}");
                }
                // Without bytes: a success in any case.
                let (_, outcome) = read(&store, &ROOT, file, 10, 0).await.unwrap();
                assert!(!outcome.end_of_file);
                let (_, outcome) = read(&store, &ROOT, file, 200_000, 0).await.unwrap();
                assert!(outcome.end_of_file);
                let done = write(&store, &ROOT, file, 900_000, &[], Stability::FileSync).await;
                assert_eq!(done.result.unwrap().length, 0);
                assert_eq!(done.consistency.after.unwrap().size, 200_000);
            });
        }
    }
}

#[test]
fn writes_beyond_the_end_of_offsets_are_too_large() {
    let [folder, memory] = Folder::both("offsets");
    let machine = Machine::new(Backend::Auto);
    let store = machine.store(&volume(&folder.0, Direct::Auto));
    let end = i64::MAX as u64;
    machine.run(async move {
        let file = create(&store, "file").await;
        for (offset, length) in [
            (end, 1),
            (end - 3, 4096),
            (u64::MAX, 1),
            (end - 65_535, 65_537),
        ] {
            let bytes = vec![1; length];
            let done = write(&store, &ROOT, file, offset, &bytes, Stability::Unstable).await;
            assert_eq!(done.result, Err(StoreError::TooLarge), "at {offset}");
        }
        // Below the end of offsets, but beyond what the file system has.
        let done = write(
            &store,
            &ROOT,
            file,
            end - 5000,
            &[1; 5000],
            Stability::Unstable,
        )
        .await;
        assert_eq!(done.result, Err(StoreError::TooLarge));
        assert_eq!(store.attributes(file).await.unwrap().size, 0);
    });
    // The last byte that there can be, where the file system has it.
    let store = machine.store(&volume(&memory.0, Direct::Never));
    machine.run(async move {
        let file = create(&store, "file").await;
        let done = write(&store, &ROOT, file, end - 1, &[1], Stability::Unstable).await;
        assert_eq!(done.result.unwrap().length, 1);
        assert_eq!(store.attributes(file).await.unwrap().size, end);
    });
}

#[test]
fn only_regular_files_have_data_and_only_for_those_who_may() {
    let [folder, _memory] = Folder::both("kinds");
    let machine = Machine::new(Backend::Auto);
    let store = machine.store(&volume(&folder.0, Direct::Auto));
    machine.run(async move {
        let root = store.root();
        let read_root = read(&store, &ROOT, root, 0, 10).await;
        assert_eq!(read_root.err(), Some(StoreError::IsDirectory));
        let done = write(&store, &ROOT, root, 0, b"x", Stability::Unstable).await;
        assert_eq!(done.result, Err(StoreError::IsDirectory));
        assert_eq!(commit(&store, root).await, Err(StoreError::IsDirectory));
        let file = create(&store, "file").await;
        let done = write(&store, &ROOT, file, 0, b"secret", Stability::FileSync).await;
        assert_eq!(done.result.unwrap().length, 6);
        let stranger = Caller {
            uid: 4711,
            gid: 4711,
            ..Caller::SUPERUSER
        };
        let (bytes, _) = read(&store, &stranger, file, 0, 10).await.unwrap();
        assert_eq!(bytes, b"secret", "its mode is 644");
        let done = write(&store, &stranger, file, 0, b"x", Stability::Unstable).await;
        assert_eq!(done.result, Err(StoreError::Denied));
        let bytes = read(&store, &ROOT, file, 0, 10).await.unwrap().0;
        assert_eq!(bytes, b"secret");
    });
}

/// Every operation runs on one reactor or the other, one after the other: what one wrote the other
/// reads, however either goes.
#[test]
fn two_reactors_see_the_same_bytes() {
    const SIZE: u64 = 512 << 10;
    for folder in Folder::both("coherent") {
        for (direct, backend) in [
            (Direct::Auto, Backend::Auto),
            (Direct::Always, Backend::Auto),
            (Direct::Never, Backend::Auto),
            (Direct::Auto, Backend::Threads),
            (Direct::Always, Backend::Threads),
        ] {
            let volume = volume(&folder.0, direct);
            let machines = [Machine::new(backend), Machine::new(backend)];
            let stores = [machines[0].store(&volume), machines[1].store(&volume)];
            let name = format!("{direct:?}{backend:?}");
            let store = stores[0].clone();
            let file = machines[0].run(async move { create(&store, &name).await });
            let mut model: Vec<u8> = Vec::new();
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            for step in 0..150 {
                let which = random.below(2) as usize;
                let (machine, store) = (&machines[which], stores[which].clone());
                let (offset, length) = random.range(SIZE);
                match random.below(10) {
                    0 => {
                        let size = random.below(SIZE);
                        model.resize(size as usize, 0);
                        machine.run(async move { resize(&store, file, size).await });
                    }
                    1 => {
                        machine.run(async move { commit(&store, file).await.unwrap() });
                    }
                    2..6 => {
                        let bytes = pattern(step as u8, length as usize);
                        let end = (offset + length) as usize;
                        if model.len() < end {
                            model.resize(end, 0);
                        }
                        model[offset as usize..end].copy_from_slice(&bytes);
                        let stability = match random.below(4) {
                            0 => Stability::FileSync,
                            1 => Stability::DataSync,
                            _ => Stability::Unstable,
                        };
                        let done = machine.run(async move {
                            write(&store, &ROOT, file, offset, &bytes, stability).await
                        });
                        assert_eq!(u64::from(done.result.unwrap().length), length);
                    }
                    _ => {
                        let (bytes, outcome) =
                            machine
                                .run(async move {
                                    read(&store, &ROOT, file, offset, length as u32).await
                                })
                                .unwrap();
                        let start = model.len().min(offset as usize);
                        let end = model.len().min((offset + length) as usize);
                        // Reads of one that passes the page cache by may be short.
                        let found = start + bytes.len();
                        assert!(bytes == model[start..found], "{direct:?} step {step}");
                        assert!(found == end, "{direct:?} step {step}");
                        assert_eq!(outcome.end_of_file, end == model.len());
                    }
                }
            }
        }
    }
}

/// One task's part of a file that many change at once.
struct Part {
    start: u64,
    model: Vec<u8>,
    /// Bytes of each page that are its own.
    own: std::ops::Range<usize>,
}

impl Part {
    /// A range within its own bytes.
    fn range(&self, random: &mut Random) -> (u64, u64) {
        if self.own.len() == PAGE as usize {
            return random.range(self.model.len() as u64);
        }
        let page = random.below(self.model.len() as u64 / PAGE) * PAGE;
        let start = self.own.start as u64 + random.below(self.own.len() as u64);
        let most = self.own.end as u64 - start;
        (page + start, 1 + random.below(most))
    }

    fn check(&self, offset: u64, bytes: &[u8]) {
        for (place, byte) in (offset as usize..).zip(bytes) {
            if self.own.contains(&(place % PAGE as usize)) {
                assert_eq!(*byte, self.model[place], "at {place} of {}", self.start);
            }
        }
    }

    async fn work(mut self, store: PosixStore, file: Handle, mut random: Random, steps: u32) {
        for step in 0..steps {
            let (offset, length) = self.range(&mut random);
            let place = self.start + offset;
            if random.below(3) > 0 {
                let bytes = pattern(step as u8 ^ self.start as u8, length as usize);
                self.model[offset as usize..(offset + length) as usize].copy_from_slice(&bytes);
                let done = write(&store, &ROOT, file, place, &bytes, Stability::Unstable).await;
                assert_eq!(u64::from(done.result.unwrap().length), length);
            } else {
                let (bytes, _) = read(&store, &ROOT, file, place, length as u32)
                    .await
                    .unwrap();
                assert_eq!(bytes.len() as u64, length);
                self.check(offset, &bytes);
            }
        }
        let length = self.model.len() as u32;
        let (bytes, _) = read(&store, &ROOT, file, self.start, length).await.unwrap();
        self.check(0, &bytes);
    }
}

/// Tasks of two reactors write their parts of a file at once: whole pages past the page cache, and
/// parts of pages that belong to several through it.
#[test]
fn writes_of_both_ways_at_once_lose_no_byte() {
    const PART: u64 = 256 << 10;
    let [folder, memory] = Folder::both("mixed");
    for folder in [&folder, &memory] {
        for direct in [Direct::Auto, Direct::Always] {
            let volume = volume(&folder.0, direct);
            let name = format!("{direct:?}");
            File::create(folder.0.join(&name))
                .unwrap()
                .set_len(4 * PART)
                .unwrap();
            let barrier = Barrier::new(2);
            std::thread::scope(|scope| {
                for thread in 0..2_u64 {
                    let (volume, barrier, name) = (&volume, &barrier, name.clone());
                    scope.spawn(move || {
                        let machine = Machine::new(Backend::Auto);
                        let store = machine.store(volume);
                        let by = store.clone();
                        let file = machine.run(async move { lookup(&by, &name).await });
                        barrier.wait();
                        let half = PAGE as usize / 2;
                        let own = half * thread as usize..half * (thread as usize + 1);
                        let parts = [(thread, 0..PAGE as usize), (2, own.clone()), (3, own)];
                        let tasks = parts.map(|(number, own)| {
                            let part = Part {
                                start: number * PART,
                                model: vec![0; PART as usize],
                                own,
                            };
                            let random = Random(0x1234_5678_9abc + (thread << 8) + number);
                            machine.begin(part.work(store.clone(), file, random, 60))
                        });
                        for task in &tasks {
                            machine.wait(task);
                        }
                    });
                }
            });
            let figures = volume.figures();
            assert!(figures.writes_buffered > 0);
            // Where the file system takes direct transfers at all.
            if figures.reads_direct > 0 {
                assert!(figures.writes_direct > 0);
            }
        }
    }
}

/// One reactor writes whole pages past the page cache; meanwhile the other writes the first bytes
/// of the same pages through it. What is behind those is always what the first one wrote last: were
/// both in a page at once, it would be written back as it was before.
#[test]
fn pages_that_are_written_both_ways_at_once_keep_what_is_whole() {
    const SIZE: u64 = 256 << 10;
    const HEAD: usize = 64;
    const ROUNDS: u8 = 250;
    let [folder, _memory] = Folder::both("agree");
    let volume = volume(&folder.0, Direct::Auto);
    let path = folder.0.join("file");
    std::fs::write(&path, vec![0xff; SIZE as usize]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let machine = Machine::new(Backend::Auto);
            let store = machine.store(&volume);
            let by = store.clone();
            let file = machine.run(async move { lookup(&by, "file").await });
            for page in (0..SIZE / PAGE).cycle() {
                if done.load(Relaxed) {
                    break;
                }
                let store = store.clone();
                machine.run(async move {
                    let bytes = [0xee; HEAD];
                    let done = write(
                        &store,
                        &ROOT,
                        file,
                        page * PAGE,
                        &bytes,
                        Stability::Unstable,
                    )
                    .await;
                    done.result.unwrap();
                });
            }
        });
        let machine = Machine::new(Backend::Auto);
        let store = machine.store(&volume);
        let stale = machine.run(async move {
            let file = lookup(&store, "file").await;
            for round in 0..ROUNDS {
                let bytes = vec![round; SIZE as usize];
                let done = write(&store, &ROOT, file, 0, &bytes, Stability::Unstable).await;
                assert_eq!(u64::from(done.result.unwrap().length), SIZE);
                // Ragged, and so through the page cache.
                let (found, _) = read(&store, &ROOT, file, 0, SIZE as u32 - 1).await.unwrap();
                for (page, found) in found.chunks(PAGE as usize).enumerate() {
                    if found[HEAD..].iter().any(|byte| *byte != round) {
                        return Some((round, page, found[HEAD]));
                    }
                }
            }
            None
        });
        done.store(true, Relaxed);
        assert_eq!(stale, None, "round, page and what was found");
    });
    let figures = volume.figures();
    assert_eq!(figures.writes_direct, u64::from(ROUNDS));
    assert!(figures.writes_buffered > 0);
    // And what memory holds is what the disk holds.
    let file = File::open(&path).unwrap();
    let mut cached = vec![0; SIZE as usize];
    file.read_exact_at(&mut cached, 0).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut stored = vec![0; SIZE as usize];
    file.read_exact_at(&mut stored, 0).unwrap();
    assert!(cached == stored);
    for page in stored.chunks(PAGE as usize) {
        assert!(page[HEAD..].iter().all(|byte| *byte == ROUNDS - 1));
    }
}

#[test]
fn figures_tell_which_way_transfers_went() {
    let [folder, _memory] = Folder::both("figures");
    let machine = Machine::new(Backend::Auto);
    let volume = volume(&folder.0, Direct::Auto);
    let store = machine.store(&volume);
    machine.run(async move {
        let file = create(&store, "file").await;
        let bytes = pattern(3, 128 << 10);
        for _ in 0..2 {
            let done = write(&store, &ROOT, file, 0, &bytes, Stability::Unstable).await;
            done.result.unwrap();
        }
        let done = write(&store, &ROOT, file, 100, b"small", Stability::Unstable).await;
        done.result.unwrap();
        commit(&store, file).await.unwrap();
        for length in [128 << 10, 64 << 10] {
            read(&store, &ROOT, file, 0, length).await.unwrap();
        }
        read(&store, &ROOT, file, 7, 100).await.unwrap();
    });
    let figures = volume.figures();
    assert_eq!(figures.writes_direct, 2);
    assert_eq!(figures.writes_buffered, 1);
    assert_eq!(figures.written_bytes, 2 * (128 << 10) + 5);
    assert_eq!(figures.read_bytes, (192 << 10) + 100);
    let large = figures.reads_direct + figures.reads_cached;
    assert_eq!((large, figures.reads_buffered), (2, 1));
    assert_eq!((figures.syncs, figures.commits), (1, 1));
    assert_eq!(figures.dirty_bytes, 0);
    assert_eq!((figures.operations, figures.waiting_operations), (0, 0));
}
