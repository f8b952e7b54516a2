//! Writes the configuration file so that it is always whole: the old one or the new one, whatever
//! fails and whenever the power does.
//!
//! The new text and a copy of the old file are written beside the file and made durable first.
//! Then, in this order and each step durable before the next, the copy becomes `FILE.bak.N` and the
//! new text becomes the file, by renaming. So there is a file at every moment, and one with the new
//! text only beside a backup of the old one. N grows; the latest few backups are kept.

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
