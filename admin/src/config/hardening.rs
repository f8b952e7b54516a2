//! Rights that the server drops at start.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::Problems;
use super::{Hardening, KeyPath};

/// Whether a right is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HardeningLevel {
    /// As far as the kernel supports it; the log says what it does not.
    #[serde(alias = "true")]
    On,
    /// No.
    #[serde(alias = "false")]
    Off,
    /// The server does not start if the kernel does not support it.
    Required,
}

impl HardeningLevel {
    /// Whether it is attempted.
    pub fn is_wanted(self) -> bool {
        self != Self::Off
    }
}

/// Adds the errors of the section.
pub(super) fn check(problems: &mut Problems, path: &KeyPath, hardening: &Hardening) {
    let others = [
        ("seccomp", hardening.seccomp),
        ("landlock", hardening.landlock),
    ];
    let needing = others.iter().find(|(_, level)| level.is_wanted());
    if let (false, Some((name, _))) = (hardening.no_new_privileges.is_wanted(), needing) {
        problems.add(
            &path.key("no_new_privileges"),
            format!(
                "off is not possible with hardening.{name}, which needs it; switch \
                 hardening.{name} off, too"
            ),
        );
    }
}
