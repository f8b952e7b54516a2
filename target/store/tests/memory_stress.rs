//! Many threads on the same files: nobody ever sees memory that is not its file's.

mod common;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use common::*;
use millrace_mempool::Slice;
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_store::{CreateHow, FileData, Handle, Namespace, Stability, Store, StoreError};

const FILES: usize = 4;
const FILE_BYTES: u64 = 400_000;
const WRITE_BYTES: u64 = 150_000;

/// A file and the number that its bytes are made from; another file never has the same.
#[derive(Clone, Copy)]
struct Target {
    handle: Handle,
    number: u64,
}

struct Shared {
    store: MemoryStore,
    targets: Vec<Mutex<Target>>,
    next_number: AtomicU64,
}

/// A generator of test input, different for each seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The only byte but zero that a file may hold at an offset.
fn byte(number: u64, offset: u64) -> u8 {
    let mixed = (number << 32 ^ offset).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 | 1
}

fn content(number: u64, offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length)
        .map(|offset| byte(number, offset))
        .collect()
}

fn check(number: u64, offset: u64, bytes: &[u8]) {
    for (place, found) in (offset..).zip(bytes) {
        let own = *found == 0 || *found == byte(number, place);
        assert!(own, "file {number} shows a foreign byte at {place}");
    }
}

impl Shared {
    fn new() -> Self {
        // Room for all files at their largest, but not for everything in flight beside them.
        let size = FILES as u64 * FILE_BYTES + 1_500_000;
        let store = store_of(MemoryConfig {
            root_mode: 0o777,
            ..config(size)
        });
        let shared = Self {
            store,
            targets: Vec::new(),
            next_number: AtomicU64::new(1),
        };
        let targets = (0..FILES)
            .map(|index| Mutex::new(shared.make(index)))
            .collect();
        Self { targets, ..shared }
    }

    fn make(&self, index: usize) -> Target {
        let how = CreateHow::Guarded(mode(0o644));
        let made = now(self
            .store
            .create(&ROOT, self.store.root(), &name(index), &how));
        let number = self.next_number.fetch_add(1, Relaxed);
        Target {
            handle: made.result.unwrap().0,
            number,
        }
    }

    fn pick(&self, random: &mut Random) -> Target {
        *self.targets[random.below(FILES as u64) as usize]
            .lock()
            .unwrap()
    }

    fn write(&self, random: &mut Random) {
        let target = self.pick(random);
        let offset = random.below(FILE_BYTES - WRITE_BYTES);
        let length = 1 + random.below(WRITE_BYTES);
        let mut slices = Vec::new();
        let staged =
            now(self
                .store
                .stage_write(&ROOT, target.handle, offset, length as u32, &mut slices));
        let staged = match staged {
            Ok(staged) => staged,
            Err(StoreError::NoSpace | StoreError::Stale) => return,
            Err(error) => panic!("staging failed: {error}"),
        };
        fill(&slices, &content(target.number, offset, length));
        if random.below(8) == 0 {
            return; // The connection broke.
        }
        match now(self.store.commit_write(staged, Stability::Unstable)).result {
            Ok(written) => assert_eq!(u64::from(written.length), length),
            Err(StoreError::NoSpace | StoreError::Stale) => {}
            Err(error) => panic!("committing failed: {error}"),
        }
    }

    /// Reads, and looks at what an earlier read still holds.
    fn read(&self, random: &mut Random, held: &mut Option<(Target, u64, Vec<Slice>)>) {
        let target = self.pick(random);
        let offset = random.below(FILE_BYTES);
        let mut slices = Vec::new();
        let length = random.below(WRITE_BYTES) as u32;
        match now(self
            .store
            .read(&ROOT, target.handle, offset, length, &mut slices))
        {
            Ok(outcome) => {
                let bytes = gather(&slices);
                assert_eq!(bytes.len(), outcome.length as usize);
                check(target.number, offset, &bytes);
                if let Some((target, offset, slices)) = held.replace((target, offset, slices)) {
                    check(target.number, offset, &gather(&slices));
                }
            }
            Err(StoreError::Stale) => assert!(slices.is_empty()),
            Err(error) => panic!("reading failed: {error}"),
        }
    }

    fn resize(&self, random: &mut Random) {
        let target = self.pick(random);
        let bytes = random.below(FILE_BYTES);
        match now(self
            .store
            .set_attributes(&ROOT, target.handle, &size(bytes), None))
        .result
        {
            Ok(()) | Err(StoreError::Stale) => {}
            Err(error) => panic!("resizing failed: {error}"),
        }
    }

    fn remake(&self, random: &mut Random) {
        let index = random.below(FILES as u64) as usize;
        let mut target = self.targets[index].lock().unwrap();
        now(self.store.remove(&ROOT, self.store.root(), &name(index)))
            .result
            .unwrap();
        *target = self.make(index);
    }
}

fn name(index: usize) -> Vec<u8> {
    format!("file-{index}").into_bytes()
}

#[test]
fn v4_data_11_no_file_ever_shows_foreign_memory() {
    let shared = Shared::new();
    std::thread::scope(|scope| {
        let shared = &shared;
        for seed in 1..=2_u64 {
            scope.spawn(move || {
                let mut random = Random(seed * 0x1234_5678_9abc);
                for _ in 0..500 {
                    shared.write(&mut random);
                }
            });
            scope.spawn(move || {
                let mut random = Random(seed * 0x2468_ace0_1357);
                let mut held = None;
                for _ in 0..500 {
                    shared.read(&mut random, &mut held);
                }
            });
        }
        scope.spawn(move || {
            let mut random = Random(0x1357_9bdf);
            for step in 0..1000 {
                if step % 5 == 0 {
                    shared.remake(&mut random);
                } else {
                    shared.resize(&mut random);
                }
                std::thread::yield_now();
            }
        });
    });

    let store = &shared.store;
    let mut files_used = 0;
    for (index, target) in shared.targets.iter().enumerate() {
        let target = *target.lock().unwrap();
        let before = attributes(store, target.handle);
        files_used += before.used;
        let grown = before.size + 100_000;
        now(store.set_attributes(&ROOT, target.handle, &size(grown), None))
            .result
            .unwrap();
        let bytes = read(store, target.handle, 0, grown as u32);
        check(target.number, 0, &bytes);
        let beyond = &bytes[before.size as usize..];
        assert!(
            beyond.iter().all(|byte| *byte == 0),
            "bytes beyond the end of file {index}"
        );
    }
    assert_eq!(used(store), files_used + store.usage().names_bytes);
    for index in 0..FILES {
        now(store.remove(&ROOT, store.root(), &name(index)))
            .result
            .unwrap();
    }
    assert_eq!(used(store), 0);
    assert_eq!(inodes(store), 1);
}

#[test]
fn a_read_sees_all_or_nothing_of_a_write_into_one_extent() {
    const BLOCK: u64 = 65_536;
    let store = store();
    let file = create(&store, &ROOT, store.root(), b"file");
    for (offset, length) in [
        (BLOCK, 65_536_u32),
        (BLOCK + 100, 5000),
        (BLOCK + 10, 60_000),
        (4096, 4096),
        (4100, 500),
    ] {
        write(&store, file, offset, &vec![1; length as usize]).unwrap();
        let store = &store;
        std::thread::scope(|scope| {
            for writer in 0..2_u8 {
                scope.spawn(move || {
                    for round in 0..300_u32 {
                        let byte = writer * 100 + (round % 100) as u8;
                        write(store, file, offset, &vec![byte; length as usize]).unwrap();
                    }
                });
                scope.spawn(move || {
                    let mut held: Option<(u8, Vec<Slice>)> = None;
                    for _ in 0..300 {
                        let mut slices = Vec::new();
                        now(store.read(&ROOT, file, offset, length, &mut slices)).unwrap();
                        let bytes = gather(&slices);
                        let first = bytes[0];
                        assert!(bytes.iter().all(|byte| *byte == first), "at {offset}");
                        if let Some((first, slices)) = held.replace((first, slices)) {
                            let still = gather(&slices);
                            assert!(still.iter().all(|byte| *byte == first), "at {offset}");
                        }
                    }
                });
            }
        });
    }
    now(store.remove(&ROOT, store.root(), b"file"))
        .result
        .unwrap();
    assert_eq!(used(&store), 0);
}

#[test]
fn names_move_between_threads_without_loss() {
    let store = store();
    let root = store.root();
    let directories: Vec<_> = (0..3)
        .map(|index| make_directory(&store, root, &name(index)))
        .collect();
    let nested = make_directory(&store, directories[0], b"nested");
    let places = [directories[0], directories[1], directories[2], nested];
    for index in 0..8 {
        create(&store, &ROOT, places[index % 4], &name(index + 10));
    }
    std::thread::scope(|scope| {
        for seed in 1..=4_u64 {
            let (store, places) = (&store, &places);
            scope.spawn(move || {
                let mut random = Random(seed * 0x1234_5678_9abc);
                for _ in 0..2000 {
                    let from = places[random.below(4) as usize];
                    let to = places[random.below(4) as usize];
                    let moves_directory = random.below(4) == 0;
                    let entry = if moves_directory {
                        b"nested".to_vec()
                    } else {
                        name(10 + random.below(8) as usize)
                    };
                    let result = now(store.rename(&ROOT, (from, &entry), (to, &entry))).result;
                    let expected = [Ok(()), Err(StoreError::NotFound), Err(StoreError::Invalid)];
                    assert!(expected.contains(&result), "{result:?}");
                    let created = now(store.create(
                        &ROOT,
                        from,
                        &name(seed as usize + 100),
                        &CreateHow::Unchecked(mode(0o600)),
                    ));
                    assert!(created.result.is_ok());
                    now(store.remove(&ROOT, from, &name(seed as usize + 100)))
                        .result
                        .unwrap();
                }
            });
        }
    });
    let mut files: Vec<_> = places
        .iter()
        .flat_map(|place| list(&store, *place))
        .collect();
    files.retain(|name| name.starts_with(b"file-"));
    files.sort();
    let mut expected: Vec<_> = (10..18).map(name).collect();
    expected.sort();
    assert_eq!(files, expected);
    let parent = now(store.lookup(&ROOT, nested, b"..")).unwrap().0;
    assert!(list(&store, parent).contains(&b"nested".to_vec()));
    for place in places {
        let subdirectories = u32::from(place == parent);
        assert_eq!(attributes(&store, place).links, 2 + subdirectories);
    }
}

#[test]
fn nothing_is_made_in_a_directory_that_goes_away() {
    let store = store();
    let root = store.root();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5000 {
                let made = now(store.make_directory(&ROOT, root, b"directory", &mode(0o755)));
                assert!(matches!(made.result, Ok(_) | Err(StoreError::Exists)));
                let removed = now(store.remove_directory(&ROOT, root, b"directory")).result;
                assert!(matches!(removed, Ok(()) | Err(StoreError::NotEmpty)));
            }
        });
        for index in 0..2 {
            let store = &store;
            scope.spawn(move || {
                let how = CreateHow::Guarded(mode(0o600));
                for _ in 0..5000 {
                    let Ok((directory, _)) = now(store.lookup(&ROOT, root, b"directory")) else {
                        std::thread::yield_now();
                        continue;
                    };
                    match now(store.create(&ROOT, directory, &name(index), &how)).result {
                        Ok(_) => now(store.remove(&ROOT, directory, &name(index)))
                            .result
                            .unwrap(),
                        Err(error) => assert_eq!(error, StoreError::Stale),
                    }
                }
            });
        }
    });
    let left = now(store.remove_directory(&ROOT, root, b"directory")).result;
    assert!(matches!(left, Ok(()) | Err(StoreError::NotFound)));
    assert_eq!(
        inodes(&store),
        1,
        "no file was made in a directory already gone"
    );
}
