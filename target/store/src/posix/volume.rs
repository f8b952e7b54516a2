//! One export's folder, shared by all reactors.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::data::{VolumeData, VolumeFigures};
use super::groups::Membership;
use super::helpers::{HelperLimits, Helpers};
use super::names::Changes;
use crate::{Handle, Properties, WriteVerifier};

/// Whether data passes the page cache by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where a transfer is aligned and long enough to gain from it.
    #[default]
    Auto,
    /// Wherever a transfer is aligned.
    Always,
    /// Never.
    Never,
}

/// When a change of names and attributes is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Once it is durable, as RFC 1813 section 4.8 wants.
    #[default]
    Strict,
    /// Once it is made; a crash of the host may undo it.
    Relaxed,
}

/// Whose word is taken on a caller's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// The client's, which names sixteen at most.
    #[default]
    Client,
    /// This host's user database.
    Server,
}

/// What clients see where another file system is mounted below the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mounts {
    /// The folder that the mount covers.
    #[default]
    Hide,
    /// The file system that is mounted there.
    Cross,
}

/// Bounds of what one volume may take of the process, so that one that hangs harms no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most objects that each reactor keeps open.
    pub open_files: usize,
    /// Threads for names and attributes, and jobs that wait for one.
    pub helpers: HelperLimits,
    /// Most reads, writes and syncs of data that each reactor has begun and not ended.
    pub operations: usize,
    /// Most bytes written and not known to be durable, by all reactors.
    pub dirty: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_files: 4096,
            helpers: HelperLimits {
                threads: 16,
                queue: 1024,
            },
            operations: 256,
            dirty: 1 << 30,
        }
    }
}

/// What a volume is opened from.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// For logs and names of threads.
    pub name: String,
    /// The folder.
    pub root: PathBuf,
    /// Whether data passes the page cache by.
    pub direct: Direct,
    /// When a change of names and attributes is answered.
    pub sync: Sync,
    /// Whose word is taken on a caller's groups.
    pub groups: Groups,
    /// What clients see of file systems mounted below.
    pub mounts: Mounts,
    /// Bounds.
    pub limits: Limits,
    /// Where a clean stop leaves the write verifier for the next start.
    pub state: Option<PathBuf>,
}

/// Why a volume does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder is not there or is none.
    #[error("{}: {error}", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// One export's folder. Clones share it, also between threads.
#[derive(Clone)]
pub struct Volume {
    shared: Arc<Shared>,
}

struct Shared {
    config: VolumeConfig,
    helpers: Helpers,
    data: VolumeData,
    changes: Changes,
    membership: Membership,
}

impl Volume {
    /// Opens the folder. Reads its file system's properties, so it may block.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open(config: VolumeConfig) -> Result<Self, OpenError> {
        Ok(Self {
            shared: Arc::new(Shared {
                helpers: Helpers::new("posix", config.limits.helpers),
                data: VolumeData::new(&config),
                changes: Changes::new(),
                membership: Membership::new(),
                config,
            }),
        })
    }

    /// What it was opened from.
    #[must_use]
    pub fn config(&self) -> &VolumeConfig {
        &self.shared.config
    }

    /// The threads for what may block.
    #[must_use]
    pub fn helpers(&self) -> &Helpers {
        &self.shared.helpers
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> Handle {
        Handle::new(&[]).expect("short")
    }

    /// Limits and properties of its file system.
    #[must_use]
    pub fn properties(&self) -> Properties {
        Properties {
            name_max: 255,
            links_max: 65_000,
            size_max: i64::MAX as u64,
            file_system: 0,
        }
    }

    /// The write verifier now (RFC 1813 section 3.3.7).
    #[must_use]
    pub fn verifier(&self) -> WriteVerifier {
        self.shared.data.verifier()
    }

    /// What operators want to know of its data, summed over all reactors.
    #[must_use]
    pub fn figures(&self) -> VolumeFigures {
        self.shared.data.figures()
    }

    /// How often names or attributes were made durable, since it was opened.
    #[must_use]
    pub fn name_syncs(&self) -> u64 {
        self.shared.changes.syncs()
    }

    /// What those share that change names and attributes.
    pub(super) fn changes(&self) -> &Changes {
        &self.shared.changes
    }

    /// What is known of users' groups, where the user database is asked.
    pub(super) fn membership(&self) -> &Membership {
        &self.shared.membership
    }

    /// What all reactors share of its data.
    pub(super) fn data(&self) -> &VolumeData {
        &self.shared.data
    }

    /// Ends its service cleanly: the next start keeps the write verifier if all that was written is
    /// durable, which it is once every reactor has let its objects go. Blocks; call it when all
    /// stores of the volume are gone.
    pub fn close(&self) {
        self.shared.data.close();
    }
}
