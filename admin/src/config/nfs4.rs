//! NFS version 4.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::KeyPath;
use super::schema::DurationText;
use super::units::duration;
use super::validate::Problems;

/// The minor versions that there are.
const MINOR_VERSIONS: [u32; 2] = [1, 2];
/// Bounds of the lease: shorter ones burden clients, longer ones keep locks of dead clients.
const LEASE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3600)];

/// NFS version 4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Nfs4 {
    /// Minor versions answered: none, or one or both of 1 and 2.
    pub minor_versions: Vec<u32>,
    /// How long a client may be silent before others may take its opens and locks.
    #[serde(with = "duration")]
    #[schema(value_type = DurationText)]
    pub lease: Duration,
}

impl Default for Nfs4 {
    fn default() -> Self {
        Self {
            minor_versions: Vec::new(),
            lease: Duration::from_secs(90),
        }
    }
}

/// Adds what is wrong with the section.
pub(super) fn check(problems: &mut Problems, path: &KeyPath, nfs4: &Nfs4) {
    let versions = path.key("minor_versions");
    for (index, version) in nfs4.minor_versions.iter().enumerate() {
        if !MINOR_VERSIONS.contains(version) {
            let message = format!("there is no minor version {version}; accepted are 1 and 2");
            problems.add(&versions.clone().index(index), message);
        } else if nfs4.minor_versions[..index].contains(version) {
            let message = format!("minor version {version} twice");
            problems.add(&versions.clone().index(index), message);
        }
    }
    problems.duration_within(&path.key("lease"), nfs4.lease, LEASE[0], LEASE[1]);
}
