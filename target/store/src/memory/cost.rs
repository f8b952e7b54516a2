//! The charge of names and objects against a store's size, in addition to their data.
//!
//! Names and objects are on the heap, not in the memory that a store reserves at its start.
//! Charging them bounds their number by the size. The figures are those of the 64-bit allocator,
//! rounded up; a test compares them with real allocations. The text of a long symbolic link takes a
//! page of the store's memory instead.

use super::NAME_MAX;
use super::inode::Body;

/// An object that is not a directory, without its name.
pub const OBJECT_BYTES: u64 = 320;
/// A directory, without its name and its entries.
pub const DIRECTORY_BYTES: u64 = 1024;
/// A name, to which its length is added.
pub const NAME_BYTES: u64 = 256;
/// The least that one more object with a name counts.
pub(super) const OBJECT_LEAST_BYTES: u64 = OBJECT_BYTES + NAME_BYTES + 1;
/// Longest text of a symbolic link that lives beside its object and counts its length; a longer
/// one counts a page of 4 KiB.
pub const SHORT_TEXT_MAX: usize = NAME_MAX;

/// The bytes charged for a name.
pub(super) fn of_name(name: &[u8]) -> u64 {
    NAME_BYTES + name.len() as u64
}

/// The bytes charged for an object, without its names, its data and a text in the store's own
/// memory.
pub(super) fn of_object(body: &Body) -> u64 {
    match body {
        Body::Directory(_) => DIRECTORY_BYTES,
        Body::Symlink(text) => OBJECT_BYTES + text.heap_bytes(),
        Body::File(_) | Body::Special(_) => OBJECT_BYTES,
    }
}
