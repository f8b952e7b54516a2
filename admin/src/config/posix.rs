//! The configuration of a store in a folder of the host.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::Problems;
use super::{ByteSize, Config, KeyPath, Store, access, scalar};

/// The most objects of one store that each reactor may keep open.
pub(super) const OPEN_FILES_MAX: u32 = 1 << 20;
pub(super) const THREADS_MAX: u32 = 1024;
pub(super) const QUEUE_MAX: u32 = 1 << 20;
/// The most entries of a ring (io_uring_setup(2)).
const OPERATIONS_MAX: u32 = 32_768;
/// With less, every write of the largest size would wait for a sync.
const DIRTY_MIN: ByteSize = ByteSize::mib(1);
const DIRTY_MAX: ByteSize = ByteSize::gib(1024);

/// A store in a folder of a file system of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Posix {
    /// The folder.
    #[schema(value_type = String)]
    pub root: PathBuf,
    /// Whether data bypasses the page cache.
    #[serde(default)]
    pub direct: DirectIo,
    /// When changes of names and attributes are answered.
    #[serde(default)]
    pub sync: SyncMode,
    /// The source of a caller's groups.
    #[serde(default)]
    pub groups: GroupSource,
    /// The identity of operations.
    #[serde(default)]
    pub identity: CallerIdentity,
    /// What clients see of file systems mounted below the folder.
    #[serde(default)]
    pub mounts: MountView,
    /// Whether nobody but this server changes or locks files of the folder: the operator's promise,
    /// by which clients get delegations, and locks are not taken on the host too.
    #[serde(default)]
    pub exclusive: bool,
    /// Limits of the store's resources.
    #[serde(default)]
    pub limits: StoreLimits,
}

impl Posix {
    /// A folder with defaults for all other keys.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            direct: DirectIo::default(),
            sync: SyncMode::default(),
            groups: GroupSource::default(),
            identity: CallerIdentity::default(),
            mounts: MountView::default(),
            exclusive: false,
            limits: StoreLimits::default(),
        }
    }

    /// `wanted` with this running store's values of keys that cannot change while it is served: the
    /// folder, as its files have other handles, its visibility to users, and what clients may cache.
    pub(super) fn live_part(&self, wanted: &Self) -> Self {
        Self {
            root: self.root.clone(),
            groups: self.groups,
            mounts: self.mounts,
            exclusive: self.exclusive,
            ..wanted.clone()
        }
    }
}

/// Whether data bypasses the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DirectIo {
    /// If a transfer is aligned and long enough to gain from it.
    #[default]
    Auto,
    /// If a transfer is aligned.
    Always,
    /// Never.
    Never,
}

impl DirectIo {
    /// The word for it in configuration and log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// When changes of names and attributes are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// Once they are durable.
    #[default]
    Strict,
    /// Once they are made; a crash of the host may undo the latest.
    Relaxed,
}

impl SyncMode {
    /// The word for it in configuration and log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Relaxed => "relaxed",
        }
    }
}

/// The source of a caller's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupSource {
    /// The client's list, of at most sixteen groups.
    #[default]
    Client,
    /// This host's user database.
    Server,
}

/// The identity of operations on a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallerIdentity {
    /// The caller only. A server that lacks the right to act as its callers refuses the export.
    #[default]
    Caller,
    /// The server's own user for all callers, if it lacks the right to act as them.
    Server,
}

/// What clients see of file systems mounted below the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MountView {
    /// The folders covered by the mounts.
    #[default]
    Hide,
    /// The mounted file systems.
    Cross,
}

/// Limits of a store's resources, so that one that hangs does not affect others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreLimits {
    /// The most objects that each reactor keeps open.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 16, maximum = 1_048_576)]
    pub open_files: u32,
    /// The most threads for names and attributes.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1024)]
    pub threads: u32,
    /// The most jobs that wait for one of these threads; beyond, clients are asked to retry.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub queue: u32,
    /// The most reads, writes and syncs of data in progress on each reactor.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 32_768)]
    pub operations: u32,
    /// The most bytes written that are not known to be durable; further writes sync some first.
    pub dirty: ByteSize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            open_files: 4096,
            threads: 16,
            queue: 1024,
            operations: 256,
            dirty: ByteSize::gib(1),
        }
    }
}

/// The fewest open objects: a rename alone uses five.
pub(super) const OPEN_FILES_MIN: u32 = 16;

/// The rules of all stores in folders, except those that need access to the host.
pub(super) fn check(problems: &mut Problems, exports: &KeyPath, config: &Config) {
    let all = folders(config);
    for (index, posix) in &all {
        let path = exports.index(*index).key("store");
        let root = path.key("root");
        problems.absolute(&root, &posix.root);
        if let Err(message) = plain(&posix.root) {
            problems.add(&root, message);
        }
        // The attribute cache and write order of a store apply to one store only.
        let nested = |other: &&(usize, &Posix)| {
            other.0 < *index
                && (posix.root.starts_with(&other.1.root) || other.1.root.starts_with(&posix.root))
        };
        if let Some((other, _)) = all.iter().find(nested) {
            let shown = posix.root.display();
            problems.add(
                &root,
                format!(
                    "`{shown}` is the folder of exports[{other}].store.root, in it or above it; \
                     two stores would write the same files without coordination, so export the \
                     upper one alone"
                ),
            );
        }
        if let Some(state) = &config.state_directory
            && state.starts_with(&posix.root)
        {
            let shown = posix.root.display();
            problems.add(
                &root,
                format!(
                    "state_directory ({}) is in `{shown}`, where clients could read the secret \
                     of file handles; keep it elsewhere",
                    state.display()
                ),
            );
        }
        if let Some(message) = access::within_state(&posix.root, config)
            && config.state_directory.as_ref() != Some(&posix.root)
        {
            problems.add(&root, message);
        }
        limits(problems, &path.key("limits"), &posix.limits);
    }
}

fn limits(problems: &mut Problems, path: &KeyPath, limits: &StoreLimits) {
    if !(OPEN_FILES_MIN..=OPEN_FILES_MAX).contains(&limits.open_files) {
        let message = format!(
            "{} is out of range; accepted are {OPEN_FILES_MIN} to {OPEN_FILES_MAX}",
            limits.open_files
        );
        problems.add(&path.key("open_files"), message);
    }
    problems.within(&path.key("threads"), limits.threads, THREADS_MAX);
    problems.within(&path.key("queue"), limits.queue, QUEUE_MAX);
    problems.within(&path.key("operations"), limits.operations, OPERATIONS_MAX);
    let dirty = limits.dirty;
    if !(DIRTY_MIN..=DIRTY_MAX).contains(&dirty) {
        let message = format!("{dirty} is out of range; accepted are {DIRTY_MIN} to {DIRTY_MAX}");
        problems.add(&path.key("dirty"), message);
    }
}

/// Exports that are folders, with their indices.
pub(super) fn folders(config: &Config) -> Vec<(usize, &Posix)> {
    let all = config.exports.iter().enumerate();
    all.filter_map(|(index, export)| match &export.store {
        Store::Posix(posix) => Some((index, posix)),
        Store::Memory { .. } | Store::Ceph(_) => None,
    })
    .collect()
}

/// A normalized path: equal folders compare equal, and nesting is visible.
fn plain(root: &Path) -> Result<(), String> {
    let dots = root.components().any(|part| part == Component::ParentDir);
    if dots {
        let shown = root.display();
        return Err(format!("`{shown}` has `..`; write it without"));
    }
    Ok(())
}
