//! The configuration of a volume.

pub use super::sys::{MountConfig, MountError};
pub use crate::posix::helpers::HelperLimits;
pub use crate::posix::volume::Sync;

/// The longest name.
pub(super) const NAME_MAX: usize = 255;

/// The parts of the library that log.
const LOGGING_PARTS: [&str; 10] = [
    "auth",
    "client",
    "finisher",
    "monc",
    "ms",
    "objectcacher",
    "objecter",
    "rados",
    "throttle",
    "timer",
];

/// Limits of the resources of one volume, so that a cluster that hangs does not affect others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CephLimits {
    /// The most objects that the volume keeps known, and the most that it keeps open.
    pub open_files: usize,
    /// Threads for names and attributes, and as many again for data; and the jobs that wait for
    /// one of them.
    pub helpers: HelperLimits,
    /// Bytes of the library's cache of file data; 0 for none.
    pub cache: u64,
}

impl Default for CephLimits {
    fn default() -> Self {
        Self {
            open_files: 4096,
            helpers: HelperLimits {
                threads: 16,
                queue: 1024,
            },
            cache: 0,
        }
    }
}

/// The configuration of a volume.
#[derive(Clone, Debug)]
pub struct CephConfig {
    /// For logs and names of threads.
    pub name: String,
    /// What to mount.
    pub mount: MountConfig,
    /// Whether a change of names or attributes is durable when it is answered.
    pub sync: Sync,
    /// Whether all changes are refused.
    pub read_only: bool,
    /// Whether there are leases of files.
    pub leases: bool,
    /// Limits.
    pub limits: CephLimits,
}

impl CephConfig {
    /// The mount with the options of the library that this store depends on.
    #[must_use]
    pub fn library_mount(&self) -> MountConfig {
        let mut mount = self.mount.clone();
        let cached = self.limits.cache > 0;
        let cache = self.limits.cache.to_string();
        let half = (self.limits.cache / 2).to_string();
        let mut set = |name: &str, value: &str| {
            mount.options.push((name.to_owned(), value.to_owned()));
        };
        // Rights are those of the caller of each call, with access control lists.
        set("client_permissions", "true");
        set("fuse_default_permissions", "false");
        set("client_acl_type", "posix_acl");
        set("client_snapdir", ".snap");
        set("client_oc", if cached { "true" } else { "false" });
        if cached {
            set("client_oc_size", &cache);
            set("client_oc_max_dirty", &half);
            set("client_oc_target_dirty", &half);
        }
        // Nothing is written beside this process's own log.
        set("log_file", "");
        set("log_to_stderr", "false");
        set("err_to_stderr", "false");
        set("admin_socket", "");
        // The library would keep its last messages for such a log all the same, and wake a thread
        // for each.
        for part in LOGGING_PARTS {
            set(&format!("debug_{part}"), "0/0");
        }
        mount
    }
}
