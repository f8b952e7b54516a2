//! The order of system calls and answers: data answered as durable was synced before.
//!
//! Whether the kernel and the disk keep synced data is tested by power cuts elsewhere.

mod data;
mod names;
mod promises;

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use super::engine::Backend;
use super::sys::record::FileId;
use super::sys::ring::Ring;

/// The engines' backends under test.
fn backends() -> Vec<Backend> {
    match Ring::new(1, true) {
        Ok(_) => vec![Backend::Ring, Backend::Threads],
        Err(error) => {
            millrace_testing::skip!("no io_uring: {error}");
            vec![Backend::Threads]
        }
    }
}

/// The object that a name refers to now.
fn id_of(path: &Path) -> FileId {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    FileId::of(rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap())
}
