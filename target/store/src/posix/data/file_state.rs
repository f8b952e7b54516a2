//! The state of a file's data that all reactors share.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use super::io_mode_lock::IoModeLock;
use super::volume_data::VolumeData;
use crate::posix::sys;

/// The state of a file's data, shared by all reactors.
#[derive(Default)]
pub(in crate::posix) struct FileState {
    /// Bytes written and not known to be durable, except those of a running sync.
    pub dirty: AtomicU64,
    /// Syncs of all reactors and helpers that are running or whose errors are not reported yet.
    pub syncing: AtomicU32,
    /// The mode of its writes.
    pub(super) io_mode: IoModeLock,
}

impl FileState {
    /// Whether written bytes are not known to be durable: then [`FileState::settle`] must precede
    /// the close of the last descriptor they were written through.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(SeqCst) > 0
    }

    /// Makes the bytes of a file about to be closed durable: the kernel may lose an error of
    /// writing back that occurs while the file is not open. Blocks.
    pub fn settle(&self, volume: &VolumeData, file: impl AsFd) {
        let bytes = self.dirty.swap(0, SeqCst);
        if bytes == 0 {
            return;
        }
        self.syncing.fetch_add(1, SeqCst);
        if let Err(error) = sys::calls::fsync(file) {
            volume.lost(&error.into());
        }
        self.syncing.fetch_sub(1, SeqCst);
        volume.dirty.fetch_sub(bytes, SeqCst);
    }
}
