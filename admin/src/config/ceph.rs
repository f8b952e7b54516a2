//! The configuration of a store in a CephFS file system.

use std::path::{Component, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::posix::{OPEN_FILES_MAX, OPEN_FILES_MIN, QUEUE_MAX, THREADS_MAX};
use super::validate::Problems;
use super::{ByteSize, Config, KeyPath, Store, SyncMode, scalar};

/// The configuration file of clusters, unless another one is named.
const CONF: &str = "/etc/ceph/ceph.conf";

/// The bounds of a cache that is used at all.
const CACHE_MIN: ByteSize = ByteSize::mib(16);
const CACHE_MAX: ByteSize = ByteSize::gib(1024);

/// A store in a directory of a CephFS file system. Other servers may serve it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ceph {
    /// The configuration file of the cluster.
    #[serde(default = "conf")]
    #[schema(value_type = String)]
    pub conf: PathBuf,
    /// The cluster's user, without `client.`.
    pub user: String,
    /// The file with the user's key; by default, where the configuration file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub keyring: Option<PathBuf>,
    /// The name of the file system; by default the cluster's only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub file_system: Option<String>,
    /// The directory in it to serve.
    #[serde(default = "root")]
    #[schema(value_type = String)]
    pub root: PathBuf,
    /// When changes of names and attributes are answered.
    #[serde(default)]
    pub sync: SyncMode,
    /// Whether all changes are refused.
    #[serde(default)]
    pub read_only: bool,
    /// Whether clients of NFS version 4 get delegations for reading. Whoever changes such a file
    /// through another server waits until its clients have returned them, or ten seconds.
    #[serde(default)]
    pub delegations: bool,
    /// Limits of the store's resources.
    #[serde(default)]
    pub limits: CephLimits,
}

/// Limits of a store's resources, so that a cluster that hangs does not affect others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CephLimits {
    /// The most objects that the store keeps known, and the most files that it keeps open.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 16, maximum = 1_048_576)]
    pub open_files: u32,
    /// The most threads for names and attributes, and the most for data.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1024)]
    pub threads: u32,
    /// The most jobs that wait for one of either kind of threads; beyond, clients are asked to
    /// retry.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub queue: u32,
    /// The size of the library's cache of file data; 0 for none.
    pub cache: ByteSize,
}

impl Default for CephLimits {
    fn default() -> Self {
        Self {
            open_files: 4096,
            threads: 16,
            queue: 1024,
            cache: ByteSize(0),
        }
    }
}

pub(super) fn conf() -> PathBuf {
    PathBuf::from(CONF)
}

pub(super) fn root() -> PathBuf {
    PathBuf::from("/")
}

/// The rules of all stores in CephFS, except those that need access to the host.
pub(super) fn check(problems: &mut Problems, exports: &KeyPath, config: &Config) {
    let all = stores(config);
    for (index, ceph) in &all {
        let path = exports.index(*index).key("store");
        problems.absolute(&path.key("conf"), &ceph.conf);
        if let Some(keyring) = &ceph.keyring {
            problems.absolute(&path.key("keyring"), keyring);
        }
        let root = path.key("root");
        problems.absolute(&root, &ceph.root);
        let shown = ceph.root.display();
        if (ceph.root.components()).any(|part| part == Component::ParentDir) {
            problems.add(&root, format!("`{shown}` has `..`; write it without"));
        }
        let words = [
            ("user", Some(&ceph.user)),
            ("file_system", ceph.file_system.as_ref()),
        ];
        for (key, word) in words {
            let is_odd = |word: &&String| word.is_empty() || word.contains(char::is_whitespace);
            if let Some(word) = word.filter(is_odd) {
                problems.add(&path.key(key), format!("`{word}` is no name"));
            }
        }
        if let Some(rest) = ceph.user.strip_prefix("client.") {
            let message = format!("write it without `client.`: {rest}");
            problems.add(&path.key("user"), message);
        }
        // Their squash and clients would guard the same files, and their caches lie beside each
        // other in one process.
        let same = |other: &&(usize, &Ceph)| {
            let other = (other.0, &other.1.conf, &other.1.file_system, &other.1.root);
            other.0 < *index
                && (other.1, other.2) == (&ceph.conf, &ceph.file_system)
                && (ceph.root.starts_with(other.3) || other.3.starts_with(&ceph.root))
        };
        if let Some((other, _)) = all.iter().find(same) {
            let message = format!(
                "`{shown}` is the directory of exports[{other}].store.root, in it or above it; \
                 export the upper one alone"
            );
            problems.add(&root, message);
        }
        limits(problems, &path.key("limits"), &ceph.limits);
    }
}

fn limits(problems: &mut Problems, path: &KeyPath, limits: &CephLimits) {
    if !(OPEN_FILES_MIN..=OPEN_FILES_MAX).contains(&limits.open_files) {
        let message = format!(
            "{} is out of range; accepted are {OPEN_FILES_MIN} to {OPEN_FILES_MAX}",
            limits.open_files
        );
        problems.add(&path.key("open_files"), message);
    }
    problems.within(&path.key("threads"), limits.threads, THREADS_MAX);
    problems.within(&path.key("queue"), limits.queue, QUEUE_MAX);
    let cache = limits.cache;
    if cache != ByteSize(0) && !(CACHE_MIN..=CACHE_MAX).contains(&cache) {
        let message =
            format!("{cache} is out of range; accepted are 0 and {CACHE_MIN} to {CACHE_MAX}");
        problems.add(&path.key("cache"), message);
    }
}

/// Exports that are in CephFS, with their indices.
pub(super) fn stores(config: &Config) -> Vec<(usize, &Ceph)> {
    let all = config.exports.iter().enumerate();
    all.filter_map(|(index, export)| match &export.store {
        Store::Ceph(ceph) => Some((index, ceph)),
        Store::Memory { .. } | Store::Posix(_) => None,
    })
    .collect()
}
