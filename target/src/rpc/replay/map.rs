//! Files mapped into memory: the only module of this crate with `unsafe` code.
//!
//! A store into a shared mapping of a file changes the page cache directly, so it survives any end
//! of the process and takes no system call.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{Advice, MmapMut, MmapOptions};

/// Maps `length` bytes of a file from `offset` on, both multiples of the page size, and makes all
/// of its pages ready to be written (an error where the file system cannot, instead of the end of
/// the process at a later access).
pub(super) fn shared(file: &File, offset: u64, length: usize) -> io::Result<MmapMut> {
    let mut options = MmapOptions::new();
    options.offset(offset).len(length);
    // SAFETY: a change of memory by others during the life of a reference would be undefined
    // behaviour. Files mapped here are made by this process under a name of its own, readable and
    // writable by its user only, and each range is mapped once: nothing else writes them while they
    // are mapped. A user who could still change the files could as well write the process's memory.
    let map = unsafe { options.map_mut(file) }?;
    match map.advise(Advice::PopulateWrite) {
        // Kernels before 5.14 do not know it; there the first access does it.
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            Err(error)
        }
        _ => Ok(map),
    }
}
