//! The order of system calls and answers: what a client is told to be durable was synced before.
//!
//! Whether the kernel and the disk keep what they say is for power cuts to show.

mod data;
mod names;
mod promises;

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use super::engine::Backend;
use super::sys::record::FileId;
use super::sys::ring::Ring;

/// What does the work of engines here.
fn backends() -> Vec<Backend> {
    match Ring::new(1) {
        Ok(_) => vec![Backend::Ring, Backend::Threads],
        Err(error) => {
            millrace_testing::skip!("no io_uring: {error}");
            vec![Backend::Threads]
        }
    }
}

/// What a name stands for now.
fn id_of(path: &Path) -> FileId {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    FileId::of(rustix::fs::openat(CWD, path, flags, Mode::empty()).unwrap())
}
