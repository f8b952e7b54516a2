//! Files whose leases have to end, as threads of stores tell the home.

use std::sync::OnceLock;

use crossbeam_channel::{Receiver, Sender};

use super::files::FileKey;

/// The way from any thread to the home. A lease is told once, so that there is no other bound.
pub struct BrokenLeases {
    sender: Sender<FileKey>,
    files: Receiver<FileKey>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Default for BrokenLeases {
    fn default() -> Self {
        let (sender, files) = crossbeam_channel::unbounded();
        Self {
            sender,
            files,
            wake: OnceLock::new(),
        }
    }
}

impl BrokenLeases {
    /// Wakes the reactor with the home by this. Only the first call has an effect.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// A lease of a file has to end. Never blocks.
    pub fn tell(&self, file: FileKey) {
        let _ = self.sender.send(file);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// The next file.
    pub(super) fn next(&self) -> Option<FileKey> {
        self.files.try_recv().ok()
    }
}

impl std::fmt::Debug for BrokenLeases {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("BrokenLeases");
        shown
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}
