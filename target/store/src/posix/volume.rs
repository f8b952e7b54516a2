//! One export's folder, shared by all reactors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::about::About;
use super::data::{VolumeData, VolumeFigures};
use super::file_system::FileSystem;
use super::groups::Membership;
use super::handle::{self, Place};
use super::helpers::{HelperLimits, Helpers};
use super::names::Changes;
use super::opening::{device_of, stat};
use super::shared_file::SharedFiles;
use super::sys::handles;
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
    config: ArcSwap<VolumeConfig>,
    helpers: Helpers,
    data: VolumeData,
    changes: Changes,
    membership: Membership,
    /// The folder in the host's tree of mounts.
    host: OwnedFd,
    /// The file system of the folder. Its mount is one of ours, of the folder alone, or the host's.
    home: Arc<FileSystem>,
    /// The device number of that file system.
    device: u64,
    root: Handle,
    properties: Properties,
    files: SharedFiles,
    /// What operators were told of it.
    about: OnceLock<About>,
}

impl Volume {
    /// Opens the folder. Reads its file system's properties, so it may block.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open(config: VolumeConfig) -> Result<Self, OpenError> {
        match Self::open_folder(&config) {
            Ok(folder) => Ok(Self {
                shared: Arc::new(folder.share(config)),
            }),
            Err(error) => Err(OpenError::Root {
                path: config.root,
                error: error.into(),
            }),
        }
    }

    fn open_folder(config: &VolumeConfig) -> Result<Folder, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let host = rustix::fs::openat(CWD, &config.root, flags, Mode::empty())?;
        let host = readable(host);
        let mount = match config.mounts {
            Mounts::Hide => own_mount(&host)?,
            Mounts::Cross => None,
        };
        let mount = match mount {
            Some(mount) => readable(mount),
            None => rustix::io::fcntl_dupfd_cloexec(&host, 0)?,
        };
        let root = stat(mount.as_fd())?;
        let kernel = kernel_handle(mount.as_fd())?;
        // What tells this folder from all others on its file system.
        let within = match &kernel {
            Some(handle) => handle.as_bytes().to_vec(),
            None => root.stx_ino.to_be_bytes().to_vec(),
        };
        let home = FileSystem::of(mount, &within, kernel.is_some())?;
        let place = kernel.map_or(Place::Root, Place::Kernel);
        Ok(Folder {
            root: handle::pack(home.id, &place),
            properties: home.properties()?,
            device: device_of(&root),
            home,
            host,
        })
    }

    /// Whether both are one and the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether nobody else holds it.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// What it was opened from, and [adjusted](Self::adjust) to.
    #[must_use]
    pub fn config(&self) -> Guard<Arc<VolumeConfig>> {
        self.shared.config.load()
    }

    /// Puts other bounds in force, another way of data past the page cache, and another time of
    /// answers. Operations that are under way end as they began.
    pub fn adjust(&self, direct: Direct, sync: Sync, limits: Limits) {
        self.shared.helpers.set_limits(limits.helpers);
        self.shared.config.rcu(|config| VolumeConfig {
            direct,
            sync,
            limits,
            ..VolumeConfig::clone(config)
        });
    }

    /// The threads for what may block.
    #[must_use]
    pub fn helpers(&self) -> &Helpers {
        &self.shared.helpers
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> Handle {
        self.shared.root
    }

    /// Limits and properties of its file system.
    #[must_use]
    pub fn properties(&self) -> Properties {
        self.shared.properties
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

    /// The folder, by the mount that its objects are opened by.
    pub(super) fn root_path(&self) -> BorrowedFd<'_> {
        self.shared.home.mount.as_fd()
    }

    /// The folder in the host's tree of mounts.
    pub(super) fn host_path(&self) -> BorrowedFd<'_> {
        self.shared.host.as_fd()
    }

    /// The file system of the folder.
    pub(super) fn home(&self) -> &Arc<FileSystem> {
        &self.shared.home
    }

    /// The number in attributes of the file system with this device number.
    pub(super) fn file_system_number(&self, device: u64) -> u64 {
        if device == self.shared.device {
            0
        } else {
            device
        }
    }

    /// Where [`Volume::about`] keeps what it found.
    pub(super) fn known(&self) -> &OnceLock<About> {
        &self.shared.about
    }

    /// What reactors share of files.
    pub(super) fn files(&self) -> &SharedFiles {
        &self.shared.files
    }
}

/// What opening the folder found.
struct Folder {
    host: OwnedFd,
    home: FileSystem,
    device: u64,
    root: Handle,
    properties: Properties,
}

impl Folder {
    fn share(self, config: VolumeConfig) -> Shared {
        Shared {
            helpers: Helpers::new("posix", config.limits.helpers),
            data: VolumeData::new(&config),
            changes: Changes::new(),
            membership: Membership::new(),
            host: self.host,
            home: Arc::new(self.home),
            device: self.device,
            root: self.root,
            properties: self.properties,
            files: SharedFiles::default(),
            about: OnceLock::new(),
            config: ArcSwap::from_pointee(config),
        }
    }
}

/// A mount of the folder alone, which is in no tree: nothing that is mounted below is in it, and no
/// path leads out of it. `None` without the privilege for that (CAP_SYS_ADMIN).
fn own_mount(folder: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    match rustix::mount::open_tree(folder, c"", flags) {
        Ok(mount) => Ok(Some(mount)),
        Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A directory opened for reading where that is allowed: only then it serves to open handles.
fn readable(path: OwnedFd) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&path, c".", flags, Mode::empty()).unwrap_or(path)
}

/// The folder's handle if the kernel has handles and lets this process open them.
fn kernel_handle(folder: BorrowedFd<'_>) -> Result<Option<handles::KernelHandle>, Errno> {
    let handle = match handles::handle_of(folder) {
        Ok(handle) => handle,
        Err(Errno::OPNOTSUPP | Errno::OVERFLOW | Errno::NOSYS | Errno::PERM) => return Ok(None),
        Err(error) => return Err(error),
    };
    match handles::open_by_handle(folder, &handle, super::opening::PATH) {
        Ok(_) => Ok(Some(handle)),
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::NOSYS | Errno::STALE | Errno::BADF) => Ok(None),
        Err(error) => Err(error),
    }
}
