//! One export's folder, shared by all reactors.

use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

pub use super::config::{Direct, Groups, Limits, Mounts, OpenError, Sync, VolumeConfig};
use super::data::counters::VolumeFigures;
use super::data::volume_data::VolumeData;
use super::folder::Folder;
use super::helpers::Helpers;
use super::kept_files::KeptFiles;
use super::membership::Membership;
use super::namespace::changes::Changes;
use super::namespace::unlinked::UnlinkedObjects;
use super::shared_file::SharedFiles;
use super::volume_info::VolumeInfo;
use crate::{Handle, Properties, WriteVerifier};

/// How long a clean stop waits for helpers that complete nothing.
const STUCK_HELPERS_TIMEOUT: Duration = Duration::from_secs(10);

/// The polling interval of that wait.
const PAUSE: Duration = Duration::from_millis(2);

/// One export's folder. Clones share it, also between threads.
#[derive(Clone)]
pub struct Volume {
    shared: Arc<Shared>,
}

/// A reference that keeps no volume open.
pub(super) struct WeakVolume(Weak<Shared>);

impl WeakVolume {
    /// The volume, unless it is closed.
    pub fn upgrade(&self) -> Option<Volume> {
        let shared = self.0.upgrade()?;
        Some(Volume { shared })
    }
}

struct Shared {
    config: ArcSwap<VolumeConfig>,
    helpers: Helpers,
    folder: Folder,
    data: VolumeData,
    changes: Changes,
    unlinked: UnlinkedObjects,
    membership: Membership,
    files: SharedFiles,
    kept_files: KeptFiles,
    /// Information for operators, once queried.
    info: OnceLock<VolumeInfo>,
}

impl Volume {
    /// Opens the folder. Reads its file system's properties, so it may block.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn open(config: VolumeConfig) -> Result<Self, OpenError> {
        Self::open_with(config, true, |_| Ok(()))
    }

    /// As [`Volume::open`], if `check` accepts the real path of the opened folder. The check
    /// applies to the opened folder, even if the name refers to another one before or afterwards.
    ///
    /// # Errors
    /// The folder cannot be opened, or is refused.
    pub fn open_checked(
        config: VolumeConfig,
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<Self, OpenError> {
        Self::open_with(config, true, check)
    }

    /// As [`Volume::open`], but finds objects only by the name cache, as it does if the kernel has
    /// no handles or does not let this process use them: handles are valid until the process ends,
    /// for a bounded number of objects, unless other programs rename them.
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
        let (host, path) = Folder::find(&config).map_err(failed)?;
        check(&path).map_err(OpenError::Refused)?;
        let folder = Folder::open(host, &config, kernel_handles).map_err(failed)?;
        Ok(Self {
            shared: Arc::new(Shared {
                helpers: Helpers::new("posix", config.limits.helpers),
                folder,
                data: VolumeData::new(&config),
                changes: Changes::new(),
                unlinked: UnlinkedObjects::new(),
                membership: Membership::new(),
                files: SharedFiles::default(),
                kept_files: KeptFiles::default(),
                info: OnceLock::new(),
                config: ArcSwap::from_pointee(config),
            }),
        })
    }

    /// Whether both are the same volume.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(super) fn downgrade(&self) -> WeakVolume {
        WeakVolume(Arc::downgrade(&self.shared))
    }

    /// Whether this is the only reference.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Its configuration, as [adjusted](Self::adjust).
    #[must_use]
    pub fn config(&self) -> Guard<Arc<VolumeConfig>> {
        self.shared.config.load()
    }

    /// Changes limits, direct I/O and durability of changes. Operations in progress are not
    /// affected.
    pub fn adjust(&self, direct: Direct, sync: Sync, limits: Limits) {
        self.shared.helpers.set_limits(limits.helpers);
        self.shared.config.rcu(|config| VolumeConfig {
            direct,
            sync,
            limits,
            ..VolumeConfig::clone(config)
        });
    }

    /// The threads for operations that may block.
    #[must_use]
    pub fn helpers(&self) -> &Helpers {
        &self.shared.helpers
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> Handle {
        self.shared.folder.root()
    }

    /// Limits and properties of its file system.
    #[must_use]
    pub fn properties(&self) -> Properties {
        self.shared.folder.properties()
    }

    /// The write verifier now (RFC 1813 section 3.3.7).
    #[must_use]
    pub fn verifier(&self) -> WriteVerifier {
        self.shared.data.verifier()
    }

    /// Figures of its data for operators, summed over all reactors.
    #[must_use]
    pub fn figures(&self) -> VolumeFigures {
        self.shared.data.figures()
    }

    /// The number of syncs of names or attributes, since it was opened.
    #[must_use]
    pub fn name_syncs(&self) -> u64 {
        self.shared.changes.syncs()
    }

    /// The folder, for resolving handles and names.
    pub(super) fn folder(&self) -> &Folder {
        &self.shared.folder
    }

    /// Shared state of changes of names and attributes.
    pub(super) fn changes(&self) -> &Changes {
        &self.shared.changes
    }

    /// Objects that reactors have to close.
    pub(super) fn kept_files(&self) -> &KeptFiles {
        &self.shared.kept_files
    }

    pub(super) fn unlinked(&self) -> &UnlinkedObjects {
        &self.shared.unlinked
    }

    /// Cached groups of users, if the user database is used.
    pub(super) fn membership(&self) -> &Membership {
        &self.shared.membership
    }

    /// The state of its data shared by all reactors.
    pub(super) fn data(&self) -> &VolumeData {
        &self.shared.data
    }

    /// Ends its service cleanly: the next start keeps the write verifier if all written bytes are
    /// durable, which they are once every reactor has dropped its objects. Blocks; call it when all
    /// stores of the volume are dropped.
    pub fn close(&self) {
        // Helpers may still be closing objects of reactors. The wait ends when they make no
        // progress.
        loop {
            let load = self.helpers().load();
            if load.running + load.queued == 0 || load.stuck > STUCK_HELPERS_TIMEOUT {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        self.shared.data.close();
    }

    /// Where [`Volume::info`] stores its result.
    pub(super) fn known(&self) -> &OnceLock<VolumeInfo> {
        &self.shared.info
    }

    /// The state of files shared by reactors.
    pub(super) fn files(&self) -> &SharedFiles {
        &self.shared.files
    }
}
