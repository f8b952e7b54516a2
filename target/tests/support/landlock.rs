//! What this kernel's Landlock can do, asked of the kernel itself: a test must not be skipped because
//! the server does not find it.

use std::ptr::null;

/// Of `landlock_create_ruleset(2)`.
const VERSION: u32 = 1;
const ERRATA: u32 = 2;

/// The version of its interface, and the corrections that it has. `None` without Landlock.
fn ask(flag: u32) -> Option<libc::c_long> {
    // SAFETY: with these flags the call takes no memory.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, null::<u8>(), 0, flag) };
    (answer >= 0).then_some(answer)
}

/// Version of its interface; 0 without Landlock.
pub fn version() -> libc::c_long {
    ask(VERSION).unwrap_or(0)
}

/// Whether exported folders can be served under it: files are renamed between folders, and opened
/// by handle (erratum 3).
#[allow(dead_code, reason = "not every test program serves folders")]
pub fn is_fit_for_folders() -> bool {
    version() >= 2 && ask(ERRATA).is_some_and(|errata| errata & 1 << 2 != 0)
}
