//! One export's folder, shared by all reactors.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::about::About;
use super::data::{VolumeData, VolumeFigures};
use super::file_system::{FileSystem, kernel_handle, readable};
use super::groups::Membership;
use super::handle::{self, Key, Place};
use super::helpers::{HelperLimits, Helpers};
use super::inside::path_of;
use super::mounts::{MountsBelow, mount_of};
use super::names::{Changes, Departed};
use super::opening::key_of;
use super::remembered::Remembered;
use super::shared_file::SharedFiles;
use crate::{Handle, Properties, WriteVerifier};

/// How long a clean stop waits for helpers that end nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it looks.
const PAUSE: Duration = Duration::from_millis(2);

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
    /// Whoever opened it does not want the folder that was found.
    #[error("{0}")]
    Refused(String),
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
    departed: Departed,
    membership: Membership,
    /// The folder in the host's tree of mounts.
    host: OwnedFd,
    /// The file system of the folder. Its mount is one of ours, of the folder alone, or the host's.
    home: Arc<FileSystem>,
    /// Whether that is one of ours.
    own_mount: bool,
    root: Handle,
    /// The folder as [`Remembered`] knows it.
    key: Key,
    /// What goes into the identities of its file systems.
    within: Vec<u8>,
    /// Whether the kernel's handles may be used.
    kernel_handles: bool,
    properties: Properties,
    files: SharedFiles,
    /// What operators were told of it.
    about: OnceLock<About>,
    below: MountsBelow,
    remembered: Remembered,
}

impl Volume {
    /// Opens the folder. Reads its file system's properties, so it may block.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open(config: VolumeConfig) -> Result<Self, OpenError> {
        Self::open_with(config, true, |_| Ok(()))
    }

    /// As [`Volume::open`], if `check` accepts the folder that was opened, by its real path. The
    /// check is of what is served, whatever the name leads to before and afterwards.
    ///
    /// # Errors
    /// The folder cannot be opened, or is refused.
    pub fn open_checked(
        config: VolumeConfig,
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<Self, OpenError> {
        Self::open_with(config, true, check)
    }

    /// As [`Volume::open`], but finds objects again only by what it remembers of their names, as it
    /// does where the kernel has no handles or does not let this process use them: handles are good
    /// for as long as the process, for a bounded number of objects, and as long as nobody renames
    /// them behind its back.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open_without_kernel_handles(config: VolumeConfig) -> Result<Self, OpenError> {
        Self::open_with(config, false, |_| Ok(()))
    }

    fn open_with(
        config: VolumeConfig,
        kernel_handles: bool,
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<Self, OpenError> {
        let failed = |error| OpenError::Root {
            path: config.root.clone(),
            error,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let host = rustix::fs::openat(CWD, &config.root, flags, Mode::empty())
            .map_err(|error| failed(error.into()))?;
        // Only there the kernel tells where an object is, and opens the data of one.
        let path = path_of(host.as_fd()).map_err(|error| {
            failed(io::Error::other(format!(
                "/proc/self/fd cannot be read ({error}), it is needed"
            )))
        })?;
        check(Path::new(OsStr::from_bytes(&path))).map_err(OpenError::Refused)?;
        let folder = Self::open_folder(host, &config, kernel_handles)
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            shared: Arc::new(folder.share(config)),
        })
    }

    fn open_folder(
        host: OwnedFd,
        config: &VolumeConfig,
        kernel_handles: bool,
    ) -> Result<Folder, Errno> {
        let host = readable(host);
        let mount = match config.mounts {
            Mounts::Hide => own_mount(&host)?,
            Mounts::Cross => None,
        };
        let own_mount = mount.is_some();
        if !own_mount && config.mounts == Mounts::Hide {
            tracing::info!(
                "{}: this process may not make a mount of its own (CAP_SYS_ADMIN); folders that \
                 something is mounted on are refused",
                config.root.display()
            );
        }
        let mount = match mount {
            Some(mount) => readable(mount),
            None => rustix::io::fcntl_dupfd_cloexec(&host, 0)?,
        };
        let key = key_of(mount.as_fd())?;
        let kernel = match kernel_handles {
            true => kernel_handle(mount.as_fd())?,
            false => None,
        };
        // What tells this folder from all others on its file system.
        let within = match &kernel {
            Some(handle) => handle.as_bytes().to_vec(),
            None => [key.inode.to_be_bytes(), key.born.0.to_be_bytes()].concat(),
        };
        let home = FileSystem::of(mount, &within, kernel_handles)?;
        if !home.kernel_handles && kernel_handles {
            tracing::warn!(
                "{}: the file system has no handles, or this process may not open them \
                 (CAP_DAC_READ_SEARCH); clients' handles end with the process",
                config.root.display()
            );
        }
        let place = kernel.map_or(Place::Root, Place::Kernel);
        Ok(Folder {
            root: handle::pack(home.id, &place),
            properties: home.properties()?,
            own_mount,
            key,
            within,
            kernel_handles,
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

    /// Objects that reactors are to let go.
    pub(super) fn departed(&self) -> &Departed {
        &self.shared.departed
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
        // Helpers may still be at what reactors let go. They are given up when nothing ends any
        // more.
        loop {
            let load = self.helpers().load();
            if load.running + load.queued == 0 || load.stuck > PATIENCE {
                break;
            }
            std::thread::sleep(PAUSE);
        }
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

    /// The file system that something opened below the folder is on.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn file_system_of(&self, object: BorrowedFd<'_>) -> Result<Arc<FileSystem>, Errno> {
        let home = self.home();
        if self.config().mounts == Mounts::Hide {
            return Ok(Arc::clone(home));
        }
        let mount = mount_of(object)?;
        if mount == home.mount_id {
            return Ok(Arc::clone(home));
        }
        let shared = &self.shared;
        let found = shared
            .below
            .by_mount(self.host_path(), &shared.within, mount)?;
        Ok(found)
    }

    /// The file systems below the folder with this identity, one for each of their mounts.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn file_systems_below(&self, id: u64) -> Result<Vec<Arc<FileSystem>>, Errno> {
        let shared = &self.shared;
        match self.config().mounts {
            Mounts::Hide => Ok(Vec::new()),
            Mounts::Cross => shared
                .below
                .by_identity(self.host_path(), &shared.within, id),
        }
    }

    /// Whether the folder is opened by a mount that shows nothing outside of it.
    pub(super) fn has_own_mount(&self) -> bool {
        self.shared.own_mount
    }

    /// The mounts below the folder.
    pub(super) fn below(&self) -> &MountsBelow {
        &self.shared.below
    }

    /// Whether the kernel's handles are used for a file system.
    pub(super) fn uses_kernel_handles(&self, file_system: &FileSystem) -> bool {
        self.shared.kernel_handles && file_system.kernel_handles
    }

    /// How objects are found that the kernel has no handles for.
    pub(super) fn remembered(&self) -> &Remembered {
        &self.shared.remembered
    }

    /// The folder as [`Volume::remembered`] knows it.
    pub(super) fn key(&self) -> &Key {
        &self.shared.key
    }

    /// The number in attributes of the file system with this device number.
    pub(super) fn file_system_number(&self, device: u64) -> u64 {
        if device == self.shared.key.device {
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
    own_mount: bool,
    key: Key,
    within: Vec<u8>,
    kernel_handles: bool,
    root: Handle,
    properties: Properties,
}

impl Folder {
    fn share(self, config: VolumeConfig) -> Shared {
        Shared {
            helpers: Helpers::new("posix", config.limits.helpers),
            data: VolumeData::new(&config),
            changes: Changes::new(),
            departed: Departed::new(),
            membership: Membership::new(),
            host: self.host,
            home: Arc::new(self.home),
            own_mount: self.own_mount,
            key: self.key,
            within: self.within,
            kernel_handles: self.kernel_handles,
            root: self.root,
            properties: self.properties,
            files: SharedFiles::default(),
            about: OnceLock::new(),
            below: MountsBelow::default(),
            remembered: Remembered::default(),
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
