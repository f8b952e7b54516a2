//! The configuration of a volume.

use std::io;
use std::path::PathBuf;

use super::helpers::HelperLimits;

/// Whether data bypasses the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// If a transfer is aligned and long enough to gain from it.
    #[default]
    Auto,
    /// If a transfer is aligned.
    Always,
    /// Never.
    Never,
}

/// When a change of names and attributes is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Once it is durable, as RFC 1813 section 4.8 requires.
    #[default]
    Strict,
    /// Once it is made; a crash of the host may undo it.
    Relaxed,
}

/// The source of a caller's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// The client's list, of at most sixteen groups.
    #[default]
    Client,
    /// This host's user database.
    Server,
}

/// What clients see at a mount point below the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mounts {
    /// The folder that the mount covers.
    #[default]
    Hide,
    /// The mounted file system.
    Cross,
}

/// Limits of the resources of one volume, so that a volume that hangs does not affect others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most objects that each reactor keeps open, and the most files without a name that are
    /// kept for clients that have them open.
    pub open_files: usize,
    /// Threads for names and attributes, and the jobs that wait for one.
    pub helpers: HelperLimits,
    /// The most reads, writes and syncs of data in progress on each reactor.
    pub operations: usize,
    /// The most bytes written and not known to be durable, on all reactors.
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

/// The configuration of a volume.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// For logs and names of threads.
    pub name: String,
    /// The folder.
    pub root: PathBuf,
    /// Whether data bypasses the page cache.
    pub direct: Direct,
    /// When a change of names and attributes is answered.
    pub sync: Sync,
    /// The source of a caller's groups.
    pub groups: Groups,
    /// What clients see of file systems mounted below the folder.
    pub mounts: Mounts,
    /// Whether nobody but this process changes or locks files of the folder.
    pub exclusive: bool,
    /// Limits.
    pub limits: Limits,
    /// The file in which a clean stop saves the write verifier for the next start.
    pub state: Option<PathBuf>,
}

/// The reason why a volume does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder does not exist or is no directory.
    #[error("{}: {error}", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The caller of the opening refused the folder.
    #[error("{0}")]
    Refused(String),
}
