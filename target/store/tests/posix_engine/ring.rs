//! What only a ring does. Pipes stand for devices that take their time.

use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use millrace_store::posix::engine::{Backend, Durability, Engine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::pipe;

use crate::stage::{Folder, Stage, poll_once, superuser};

/// One whose thread registers callers with the ring, and one for which a helper does.
fn stages() -> impl Iterator<Item = Stage> {
    let all = Stage::of_all_kinds(4).into_iter();
    all.filter(|stage| stage.engine.backend() == Backend::Ring)
}

/// Whether the engine's descriptor becomes readable within so many seconds.
#[allow(unsafe_code)]
fn readable(engine: &Engine, seconds: i64) -> bool {
    let descriptor = engine.descriptor().expect("rings have one");
    // SAFETY: the engine lives as long as its reference, and its descriptor with it.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut list = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    poll(&mut list, Some(&timeout)).unwrap() == 1
}

#[test]
fn a_sleeper_is_woken_by_the_descriptor() {
    for stage in stages() {
        let root = superuser();
        let (out, inward) = pipe().unwrap();
        let (out, mut inward) = (Arc::new(out), std::fs::File::from(inward));
        let slice = stage.slice(4);
        for round in 0..100_u8 {
            let mut read = pin!(stage.engine.read(&out, 0, &slice, false, &root, None));
            assert!(poll_once(read.as_mut()).is_pending());
            assert!(!stage.engine.arm(), "what is not handed over keeps awake");
            stage.engine.poll(Instant::now());
            assert!(stage.engine.arm());
            assert!(!readable(&stage.engine, 0));
            let writer = std::thread::spawn(move || {
                inward.write_all(&[round; 4]).unwrap();
                inward
            });
            assert!(readable(&stage.engine, 60), "asleep for ever");
            inward = writer.join().unwrap();
            stage.engine.poll(Instant::now());
            assert_eq!(stage.run(read).unwrap(), 4);
            assert!(stage.engine.arm());
            assert!(!readable(&stage.engine, 0));
        }
    }
}

#[test]
fn a_sleeper_is_woken_by_work_of_the_kernels_threads() {
    for stage in stages() {
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let root = superuser();
        for round in 0..50 {
            let slice = stage.slice_of(&[round; 9000]);
            let mut write =
                pin!(
                    stage
                        .engine
                        .write(&file, 0, &slice, Durability::File, &root, None)
                );
            assert!(poll_once(write.as_mut()).is_pending());
            stage.engine.poll(Instant::now());
            while stage.engine.pending() > 0 {
                if stage.engine.arm() {
                    assert!(readable(&stage.engine, 60), "asleep for ever");
                }
                stage.engine.poll(Instant::now());
            }
            assert_eq!(stage.run(write).unwrap(), 9000);
        }
    }
}

#[test]
fn memory_is_not_used_again_before_the_kernel_is_done_with_it() {
    for stage in stages() {
        let root = superuser();
        let (out, inward) = pipe().unwrap();
        let (out, mut inward) = (Arc::new(out), std::fs::File::from(inward));
        let slice = stage.slice_of(&[1; 4]);
        let watcher = slice.clone();
        {
            let read = pin!(stage.engine.read(&out, 0, &slice, false, &root, None));
            assert!(poll_once(read).is_pending());
            stage.engine.poll(Instant::now());
        }
        // Two of the three that share the buffer go; what the kernel may write into stays.
        drop(slice);
        let Err(watcher) = watcher.try_into_buffer() else {
            panic!("the operation let go of its memory");
        };
        assert_eq!(stage.engine.pending(), 1);
        inward.write_all(&[2; 4]).unwrap();
        stage.finish();
        let mut found = [0; 4];
        watcher.copy_to(0, &mut found);
        assert_eq!(found, [2; 4]);
        assert!(watcher.try_into_buffer().is_ok());
    }
}

#[test]
fn an_engine_that_goes_calls_back_what_would_not_end() {
    for stage in stages() {
        let root = superuser();
        let (out, _inward) = pipe().unwrap();
        let out: Arc<OwnedFd> = Arc::new(out);
        let slice = stage.slice(4);
        {
            let read = pin!(stage.engine.read(&out, 0, &slice, false, &root, None));
            assert!(poll_once(read).is_pending());
            stage.engine.poll(Instant::now());
        }
        let Stage { engine, pool, .. } = stage;
        drop(engine);
        assert_eq!(Arc::strong_count(&out), 1);
        assert!(slice.try_into_buffer().is_ok());
        drop(pool);
    }
}
