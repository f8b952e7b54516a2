//! Dropping capabilities that the configuration does not need.

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

/// Kept if held: ports below 1024, which a listener may use later, and memory locked or registered
/// with devices beyond RLIMIT_MEMLOCK.
const ALWAYS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::IPC_LOCK);

/// For acting as clients' users, and as their root, and for lasting file handles.
const FOR_FOLDERS: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Kept for folders if held, but not by another user: device nodes of clients' root, and reserved
/// blocks of file systems.
const FOR_CLIENTS_ROOT: CapabilitySet = CapabilitySet::MKNOD.union(CapabilitySet::SYS_RESOURCE);

/// Capabilities kept by a server started as root that continues as another user (`--user`).
#[must_use]
pub fn kept_by_user(config: &Config) -> CapabilitySet {
    match may_serve_folders(config) {
        true => CapabilitySet::NET_BIND_SERVICE | FOR_FOLDERS,
        false => CapabilitySet::NET_BIND_SERVICE,
    }
}

/// Drops unneeded capabilities. Returns the remaining ones as text.
///
/// # Errors
/// The kernel refuses.
pub fn reduce(config: &Config, file: &Path) -> Result<String, String> {
    keep_only(needed(config, file)).map_err(|error| error.to_string())
}

/// Drops only these.
pub fn drop_some(some: CapabilitySet) -> rustix::io::Result<()> {
    let own = capabilities(None)?;
    keep_only(own.permitted - some).map(drop)
}

fn needed(config: &Config, file: &Path) -> CapabilitySet {
    let mut needed = ALWAYS;
    if may_serve_folders(config) {
        needed |= FOR_FOLDERS | FOR_CLIENTS_ROOT;
    }
    // Without this right, root can read only its own and world-readable files. Other files, which
    // are read again later, would become unreadable.
    let user = geteuid();
    let foreign = |path: &Path| fs::metadata(path).is_ok_and(|of| of.uid() != user.as_raw());
    if user.is_root()
        && places::own(config, file)
            .iter()
            .any(|place| foreign(&place.path))
    {
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
    // No program can regain a capability removed from the bounding set. Without the right to remove
    // it (CAP_SETPCAP) no program can regain it either, once no program gains privileges.
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

    #[test]
    fn root_goes_on_to_read_files_of_others_that_the_configuration_names() {
        if !geteuid().is_root() {
            return millrace_testing::skip!("this takes root");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("millraced.yaml");
        fs::write(&file, "").unwrap();
        let mut config = Config::default();
        assert_eq!(needed(&config, &file), ALWAYS);
        std::os::unix::fs::chown(&file, Some(1), None).unwrap();
        assert_eq!(needed(&config, &file), ALWAYS | CapabilitySet::DAC_OVERRIDE);
        config.admin.exportable_roots = vec!["/srv".into()];
        assert!(needed(&config, &file).contains(FOR_FOLDERS));
    }

    /// Runs a test on a thread of its own, whose capabilities end with it.
    fn on_own_thread(test: fn()) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn some_can_be_dropped_and_the_rest_stays() {
        on_own_thread(|| {
            let before = capabilities(None).unwrap().permitted;
            drop_some(CapabilitySet::SYS_ADMIN).unwrap();
            let after = capabilities(None).unwrap().permitted;
            assert_eq!(after, before - CapabilitySet::SYS_ADMIN);
        });
    }

    #[test]
    fn a_bounding_set_that_cannot_be_reduced_is_told() {
        on_own_thread(|| {
            let mut own = capabilities(None).unwrap();
            own.permitted -= CapabilitySet::SETPCAP;
            own.effective -= CapabilitySet::SETPCAP;
            set_capabilities(None, own).unwrap();
            let told = keep_only(ALWAYS).unwrap();
            assert!(
                told.starts_with("left ") && told.ends_with("without CAP_SETPCAP"),
                "{told}"
            );
            assert_eq!(
                capabilities(None).unwrap().permitted,
                own.permitted & ALWAYS
            );
        });
    }
}
