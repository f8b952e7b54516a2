//! Servers of the same files that act as one.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::Problems;
use super::{Config, KeyPath, Switch};

/// The longest name of a gateway.
const NAME_MAX: usize = 64;

/// This server as one of several gateways to the same files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Gateways {
    /// The name of this one. The others have other names.
    #[schema(min_length = 1, max_length = 64, example = "gateway-a")]
    pub name: String,
    /// A folder that all gateways share, in a file system of the cluster that every host has mounted.
    /// They keep the records of their clients there.
    #[schema(value_type = String)]
    pub directory: PathBuf,
    /// Whether gateways tell each other what opens access and deny to others. Each open of a shared
    /// file then takes two requests or more to that file system. Without it, opens that deny something
    /// are refused. All gateways need the same setting. By default `off`.
    #[serde(default = "off")]
    pub share_reservations: Switch,
    /// Whether gateways record changes of names, and their replies, where the others can read them.
    /// A gateway that takes the place of another one then answers a repeated call with the recorded
    /// reply and does not execute it again. Each change waits for a write to that file system. All
    /// gateways need the same setting. By default `off`.
    #[serde(default = "off")]
    pub shared_replies: Switch,
}

impl Gateways {
    /// A gateway of this name, with all else by default.
    #[must_use]
    pub fn new(name: &str, directory: &Path) -> Self {
        Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
            share_reservations: off(),
            shared_replies: off(),
        }
    }
}

fn off() -> Switch {
    Switch::Off
}

/// Whether a gateway can have this name, which is that of a folder, too.
pub fn is_gateway_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_part) && !name.starts_with('-')
}

pub(super) fn check(problems: &mut Problems, root: &KeyPath, config: &Config) {
    let Some(gateways) = &config.gateways else {
        return;
    };
    let path = root.key("gateways");
    if !is_gateway_name(&gateways.name) {
        problems.add(
            &path.key("name"),
            format!(
                "`{}` is no name of a gateway; write up to {NAME_MAX} lower-case letters, digits \
                 and hyphens",
                gateways.name.escape_debug()
            ),
        );
    }
    problems.absolute(&path.key("directory"), &gateways.directory);
    if config.handle_secret.is_none() {
        problems.add_at_key(
            &path,
            "gateways need the same `handle_secret`, so that file handles are the same",
        );
    }
    if config.state_directory.is_none() {
        problems.add_at_key(
            &path,
            "a gateway needs a `state_directory` of its own, so that it is known after a restart",
        );
    }
    if config.nfs4.minor_versions.is_empty() {
        problems.add_at_key(
            &path,
            "NFS version 4 is not served, and version 3 has no state that gateways share",
        );
    }
}

pub(super) fn notes(config: &Config) -> Vec<String> {
    let (Some(gateways), Some(state)) = (&config.gateways, &config.state_directory) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    if state.starts_with(&gateways.directory) {
        notes.push(format!(
            "state_directory: {} is in gateways.directory; a disk of this host is faster, and as safe",
            state.display()
        ));
    }
    notes
}
