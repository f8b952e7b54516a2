//! What is written is what is read.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use millrace_store::posix::engine::{Backend, Durability};
use proptest::prelude::*;

use crate::stage::{Folder, Stage, backends, slice_of_arena, superuser};

const LARGEST: usize = 300_000;

#[derive(Clone, Debug)]
enum Action {
    Read {
        offset: u64,
        length: usize,
        cached: bool,
    },
    Write {
        offset: u64,
        length: usize,
        byte: u8,
        durability: Durability,
    },
    Sync {
        attributes: bool,
    },
}

fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![0..600_000_u64, (0..150_u64).prop_map(|page| page * 4096)]
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..LARGEST,
        0..20_usize,
        (0..70_usize).prop_map(|page| page * 4096)
    ]
}

fn actions() -> impl Strategy<Value = Action> {
    let durability = prop_oneof![
        6 => Just(Durability::None),
        1 => Just(Durability::Data),
        1 => Just(Durability::File),
    ];
    prop_oneof![
        4 => (offsets(), lengths(), any::<bool>())
            .prop_map(|(offset, length, cached)| Action::Read { offset, length, cached }),
        4 => (offsets(), lengths(), any::<u8>(), durability).prop_map(
            |(offset, length, byte, durability)| Action::Write {
                offset,
                length,
                byte,
                durability
            }
        ),
        1 => any::<bool>().prop_map(|attributes| Action::Sync { attributes }),
    ]
}

fn apply(stage: &Stage, file: &Arc<OwnedFd>, model: &mut Vec<u8>, action: &Action) {
    let root = superuser();
    match *action {
        Action::Read {
            offset,
            length,
            cached,
        } => {
            let slice = stage.slice(length);
            let start = usize::try_from(offset).unwrap().min(model.len());
            let there = &model[start..(start + length).min(model.len())];
            match stage.run(stage.engine.read(file, offset, &slice, cached, &root, None)) {
                Ok(count) => {
                    assert!(count == there.len() || cached && count < there.len());
                    let mut found = vec![0; count];
                    slice.copy_to(0, &mut found);
                    assert!(found == there[..count], "other bytes at {offset}");
                }
                Err(error) => {
                    assert!(cached, "{error}");
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                }
            }
        }
        Action::Write {
            offset,
            length,
            byte,
            durability,
        } => {
            let bytes: Vec<u8> = (0..length).map(|at| byte.wrapping_add(at as u8)).collect();
            let slice = stage.slice_of(&bytes);
            let count = stage
                .run(
                    stage
                        .engine
                        .write(file, offset, &slice, durability, &root, None),
                )
                .unwrap();
            assert_eq!(count, length);
            if length > 0 {
                let start = usize::try_from(offset).unwrap();
                model.resize(model.len().max(start + length), 0);
                model[start..start + length].copy_from_slice(&bytes);
            }
        }
        Action::Sync { attributes } => {
            stage
                .run(stage.engine.sync(file, attributes, None))
                .unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_file_is_what_was_written_to_it(actions in prop::collection::vec(actions(), 1..25)) {
        for backend in backends() {
            let stage = Stage::new(backend, 4);
            let folder = Folder::new();
            let file = folder.file("model", b"");
            let mut model = Vec::new();
            for action in &actions {
                apply(&stage, &file, &mut model, action);
            }
            prop_assert!(fs::read(folder.path("model")).unwrap() == model);
            prop_assert_eq!(stage.engine.pending(), 0);
        }
    }
}

#[test]
fn many_operations_at_once_do_not_mix() {
    for backend in backends() {
        let stage = Stage::new(backend, 8);
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let root = superuser();
        let slices: Vec<_> = (0..64_u8).map(|n| stage.slice_of(&[n; 5000])).collect();
        let writes = slices.iter().zip(0..).map(|(slice, n)| {
            stage
                .engine
                .write(&file, n * 5000, slice, Durability::None, &root, None)
        });
        let outcomes = run_all(&stage, writes.collect());
        assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == 5000));
        let back: Vec<_> = (0..64).map(|_| stage.slice(5000)).collect();
        let reads = back.iter().zip(0..).map(|(slice, n)| {
            stage
                .engine
                .read(&file, n * 5000, slice, false, &root, None)
        });
        let outcomes = run_all(&stage, reads.collect());
        assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == 5000));
        for (slice, n) in back.iter().zip(0..) {
            let mut found = [0; 5000];
            slice.copy_to(0, &mut found);
            assert_eq!(found, [n; 5000]);
        }
    }
}

fn run_all<F: Future>(stage: &Stage, futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|f| Some(Box::pin(f))).collect();
    let mut outputs: Vec<_> = futures.iter().map(|_| None).collect();
    stage.run(std::future::poll_fn(move |context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if let Some(running) = future
                && let std::task::Poll::Ready(value) = running.as_mut().poll(context)
            {
                *output = Some(value);
                *future = None;
            }
        }
        if futures.iter().any(Option::is_some) {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(
            outputs
                .iter_mut()
                .map(|output| output.take().unwrap())
                .collect(),
        )
    }))
}

#[test]
fn memory_may_come_later_or_never_be_registered() {
    for backend in backends() {
        let stage = Stage::new(backend, 4);
        let folder = Folder::new();
        let file = folder.file("file", &[0; 30_000]);
        let root = superuser();
        for known in [true, false] {
            let arena = stage.registry.arena(2 << 20).unwrap().share();
            if known {
                stage.engine.add_arena(arena.arena());
                stage.engine.add_arena(arena.arena());
            }
            let slice = slice_of_arena(&arena, 5000..35_000);
            slice.copy_from(0, &[7; 30_000]);
            let write = stage
                .engine
                .write(&file, 0, &slice, Durability::None, &root, None);
            assert_eq!(stage.run(write).unwrap(), 30_000);
            slice.fill_zero(0..30_000);
            let read = stage.engine.read(&file, 0, &slice, false, &root, None);
            assert_eq!(stage.run(read).unwrap(), 30_000);
            let mut found = [0; 30_000];
            slice.copy_to(0, &mut found);
            assert!(found == [7; 30_000]);
        }
    }
}

#[test]
fn memory_that_went_away_makes_room_for_more() {
    for backend in backends() {
        let stage = Stage::new(backend, 4);
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let root = superuser();
        // More than the kernel's table would hold, if they stayed in it.
        for round in 0..5000_u32 {
            let arena = stage.registry.arena(2 << 20).unwrap().share();
            stage.engine.add_arena(arena.arena());
            let slice = slice_of_arena(&arena, 0..4);
            slice.copy_from(0, &round.to_ne_bytes());
            let write = stage
                .engine
                .write(&file, 0, &slice, Durability::None, &root, None);
            assert_eq!(stage.run(write).unwrap(), 4);
            if backend == Backend::Threads && round == 10 {
                break;
            }
        }
    }
}

#[test]
fn direct_files_are_read_to_an_end_within_a_block() {
    for backend in backends() {
        let stage = Stage::new(backend, 4);
        let folder = Folder::new();
        folder.file("file", &[3; 10_000]);
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let Ok(file) = options.open(folder.path("file")) else {
            millrace_testing::skip!("the temporary folder has no direct files");
            return;
        };
        let file = Arc::new(OwnedFd::from(file));
        let root = superuser();
        let slice = stage.slice(16 << 10);
        for (offset, count) in [(0, 10_000), (4096, 5904), (8192, 1808), (12_288, 0)] {
            let read = stage.engine.read(&file, offset, &slice, false, &root, None);
            assert_eq!(stage.run(read).unwrap(), count);
        }
        let write = stage
            .engine
            .write(&file, 4096, &slice, Durability::Data, &root, None);
        assert_eq!(stage.run(write).unwrap(), 16 << 10);
    }
}
