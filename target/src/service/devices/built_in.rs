//! RDMA devices by the reactor's provider `verbs`.

use std::io;
use std::sync::Arc;

use millrace_admin::config::{Config, Fabric, Switch};
use millrace_mempool::Registry;
use millrace_reactor::fabric::AnyProvider;
use millrace_reactor::fabric::verbs::{
    self, DeviceCounters, DeviceReport, Verbs, VerbsConfig, survey,
};

use super::{access, text};
use crate::service::plan::ProviderCore;
use crate::service::providers::ProviderKindCounters;

/// The devices of the process.
#[derive(Clone, Debug)]
pub struct Devices(verbs::Devices);

impl Devices {
    /// Opens all devices, and registers all memory with them.
    ///
    /// # Errors
    /// There are none, or they cannot be used.
    pub fn open(registry: &Registry) -> Result<Self, String> {
        access::check()?;
        let devices = verbs::Devices::open(registry).map_err(|error| error.to_string())?;
        for device in devices.report() {
            text::log(&device);
        }
        Ok(Self(devices))
    }

    /// The counters of each device, including removed ones.
    pub fn counters(&self) -> Vec<Arc<DeviceCounters>> {
        self.0.counters()
    }

    /// The current devices.
    pub fn report(&self) -> Vec<DeviceReport> {
        self.0.report()
    }
}

/// The provider of a listener on devices, on this reactor.
///
/// # Errors
/// The connection manager cannot be reached.
pub fn provider(
    devices: &Devices,
    fabric: &Fabric,
    provider_core: ProviderCore,
) -> io::Result<(AnyProvider, ProviderKindCounters)> {
    let provider = Verbs::new(
        &devices.0,
        VerbsConfig {
            shared_receives: fabric.shared_receives.is_some_and(Switch::is_on),
            core: provider_core.core,
            completion_vector: provider_core.index,
            ..VerbsConfig::default()
        },
    )?;
    let counters = ProviderKindCounters::Verbs(provider.counters());
    Ok((AnyProvider::Verbs(Box::new(provider)), counters))
}

/// Checks whether devices can be used.
///
/// # Errors
/// There are none, or they cannot be used.
pub fn look() -> Result<(), String> {
    access::check()?;
    survey().map(|_| ()).map_err(|error| error.to_string())
}

/// The devices of this machine as text, and their use by the listeners of a configuration.
///
/// # Errors
/// There are none, or they cannot be used.
pub fn describe(config: Option<&Config>) -> Result<String, String> {
    access::check()?;
    let devices = survey().map_err(|error| error.to_string())?;
    let place = |address| match verbs::device_at(address) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "the RDMA connection manager cannot be queried");
            None
        }
    };
    Ok(text::describe(&devices, config, place))
}
