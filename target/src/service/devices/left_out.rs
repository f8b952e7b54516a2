//! Replacements without the feature `verbs`: no devices.

use std::io;

use millrace_admin::config::{Config, Fabric};
use millrace_mempool::Registry;
use millrace_reactor::fabric::AnyProvider;

use super::LEFT_OUT;
use crate::service::plan::ProviderCore;
use crate::service::providers::ProviderKindCounters;

/// The devices of the process, of which there are none.
#[derive(Clone, Debug)]
pub enum Devices {}

impl Devices {
    /// # Errors
    /// Always.
    pub fn open(_registry: &Registry) -> Result<Self, String> {
        Err(LEFT_OUT.to_owned())
    }
}

/// No memory is pinned.
pub fn memory_note(_config: &Config) -> Option<String> {
    None
}

/// Never called, as there are no devices.
pub fn provider(
    devices: &Devices,
    _fabric: &Fabric,
    _provider_core: ProviderCore,
) -> io::Result<(AnyProvider, ProviderKindCounters)> {
    match *devices {}
}

/// Checks whether devices can be used.
///
/// # Errors
/// Always: they cannot.
pub fn look() -> Result<(), String> {
    Err(LEFT_OUT.to_owned())
}

/// The devices of this machine as text, and their use by the listeners of a configuration.
///
/// # Errors
/// Always: this program has no access to them.
pub fn describe(_config: Option<&Config>) -> Result<String, String> {
    Err(LEFT_OUT.to_owned())
}
