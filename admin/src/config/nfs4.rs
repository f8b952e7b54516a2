//! NFS version 4.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema::DurationText;
use super::units::duration;
use super::validate::Problems;
use super::{Config, KeyPath, Switch};

/// The minor versions that can be served.
const MINOR_VERSIONS: [u32; 2] = [1, 2];
/// Bounds of the lease: shorter ones burden clients, longer ones keep locks of dead clients.
const LEASE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3600)];
/// Longest courtesy.
const COURTESY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest domain, and its longest label (RFC 1035 section 2.3.4).
const DOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;

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
    /// The domain of owners by name, `user@example.org`; by default owners are numbers only.
    #[schema(max_length = 253, example = "example.org")]
    pub domain: String,
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
            domain: String::new(),
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
    if !nfs4.domain.is_empty() && !is_domain(&nfs4.domain) {
        let message = format!(
            "`{}` is no domain name; accepted are names such as example.org, of letters, digits and \
             hyphens",
            nfs4.domain.escape_debug()
        );
        problems.add(&path.key("domain"), message);
    }
}

/// Whether a text is a domain name (RFC 1123 section 2.1).
fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(is_word)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= DOMAIN_MAX && text.split('.').all(is_label)
}

/// Effects of the section that an operator may not expect.
pub(super) fn notes(config: &Config) -> Option<String> {
    let nfs4 = &config.nfs4;
    let mut exports = config.exports.iter();
    let is_secured = exports.any(|export| export.security.iter().any(|one| one.is_kerberos()));
    let is_unnamed = nfs4.domain.is_empty() && !nfs4.minor_versions.is_empty();
    (is_secured && is_unnamed).then(|| {
        "nfs4.domain: not set, so clients with Kerberos cannot set owners, as they send them by name: \
         `chown` there fails with `Invalid argument`. Set it to the domain of the clients: `Domain` of \
         their /etc/idmapd.conf, by default their DNS domain"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Nfs4, Switch, parse, validate};
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
    fn v4_attr_15_only_domain_names_are_domains() {
        let (label, long) = ("a".repeat(63), "a.".repeat(126) + "a");
        for (domain, count) in [
            ("", 0),
            ("localdomain", 0),
            ("its.Domain-2.example", 0),
            (&*label, 0),
            (&*long, 0),
            (&*format!("{label}a"), 1),
            (&*format!("{long}aa"), 1),
            ("example.org.", 1),
            (".example.org", 1),
            ("example..org", 1),
            ("-a.example", 1),
            ("a-.example", 1),
            ("user@example.org", 1),
            ("example org", 1),
            ("example.org\n", 1),
            ("b\u{fc}cher.example", 1),
        ] {
            let mut config = Config::default();
            config.nfs4.domain = domain.to_owned();
            let errors = validate(&config).into_iter();
            let errors = errors.filter(|one| one.path.to_string() == "nfs4.domain");
            assert_eq!(errors.count(), count, "{domain:?}");
        }
    }

    #[test]
    fn v4_attr_15_a_note_names_the_missing_domain_of_kerberos() {
        for (nfs4, security, is_told) in [
            ("{}", "[krb5p]", true),
            ("{}", "[sys, krb5]", true),
            ("{}", "[sys]", false),
            ("{ domain: example.org }", "[krb5p]", false),
            ("{ minor_versions: [] }", "[krb5p]", false),
        ] {
            let text = format!(
                "gss: {{ keytab: /etc/keytab }}\nnfs4: {nfs4}\nexports: [{{ path: /a, store: {{ kind: \
                 memory, size: 1GiB }}, security: {security} }}]\n"
            );
            let notes = parse(&text, "test.yaml").unwrap().notes();
            let mut about = notes
                .iter()
                .filter(|note| note.starts_with("nfs4.domain: "));
            assert_eq!(about.next().is_some(), is_told, "{text}");
            assert_eq!(about.next(), None, "told once");
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
