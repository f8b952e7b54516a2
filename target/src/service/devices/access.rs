//! Checks that this process may use the nodes of RDMA devices, and pin memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use millrace_admin::config::{ByteSize, Config, Store};
use millrace_reactor::allowed_cores;
use rustix::fs::Access;
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Where the nodes are.
const FOLDER: &str = "/dev/infiniband";

/// The node of the connection manager, and the prefix of those of devices.
const MANAGER: &str = "rdma_cm";
const DEVICE: &str = "uverbs";

/// Checks access to the existing nodes: without any, the library reports that there is no device.
///
/// # Errors
/// The problem, and its remedy.
pub fn check() -> Result<(), String> {
    check_in(Path::new(FOLDER))
}

fn check_in(folder: &Path) -> Result<(), String> {
    let nodes = nodes(folder);
    for node in &nodes {
        if let Err(error) = rustix::fs::access(node, Access::READ_OK | Access::WRITE_OK) {
            return Err(refused(node, error));
        }
    }
    let devices = nodes.iter().any(|node| is_of_device(node));
    if devices && !nodes.iter().any(|node| node.ends_with(MANAGER)) {
        return Err(format!(
            "there are RDMA devices, but no {}: load the connection manager with `modprobe \
             rdma_ucm`",
            folder.join(MANAGER).display()
        ));
    }
    Ok(())
}

/// Why a node cannot be used by this user.
fn refused(node: &Path, error: rustix::io::Errno) -> String {
    let user = geteuid().as_raw();
    let owner = fs::metadata(node).map_or_else(
        |_| String::new(),
        |node| {
            format!(
                " (it has mode {:04o}, user {} and group {})",
                node.mode() & 0o7777,
                node.uid(),
                node.gid()
            )
        },
    );
    format!(
        "{} cannot be read and written by user {user}{owner}: {error}; permit it by the group or \
         by a udev rule (`KERNEL==\"rdma_cm|uverbs*\", GROUP=\"millrace\", MODE=\"0660\"`)",
        node.display()
    )
}

/// The nodes of devices and of the connection manager, in order.
fn nodes(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut nodes: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    nodes.retain(|node| node.ends_with(MANAGER) || is_of_device(node));
    nodes.sort();
    nodes
}

fn is_of_device(node: &Path) -> bool {
    let name = node.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(DEVICE)
}

/// Why the memory of a configuration cannot be registered, if so: all of it is pinned, for each
/// device, and the system limits pinned memory.
pub fn memory_note(config: &Config) -> Option<String> {
    let limit = getrlimit(Resource::Memlock).current?;
    let free =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if free {
        return None;
    }
    let nodes = nodes(Path::new(FOLDER));
    let devices = nodes
        .iter()
        .filter(|node| is_of_device(node))
        .count()
        .max(1);
    let reactors = config.reactors.cores.resolve(&allowed_cores()).len();
    let each = pinned(config, reactors);
    (each.saturating_mul(devices as u64) > limit).then(|| {
        let (each, limit) = (ByteSize(each), ByteSize(limit));
        format!(
            "all buffers and exports in memory ({each}) are pinned for each of {devices} RDMA \
             devices, and this process may pin {limit} (`ulimit -l unlimited`, \
             LimitMEMLOCK=infinity of a unit, --ulimit memlock=-1 of a container)"
        )
    })
}

/// Bytes pinned by devices.
fn pinned(config: &Config, reactors: usize) -> u64 {
    let pools = (config.mempool.size.bytes()).saturating_mul(reactors as u64);
    let stores = config.exports.iter().map(|export| match &export.store {
        Store::Memory { size, .. } => size.bytes(),
        Store::Posix(_) | Store::Ceph(_) => 0,
    });
    stores.fold(pools, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn memory_that_is_pinned_is_that_of_buffers_and_of_exports() {
        let text = "mempool: { size: 64MiB }\n\
                    exports:\n- { path: /a, store: { kind: memory, size: 1GiB } }\n\
                    - { path: /b, store: { kind: memory, size: 8MiB } }\n";
        let config = millrace_admin::config::parse(text, "test").expect("good");
        assert_eq!(pinned(&config, 4), (4 * 64 + 1024 + 8) << 20);
    }

    #[test]
    fn no_nodes_are_no_fault_and_a_node_that_is_closed_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(check_in(&folder.path().join("none")), Ok(()));
        assert_eq!(check_in(folder.path()), Ok(()));
        let node = folder.path().join("uverbs0");
        fs::write(&node, "").expect("written");
        fs::set_permissions(&node, fs::Permissions::from_mode(0o400)).expect("changed");
        let refused = refused(&node, rustix::io::Errno::ACCESS);
        for words in ["uverbs0", "mode 0400", "MODE=\"0660\""] {
            assert!(refused.contains(words), "{words} in {refused}");
        }
        // Root may use it nevertheless.
        let told = check_in(folder.path()).expect_err("there is no connection manager, at least");
        match geteuid().is_root() {
            true => assert!(told.contains("modprobe rdma_ucm"), "{told}"),
            false => assert!(told.contains("uverbs0"), "{told}"),
        }
        fs::remove_file(&node).expect("removed");
        fs::write(folder.path().join("umad0"), "").expect("written");
        assert_eq!(
            check_in(folder.path()),
            Ok(()),
            "what is not used may be closed"
        );
    }
}
