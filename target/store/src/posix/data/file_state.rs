//! The state of a file's data that all reactors share.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use super::io_mode_lock::IoModeLock;
use super::volume_data::VolumeData;
use crate::posix::sys;

/// What all reactors share of a file's data.
#[derive(Default)]
pub(in crate::posix) struct FileState {
    /// Bytes written and not known to be durable, but for those that a sync is at.
    pub dirty: AtomicU64,
    /// Syncs that are under way or whose errors are not told yet, by all reactors and helpers.
    pub syncing: AtomicU32,
    /// Which way its writes go.
    pub(super) io_mode: IoModeLock,
}

impl FileState {
    /// Whether something is not known to be durable: then [`FileState::settle`] comes before the
    /// last file that it was written through is closed.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(SeqCst) > 0
    }

    /// Makes durable what was written to a file that is about to be closed: the kernel may forget
    /// an error of writing back that comes when nobody has the file open. Blocks.
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
