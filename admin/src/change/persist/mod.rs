//! Writes the configuration file atomically: after any failure or loss of power it is the old one
//! or the new one.
//!
//! The new text and a copy of the old file are written beside the file and made durable first.
//! Then, in this order and each step durable before the next, the copy is renamed to `FILE.bak.N`
//! and the new text to the file. So there is a file at every moment, and the new text only with a
//! backup of the old one. N grows; the latest few backups are kept.

mod disk;
mod keep;
mod staged;

pub use disk::{Disk, HostDisk};
pub use keep::keep;
pub use staged::{Staged, rewritten};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
