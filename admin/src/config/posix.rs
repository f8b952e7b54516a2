//! What is said of a store in a folder of the host.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::Problems;
use super::{ByteSize, Config, KeyPath, Store, access, scalar};

/// The most objects that each reactor may keep open of one store.
const OPEN_FILES_MAX: u32 = 1 << 20;
const THREADS_MAX: u32 = 1024;
const QUEUE_MAX: u32 = 1 << 20;
/// The most entries of a ring (io_uring_setup(2)).
const OPERATIONS_MAX: u32 = 32_768;
/// Less would have every write of the largest size wait for a sync.
const DIRTY_MIN: ByteSize = ByteSize::mib(1);
const DIRTY_MAX: ByteSize = ByteSize::gib(1024);

/// A store in a folder of a file system of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Posix {
    /// The folder.
    #[schema(value_type = String)]
    pub root: PathBuf,
    /// Whether data passes the page cache by.
    #[serde(default)]
    pub direct: DirectIo,
    /// When changes of names and attributes are answered.
    #[serde(default)]
    pub sync: SyncMode,
    /// Whose word is taken on a caller's groups.
    #[serde(default)]
    pub groups: GroupSource,
    /// Whom operations may be done as.
    #[serde(default)]
    pub identity: CallerIdentity,
    /// What clients see of file systems mounted below the folder.
    #[serde(default)]
    pub mounts: MountView,
    /// What the store may take of the process.
    #[serde(default)]
    pub limits: StoreLimits,
}

impl Posix {
    /// A folder with the defaults of everything else.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            direct: DirectIo::default(),
            sync: SyncMode::default(),
            groups: GroupSource::default(),
            identity: CallerIdentity::default(),
            mounts: MountView::default(),
            limits: StoreLimits::default(),
        }
    }

    /// `wanted` with the values of this running store for what cannot change while it is served.
    /// What cannot: the folder, as its files have other handles, and who sees what of it.
    pub(super) fn live_part(&self, wanted: &Self) -> Self {
        Self {
            root: self.root.clone(),
            groups: self.groups,
            mounts: self.mounts,
            ..wanted.clone()
        }
    }
}

/// Whether data passes the page cache by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DirectIo {
    /// Where a transfer is aligned and long enough to gain from it.
    #[default]
    Auto,
    /// Wherever a transfer is aligned.
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

/// Whose word is taken on a caller's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupSource {
    /// The client's, which names sixteen at most.
    #[default]
    Client,
    /// This host's user database.
    Server,
}

/// Whom operations on a folder may be done as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallerIdentity {
    /// The caller alone. A server that lacks the right to act as its callers refuses the export.
    #[default]
    Caller,
    /// The server's own user for all callers, where it lacks the right to act as them.
    Server,
}

/// What clients see of file systems mounted below the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MountView {
    /// The folders that the mounts cover.
    #[default]
    Hide,
    /// What is mounted.
    Cross,
}

/// What a store may take of the process, so that one that hangs harms no other.
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
    /// The most jobs that wait for one of these threads; clients of further ones are asked to come
    /// again.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub queue: u32,
    /// The most reads, writes and syncs of data that each reactor has under way.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 32_768)]
    pub operations: u32,
    /// The most bytes written that are not known to be durable; further writes make some so first.
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

/// Least objects to keep open: a rename alone has five.
const OPEN_FILES_MIN: u32 = 16;

/// The rules of all stores in folders, but what only a look at the host tells.
pub(super) fn check(problems: &mut Problems, exports: &KeyPath, config: &Config) {
    let all = folders(config);
    for (index, posix) in &all {
        let path = exports.index(*index).key("store");
        let root = path.key("root");
        problems.absolute(&root, &posix.root);
        if let Err(message) = plain(&posix.root) {
            problems.add(&root, message);
        }
        // One store's cache of attributes and its order of writes hold for one store alone.
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
                     files served twice would be written by two stores that do not know of each \
                     other, so export the upper one alone"
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

/// Exports that are folders, with their places.
pub(super) fn folders(config: &Config) -> Vec<(usize, &Posix)> {
    let all = config.exports.iter().enumerate();
    all.filter_map(|(index, export)| match &export.store {
        Store::Posix(posix) => Some((index, posix)),
        Store::Memory { .. } => None,
    })
    .collect()
}

/// Equal folders compare equal, and none is within another unseen.
fn plain(root: &Path) -> Result<(), String> {
    let dots = root.components().any(|part| part == Component::ParentDir);
    if dots {
        let shown = root.display();
        return Err(format!("`{shown}` has `..`; write it without"));
    }
    Ok(())
}
