//! NFS version 4.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema::DurationText;
use super::units::duration;
use super::validate::Problems;
use super::{KeyPath, Switch};

/// The minor versions that can be served.
const MINOR_VERSIONS: [u32; 2] = [1, 2];
/// Bounds of the lease: shorter ones burden clients, longer ones keep locks of dead clients.
const LEASE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3600)];
/// Longest courtesy.
const COURTESY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

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
    /// How long opens and locks of a silent client are kept beyond its lease while nobody else wants
    /// them.
    #[serde(with = "duration")]
    #[schema(value_type = DurationText)]
    pub courtesy: Duration,
    /// Whether clients get delegations where all changes of files are known to the service.
    pub delegations: Delegations,
}

/// Whether clients get delegations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Delegations {
    /// Where they are useful and safe.
    #[default]
    Auto,
    /// Never.
    Off,
}

impl Default for Nfs4 {
    fn default() -> Self {
        Self {
            minor_versions: MINOR_VERSIONS.to_vec(),
            lease: Duration::from_secs(90),
            delegations: Delegations::Auto,
            courtesy: Duration::from_secs(24 * 3600),
        }
    }
}

/// Adds what is wrong with the section.
pub(super) fn check(problems: &mut Problems, path: &KeyPath, nfs4: &Nfs4, nfs3: Switch) {
    let versions = path.key("minor_versions");
    if nfs4.minor_versions.is_empty() && !nfs3.is_on() {
        problems.add(&versions, "no version of NFS is served, as nfs3 is off");
    }
    for (index, version) in nfs4.minor_versions.iter().enumerate() {
        if !MINOR_VERSIONS.contains(version) {
            let message = format!("minor version {version} is not served; accepted are 1 and 2");
            problems.add(&versions.clone().index(index), message);
        } else if nfs4.minor_versions[..index].contains(version) {
            let message = format!("minor version {version} twice");
            problems.add(&versions.clone().index(index), message);
        }
    }
    problems.duration_within(&path.key("lease"), nfs4.lease, LEASE[0], LEASE[1]);
    let courtesy = path.key("courtesy");
    problems.duration_within(&courtesy, nfs4.courtesy, Duration::ZERO, COURTESY_MAX);
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Nfs4, Switch, validate};
    use std::time::Duration;

    #[test]
    fn a_courtesy_of_more_than_a_week_is_refused() {
        let week = 7 * 24 * 3600;
        for (courtesy, count) in [(0, 0), (week, 0), (week + 1, 1)] {
            let mut config = Config::default();
            config.nfs4.courtesy = Duration::from_secs(courtesy);
            let errors = validate(&config).into_iter();
            let errors = errors.filter(|one| one.path.to_string() == "nfs4.courtesy");
            assert_eq!(errors.count(), count, "{courtesy}");
        }
    }

    #[test]
    fn a_server_without_any_version_of_nfs_is_refused() {
        for (nfs3, minor_versions, count) in [
            (Switch::On, &[][..], 0),
            (Switch::Off, &[2], 0),
            (Switch::Off, &[], 1),
        ] {
            let mut config = Config {
                nfs3,
                ..Config::default()
            };
            config.nfs4.minor_versions = minor_versions.to_vec();
            let errors = validate(&config).into_iter();
            let errors = errors.filter(|one| one.path.to_string() == "nfs4.minor_versions");
            assert_eq!(errors.count(), count, "{nfs3:?} {minor_versions:?}");
        }
    }

    /// Keys with an error, for these minor versions and this lease in seconds.
    fn errors(minor_versions: &[u32], lease: u64) -> Vec<String> {
        let config = Config {
            nfs4: Nfs4 {
                minor_versions: minor_versions.to_vec(),
                lease: Duration::from_secs(lease),
                ..Nfs4::default()
            },
            ..Config::default()
        };
        let errors = validate(&config)
            .into_iter()
            .map(|one| one.path.to_string());
        errors.filter(|path| path.starts_with("nfs4")).collect()
    }

    #[test]
    fn unknown_and_repeated_minor_versions_and_extreme_leases_are_refused() {
        for (versions, lease) in [(&[][..], 10), (&[1], 90), (&[2, 1], 3600)] {
            assert!(errors(versions, lease).is_empty(), "{versions:?} {lease}");
        }
        assert_eq!(errors(&[1, 0], 90), ["nfs4.minor_versions[1]"]);
        assert_eq!(errors(&[3], 90), ["nfs4.minor_versions[0]"]);
        assert_eq!(errors(&[2, 2], 90), ["nfs4.minor_versions[1]"]);
        assert_eq!(errors(&[1], 9), ["nfs4.lease"]);
        assert_eq!(errors(&[1], 3601), ["nfs4.lease"]);
    }
}
