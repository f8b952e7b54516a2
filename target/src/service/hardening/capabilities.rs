//! Capabilities that nothing of the configuration needs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use millrace_admin::config::Config;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use super::{may_serve_folders, places};

/// Kept wherever it is held: ports below 1024, which a listener may be given while the server runs,
/// and memory that is locked or registered with devices beyond RLIMIT_MEMLOCK.
const ALWAYS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::IPC_LOCK);

/// What acting as clients' users takes, and as their root, and file handles that outlive the
/// process.
const FOR_FOLDERS: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Kept for folders wherever it is held, but not by another user: device nodes that clients' root
/// makes, and blocks that file systems reserve.
const FOR_CLIENTS_ROOT: CapabilitySet = CapabilitySet::MKNOD.union(CapabilitySet::SYS_RESOURCE);

/// What a server that root starts keeps when it goes on as another user (`--user`).
#[must_use]
pub fn kept_by_user(config: &Config) -> CapabilitySet {
    match may_serve_folders(config) {
        true => CapabilitySet::NET_BIND_SERVICE | FOR_FOLDERS,
        false => CapabilitySet::NET_BIND_SERVICE,
    }
}

/// Drops what is not needed. Says what is left.
///
/// # Errors
/// The kernel refuses.
pub fn reduce(config: &Config, file: &Path) -> Result<String, String> {
    keep_only(needed(config, file)).map_err(|error| error.to_string())
}

/// Drops these alone.
pub fn drop_some(some: CapabilitySet) -> rustix::io::Result<()> {
    let own = capabilities(None)?;
    keep_only(own.permitted - some).map(drop)
}

fn needed(config: &Config, file: &Path) -> CapabilitySet {
    let mut needed = ALWAYS;
    if may_serve_folders(config) {
        needed |= FOR_FOLDERS | FOR_CLIENTS_ROOT;
    }
    // Root without this right reads its own files and those that all may read. Others that are read
    // again later would be lost.
    let user = geteuid();
    let foreign = |path: &Path| fs::metadata(path).is_ok_and(|of| of.uid() != user.as_raw());
    if user.is_root() && places::own(config, file).any(|place| foreign(&place.path)) {
        needed |= CapabilitySet::DAC_OVERRIDE;
    }
    needed
}

fn keep_only(kept: CapabilitySet) -> rustix::io::Result<String> {
    let own = capabilities(None)?;
    let sets = CapabilitySets {
        effective: own.effective & kept,
        permitted: own.permitted & kept,
        inheritable: own.inheritable & kept,
    };
    // What has left the bounding set cannot be won back by any program. Without the right to that
    // (CAP_SETPCAP) there is nothing to win back by, once no program has new privileges.
    let mut left = CapabilitySet::empty();
    for one in (CapabilitySet::all() - kept).iter() {
        // Older kernels do not have every capability.
        if capability_is_in_bounding_set(one).unwrap_or(false) {
            match remove_capability_from_bounding_set(one) {
                Ok(()) => {}
                Err(Errno::PERM) => left |= one,
                Err(error) => return Err(error),
            }
        }
    }
    // Some sandboxes forbid the call.
    if sets != own {
        set_capabilities(None, sets)?;
    }
    let bounding = match left.is_empty() {
        true => "",
        false => "; the bounding set cannot be reduced without CAP_SETPCAP",
    };
    Ok(format!("left {}{bounding}", names(sets.permitted)))
}

fn names(set: CapabilitySet) -> String {
    let names: Vec<_> = set.iter_names().map(|(name, _)| name).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_admin::config;

    #[test]
    fn folders_keep_what_acting_as_others_takes_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("millraced.yaml");
        let mut config = Config::default();
        assert_eq!(needed(&config, &file), ALWAYS);
        assert_eq!(kept_by_user(&config), CapabilitySet::NET_BIND_SERVICE);
        let folders = FOR_FOLDERS | FOR_CLIENTS_ROOT;
        config.admin.exportable_roots = vec!["/srv".into()];
        assert_eq!(needed(&config, &file), ALWAYS | folders);
        let by_user = CapabilitySet::NET_BIND_SERVICE | FOR_FOLDERS;
        assert_eq!(kept_by_user(&config), by_user);
        let text = "exports: [{ path: /data, store: { kind: posix, root: /srv } }]";
        let config = config::parse(text, "test").unwrap();
        assert_eq!(needed(&config, &file), ALWAYS | folders);
        assert_eq!(kept_by_user(&config), by_user);
        assert!(!needed(&config, &file).contains(CapabilitySet::SYS_ADMIN));
    }

    #[test]
    fn sets_are_told_by_name() {
        assert_eq!(names(CapabilitySet::empty()), "none");
        assert_eq!(names(ALWAYS), "NET_BIND_SERVICE, IPC_LOCK");
    }
}
