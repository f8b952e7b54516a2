//! RDMA devices in the service: whether this program supports them, the existing ones, and the
//! providers on them.
//!
//! A program built without the cargo feature `verbs` supports no devices: the type `Devices` then
//! has no values, and code that needs one is unreachable.

#[cfg(feature = "verbs")]
mod access;
#[cfg(feature = "verbs")]
mod built_in;
#[cfg(not(feature = "verbs"))]
mod left_out;
#[cfg(feature = "verbs")]
mod text;

use std::io;
use std::sync::{Arc, OnceLock};

use millrace_admin::config::{Config, ConfigProblem, Fabric, KeyPath, Provider};
use millrace_mempool::Registry;

#[cfg(feature = "verbs")]
use access::memory_note;
#[cfg(feature = "verbs")]
pub(super) use built_in::{Devices, provider};
#[cfg(feature = "verbs")]
pub use built_in::{describe, look};
#[cfg(not(feature = "verbs"))]
use left_out::memory_note;
#[cfg(not(feature = "verbs"))]
pub(super) use left_out::{Devices, provider};
#[cfg(not(feature = "verbs"))]
pub use left_out::{describe, look};

/// Whether this program can use RDMA devices.
pub const BUILT_IN: bool = cfg!(feature = "verbs");

/// The message for listeners on devices in a program without support.
pub const LEFT_OUT: &str = "this millraced is built without RDMA devices; build it with `cargo \
    build --features verbs` (on Debian this takes libibverbs-dev librdmacm-dev libclang1-14 \
    libclang-common-14-dev pkg-config), or use provider iwarp, which needs no device";

/// The indices of `provider: verbs`, in the order of the configuration.
fn listeners(config: &Config) -> impl Iterator<Item = (KeyPath, &Fabric)> {
    let fabrics = config.fabric.iter().enumerate();
    let verbs = fabrics.filter(|(_, fabric)| fabric.provider == Provider::Verbs);
    verbs.map(|(index, fabric)| (KeyPath::root().key("fabric").index(index), fabric))
}

/// Whether any listener is on RDMA devices.
#[must_use]
pub fn are_asked_for(config: &Config) -> bool {
    listeners(config).next().is_some()
}

/// Problems that no restart of this program can solve: every listener on devices, without support
/// for them.
#[must_use]
pub fn unserved(config: &Config) -> Vec<ConfigProblem> {
    if BUILT_IN {
        return Vec::new();
    }
    let paths = listeners(config).map(|(path, _)| path.key("provider"));
    paths
        .map(|path| ConfigProblem::new(path, LEFT_OUT))
        .collect()
}

/// The problem of the first listener on devices, if they cannot be used.
#[must_use]
pub fn unusable(config: &Config, reason: &str) -> Option<ConfigProblem> {
    let (path, _) = listeners(config).next()?;
    Some(ConfigProblem::new(path.key("provider"), reason))
}

/// Why an address cannot be used, with advice.
pub(super) fn listen_error(fabric: &Fabric, error: &io::Error) -> String {
    let no_device = matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::NotFound
    ) || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error());
    match fabric.provider {
        Provider::Verbs if no_device => format!(
            "{error}; no RDMA device has this address (`millraced devices` lists them; 0.0.0.0 \
             stands for all devices)"
        ),
        _ => error.to_string(),
    }
}

/// Why devices cannot have the memory of a configuration, if so.
#[must_use]
pub fn note(config: &Config) -> Option<String> {
    let (path, _) = listeners(config).next()?;
    memory_note(config).map(|note| format!("{path}.provider: {note}"))
}

/// Why devices cannot be used by reactors that have acted as callers.
pub(super) const LATE: &str = "folders are served in this process, whose reactors have acted as \
    users and cannot use RDMA devices any more; restart millraced with this listener";

/// The devices of the process, from their first use by a listener until it ends: registrations are
/// released by threads that may block, and a reactor that drops its listener may not.
///
/// The kernel takes commands for a device only from threads with the very credentials that opened
/// it (`ib_safe_file_access`). A thread that has taken on another identity and its own again has
/// new ones, so reactors must not, once there are devices.
#[derive(Clone, Default)]
pub(super) struct OpenedDevices(Arc<OnceLock<Devices>>);

impl OpenedDevices {
    /// Those that are open.
    pub fn get(&self) -> Option<&Devices> {
        self.0.get()
    }

    /// Opens them, if a listener of the configuration is on devices and they are not open yet.
    /// Registers all memory, which takes time.
    ///
    /// # Errors
    /// There are none, or they cannot be used: a problem of the first such listener.
    pub fn open_for(&self, config: &Config, registry: &Registry) -> Result<(), ConfigProblem> {
        let Some((path, _)) = listeners(config).next() else {
            return Ok(());
        };
        if self.0.get().is_none() {
            let devices = Devices::open(registry);
            let devices = devices.map_err(|why| ConfigProblem::new(path.key("provider"), why))?;
            // Two concurrent callers both have devices; one set is enough.
            let _ = self.0.set(devices);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(providers: &[Provider]) -> Config {
        let fabric = |&provider: &Provider| Fabric {
            provider,
            ..Fabric::default()
        };
        Config {
            fabric: providers.iter().map(fabric).collect(),
            ..Config::default()
        }
    }

    #[test]
    fn a_program_without_devices_says_so_of_each_listener_on_them() {
        let config = config(&[Provider::Verbs, Provider::Iwarp, Provider::Verbs]);
        let problems = unserved(&config);
        let paths: Vec<_> = problems
            .iter()
            .map(|problem| problem.path.to_string())
            .collect();
        let expected: &[&str] = match BUILT_IN {
            true => &[],
            false => &["fabric[0].provider", "fabric[2].provider"],
        };
        assert_eq!(paths, expected);
        assert!(
            problems
                .iter()
                .all(|problem| problem.message.contains("--features verbs"))
        );
    }

    #[test]
    fn devices_that_cannot_be_used_are_a_problem_of_the_first_listener_on_them() {
        let config = config(&[Provider::Iwarp, Provider::Verbs, Provider::Verbs]);
        assert!(are_asked_for(&config));
        let problem = unusable(&config, "there is none").expect("a listener needs them");
        assert_eq!(problem.path.to_string(), "fabric[1].provider");
        assert_eq!(unusable(&Config::default(), "there is none"), None);
        assert!(!are_asked_for(&Config::default()));
    }

    #[test]
    fn an_address_that_no_device_has_is_told_as_that() {
        let fabric = config(&[Provider::Verbs]).fabric.remove(0);
        let no_device = io::Error::from(rustix::io::Errno::NODEV);
        let told = listen_error(&fabric, &no_device);
        assert!(told.contains("no RDMA device has this address"), "{told}");
        let in_use = io::Error::from(rustix::io::Errno::ADDRINUSE);
        assert_eq!(listen_error(&fabric, &in_use), in_use.to_string());
        let told = listen_error(&Fabric::default(), &no_device);
        assert_eq!(told, no_device.to_string());
    }
}
