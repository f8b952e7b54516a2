//! Access to the management plane: reading, names, and folders that may be exported through it.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::Problems;
use super::{Config, KeyPath};

const HOSTS_MAX: usize = 64;
const ROOTS_MAX: usize = 256;
/// The longest path of a Unix socket (unix(7)), with space for the temporary suffix.
const SOCKET_MAX: usize = 100;

/// Whether reading through the API needs the token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReadToken {
    /// It does not.
    #[default]
    None,
    /// It does, except for `/healthz`, `/readyz` and the dashboard's page, which contains no data.
    Required,
}

/// The rules of these keys.
pub(super) fn check(problems: &mut Problems, path: &KeyPath, config: &Config) {
    let admin = &config.admin;
    let hosts = path.key("hosts");
    if admin.hosts.len() > HOSTS_MAX {
        let count = admin.hosts.len();
        let message = format!("{count} names; at most {HOSTS_MAX} are accepted");
        problems.add(&hosts, message);
    }
    for (index, host) in admin.hosts.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        let address = host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_err();
        if host.is_empty() || !host.chars().all(plain) || address {
            let message = format!(
                "`{}` is no name of a host; write it without scheme, port or path, such as \
                 storage.example.net",
                host.escape_debug()
            );
            problems.add(&hosts.index(index), message);
        }
    }
    if let Some(socket) = &admin.socket {
        let path = path.key("socket");
        problems.absolute(&path, socket);
        let length = socket.as_os_str().len();
        if length > SOCKET_MAX {
            let message = format!("{length} bytes; a socket's path may have {SOCKET_MAX}");
            problems.add(&path, message);
        }
    }
    let roots = path.key("exportable_roots");
    if admin.exportable_roots.len() > ROOTS_MAX {
        let count = admin.exportable_roots.len();
        let message = format!("{count} folders; at most {ROOTS_MAX} are accepted");
        problems.add(&roots, message);
    }
    for (index, root) in admin.exportable_roots.iter().enumerate() {
        let path = roots.index(index);
        problems.absolute(&path, root);
        if root.components().any(|part| part == Component::ParentDir) {
            problems.add(&path, "write it without `..`");
        }
        if let Some(message) = within_state(root, config) {
            problems.add(&path, message);
        }
    }
}

/// The error for a folder to be exported, if it is the state directory or in it.
pub(super) fn within_state(root: &Path, config: &Config) -> Option<String> {
    let state = config.state_directory.as_deref()?;
    root.starts_with(state).then(|| {
        format!(
            "`{}` is in state_directory ({}), where clients could read the secret of file \
             handles; keep it elsewhere",
            root.display(),
            state.display()
        )
    })
}
