//! The C library's allocator.

#![allow(unsafe_code)]

/// Has small blocks joined with their free neighbours when they are freed. By default glibc keeps
/// them in lists, and joins all of them when a large block is freed: for a reactor whose client had
/// removed a million files, that took 0.4 s.
pub fn free_at_once() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` has no conditions. `main` calls this before there is another thread, so that
    // none allocates meanwhile.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Bytes of freed blocks that were not joined, beside the few that each thread keeps.
    fn bytes_apart() -> usize {
        // SAFETY: it reads counters of the allocator.
        unsafe { libc::mallinfo2() }.fsmblks
    }

    #[test]
    fn no_small_block_stays_apart() {
        free_at_once();
        let mut blocks: Vec<_> = (0..10_000_u64).map(Box::new).collect();
        // The list itself stays: it is large.
        blocks.clear();
        assert_eq!(bytes_apart(), 0);
    }
}
