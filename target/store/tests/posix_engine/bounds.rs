//! Errors, and more operations than there may be.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use millrace_store::posix::engine::{Durability, Engine, EngineConfig};

use crate::stage::{Folder, Stage, backends, poll_once, superuser};

#[test]
fn what_the_kernel_says_is_what_the_caller_hears() {
    for backend in backends() {
        let stage = Stage::new(backend, 4);
        let folder = Folder::new();
        let root = superuser();
        folder.file("file", b"something");
        let slice = stage.slice(9);
        let read_only: Arc<OwnedFd> = Arc::new(fs::File::open(folder.path("file")).unwrap().into());
        let write = stage
            .engine
            .write(&read_only, 0, &slice, Durability::None, &root, None);
        let error = stage.run(write).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        let append = OpenOptions::new().append(true).open(folder.path("file"));
        let write_only: Arc<OwnedFd> = Arc::new(append.unwrap().into());
        let read = stage
            .engine
            .read(&write_only, 0, &slice, false, &root, None);
        let error = stage.run(read).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        let file = folder.file("other", b"");
        for offset in [u64::MAX, 1 << 63] {
            let read = stage.engine.read(&file, offset, &slice, false, &root, None);
            let error = stage.run(read).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
        let beyond = i64::MAX as u64;
        let write = stage
            .engine
            .write(&file, beyond, &slice, Durability::None, &root, None);
        stage.run(write).unwrap_err();
        assert_eq!(fs::metadata(folder.path("other")).unwrap().len(), 0);
        let read = stage
            .engine
            .read(&file, 1 << 40, &slice, false, &root, None);
        assert_eq!(stage.run(read).unwrap(), 0);
    }
}

#[test]
fn those_beyond_the_bound_wait_in_order_and_may_leave() {
    for backend in backends() {
        let stage = Stage::new(backend, 2);
        let folder = Folder::new();
        let file = folder.file("file", &[1; 100]);
        let root = superuser();
        let slices: Vec<_> = (0..6).map(|_| stage.slice(100)).collect();
        let mut reads: Vec<_> = slices
            .iter()
            .map(|slice| Box::pin(stage.engine.read(&file, 0, slice, false, &root, None)))
            .collect();
        for read in &mut reads {
            assert!(poll_once(read.as_mut()).is_pending());
        }
        assert_eq!((stage.engine.pending(), stage.engine.waiting()), (2, 4));
        // The third leaves the line before its turn.
        drop(reads.remove(2));
        assert_eq!(stage.engine.waiting(), 3);
        // The second is under way and nobody waits for it any more.
        drop(reads.remove(1));
        stage.finish();
        // Its place went to the first in line; who leaves then passes it on.
        assert_eq!(stage.engine.waiting(), 2);
        drop(reads.remove(1));
        assert_eq!(stage.engine.waiting(), 1);
        for read in reads {
            assert_eq!(stage.run(read).unwrap(), 100);
        }
        assert_eq!((stage.engine.pending(), stage.engine.waiting()), (0, 0));
    }
}

#[test]
fn what_nobody_waits_for_keeps_its_memory_and_comes_to_its_end() {
    for backend in backends() {
        let stage = Stage::with_memory(backend, 4, 4 << 20);
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let root = superuser();
        let slice = stage.slice_of(&[5; 70_000]);
        let lent = |stage: &Stage| {
            let gauges = stage.pool.gauges();
            gauges.class(millrace_mempool::Class::Large).in_use()
        };
        assert_eq!(lent(&stage), 1);
        {
            let write = pin!(
                stage
                    .engine
                    .write(&file, 0, &slice, Durability::None, &root, None)
            );
            assert!(matches!(poll_once(write), Poll::Pending));
        }
        let other_owner = Arc::downgrade(&file);
        drop((slice, file));
        assert_eq!(lent(&stage), 1);
        assert!(other_owner.upgrade().is_some());
        stage.finish();
        assert_eq!(lent(&stage), 0);
        assert!(other_owner.upgrade().is_none());
        assert_eq!(fs::read(folder.path("file")).unwrap(), vec![5; 70_000]);
    }
}

#[test]
fn an_engine_that_goes_waits_for_what_is_under_way() {
    for backend in backends() {
        let stage = Stage::new(backend, 4);
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let root = superuser();
        let config = EngineConfig {
            backend,
            operations: 4,
        };
        let engine = Engine::new(config, &stage.pool, &[], None).unwrap();
        let slice = stage.slice_of(&[5; 70_000]);
        {
            let write = pin!(engine.write(&file, 0, &slice, Durability::None, &root, None));
            assert!(poll_once(write).is_pending());
            engine.poll(Instant::now());
        }
        drop(slice);
        let alone = Arc::downgrade(&file);
        drop(file);
        drop(engine);
        assert!(alone.upgrade().is_none());
    }
}

/// A small file system in memory, unmounted with this value.
struct SmallMount(Folder);

impl SmallMount {
    /// None, recorded as skipped, where this process may not mount.
    fn new(kibibytes: u32) -> Option<Self> {
        let folder = Folder::new();
        fs::create_dir(folder.path("mount")).unwrap();
        let options = format!("size={kibibytes}k");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "small"])
            .arg(folder.path("mount"))
            .output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        if !mounted {
            millrace_testing::skip!("this process may not mount");
        }
        mounted.then_some(Self(folder))
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path("mount")).status();
    }
}

#[test]
fn where_space_ends_the_write_is_short_and_the_next_is_refused() {
    for backend in backends() {
        let stage = Stage::new(backend, 4);
        let Some(mount) = SmallMount::new(256) else {
            return;
        };
        let file = mount.0.file("mount/file", b"");
        let root = superuser();
        let slice = stage.slice_of(&vec![9; 600 << 10]);
        for durability in [Durability::None, Durability::File] {
            rustix::fs::ftruncate(&file, 0).unwrap();
            let write = stage
                .engine
                .write(&file, 0, &slice, durability, &root, None);
            let count = stage.run(write).unwrap();
            assert!(count > 0 && count <= 256 << 10, "{count}");
            let write = stage
                .engine
                .write(&file, count as u64, &slice, durability, &root, None);
            let error = stage.run(write).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, count as i64);
        }
        drop(file);
    }
}
