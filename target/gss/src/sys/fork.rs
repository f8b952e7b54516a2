//! Forks of this process, counted so that generators are seeded anew.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Runs in the child between fork and its first own instruction.
extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between this process and the one that asked first.
pub fn forks() -> u32 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler is a function of this program and only changes an atomic number,
        // which is allowed after a fork.
        let outcome = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        if outcome != 0 {
            tracing::warn!("forks cannot be counted: error {outcome}");
        }
    });
    FORKS.load(Ordering::Relaxed)
}

/// What a fork writes into its buffer and what this process does.
#[cfg(test)]
pub fn bytes_of_a_fork(fill: impl Fn(&mut [u8; 16])) -> ([u8; 16], [u8; 16]) {
    use std::io::{Read, Write};
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child of this process with threads only fills a buffer on its stack, writes it
    // to the pipe and ends, without locks of other threads.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a fork");
    let mut own = [0; 16];
    fill(&mut own);
    if child == 0 {
        let written = writer.write_all(&own).is_ok();
        // SAFETY: ends the child without any handlers of its parent.
        unsafe { libc::_exit(i32::from(!written)) };
    }
    drop(writer);
    let mut others = [0; 16];
    reader.read_exact(&mut others).expect("the child's bytes");
    let mut status = 0;
    // SAFETY: the child is this process's own, and the status is written.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    (others, own)
}
