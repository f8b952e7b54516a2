//! The client's fabric: software iWARP, or the RDMA devices of this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::fabric::Provider;
use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig};

/// The wait on a new connection needed for Linux's siw.
const SETTLE: Duration = Duration::from_millis(100);

/// Memory of this process's clients, in hugepages if available: one registry for all, so that
/// devices know it.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| Registry::new(HugepagePolicy::Auto));

/// The kind of RDMA provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Software iWARP over TCP, which needs no RDMA device.
    #[default]
    Iwarp,
    /// The RDMA devices of this machine: InfiniBand, RoCE or iWARP.
    Verbs,
}

/// The client's fabric.
#[derive(Args, Clone, Debug, Default)]
pub struct Fabric {
    /// The RDMA provider of this program: software iWARP over TCP, which needs no RDMA device, or
    /// the RDMA devices of this machine (InfiniBand, RoCE, iWARP), if built with the feature
    /// `verbs`.
    #[arg(long = "fabric", value_name = "iwarp|verbs", default_value = "iwarp", value_parser = kind)]
    pub kind: Kind,

    /// The address of an RDMA device for the server, with --fabric verbs and a server that this
    /// program starts. `limits` needs two addresses of one device, separated by a comma, one for
    /// each client.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub device_address: Vec<IpAddr>,

    /// Use CRC32c (RFC 5044 section 4.4) over iWARP in both directions, also to servers on this
    /// machine.
    #[arg(long)]
    pub crc: bool,
}

impl Fabric {
    /// The provider's name in millraced's configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Iwarp => "iwarp",
            Kind::Verbs => "verbs",
        }
    }

    /// The address of this number, from 0 on, for a server that this program starts and for its
    /// clients: of the loopback interface or of a device.
    ///
    /// # Errors
    /// If no such address was given.
    pub fn host(&self, number: u8) -> Result<IpAddr> {
        match self.kind {
            Kind::Iwarp => Ok(Ipv4Addr::new(127, 0, 0, 1 + number).into()),
            Kind::Verbs => {
                let given = self.device_address.get(usize::from(number));
                given.copied().with_context(|| {
                    let count = self.device_address.len();
                    format!(
                        "--fabric verbs with a server that is started here needs --device-address \
                         with {} address(es) of an RDMA device, and has {count}",
                        number + 1
                    )
                })
            }
        }
    }

    /// A free address and port for a server that this program starts. Only TCP ports are checked.
    ///
    /// # Errors
    /// If no address was given, or this machine does not have it.
    pub fn free_address(&self) -> Result<SocketAddr> {
        let host = self.host(0)?;
        let listener = TcpListener::bind((host, 0))
            .with_context(|| format!("{host} is no address of this machine"))?;
        Ok(listener.local_addr()?)
    }

    /// A provider whose connections come from `source` and are set up within `timeout`.
    ///
    /// # Errors
    /// If the system gives no descriptor, or there are no devices.
    pub fn provider(&self, source: Option<IpAddr>, timeout: Duration) -> Result<Box<dyn Provider>> {
        match self.kind {
            Kind::Iwarp => Ok(Box::new(Iwarp::new(IwarpConfig {
                source,
                crc: if self.crc {
                    CrcPolicy::Required
                } else {
                    CrcPolicy::Auto
                },
                connect_wait: timeout,
                reply_wait: timeout,
                ..IwarpConfig::default()
            })?)),
            Kind::Verbs => devices::provider(source, timeout),
        }
    }

    /// The default wait on a new connection. Linux's siw as responder loses a message that follows
    /// too closely, and the peer of any iWARP device may be siw.
    ///
    /// # Errors
    /// If there are no devices.
    pub fn settle(&self) -> Result<Duration> {
        match self.kind {
            Kind::Iwarp => Ok(SETTLE),
            Kind::Verbs if devices::speak_iwarp()? => Ok(SETTLE),
            Kind::Verbs => Ok(Duration::ZERO),
        }
    }
}

/// Reads `--fabric`; a provider that is not built in is an error.
fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "iwarp" => Ok(Kind::Iwarp),
        "verbs" if cfg!(feature = "verbs") => Ok(Kind::Verbs),
        "verbs" => Err(NOT_BUILT_IN.to_owned()),
        _ => Err("expected `iwarp` or `verbs`".to_owned()),
    }
}

/// How to enable RDMA devices.
const NOT_BUILT_IN: &str = "RDMA devices are not in this millrace-bench: install libibverbs-dev, \
    librdmacm-dev, libclang1-14 and libclang-common-14-dev, build it with `cargo build --release -p \
    millrace-bench --features verbs`, and have libibverbs1, librdmacm1 and ibverbs-providers where it \
    runs";

/// The registry of [`crate::client::pool`].
pub(crate) fn registry() -> &'static Registry {
    &REGISTRY
}

#[cfg(feature = "verbs")]
mod devices {
    use std::net::IpAddr;
    use std::sync::OnceLock;
    use std::time::Duration;

    use anyhow::{Context, Result};
    use millrace_reactor::fabric::Provider;
    use millrace_reactor::fabric::verbs::{Devices, Transport, Verbs, VerbsConfig};

    /// The devices, opened once for all memory.
    fn devices() -> Result<&'static Devices> {
        static DEVICES: OnceLock<Devices> = OnceLock::new();
        if let Some(devices) = DEVICES.get() {
            return Ok(devices);
        }
        let opened = Devices::open(super::registry()).context("--fabric verbs")?;
        Ok(DEVICES.get_or_init(|| opened))
    }

    pub fn provider(source: Option<IpAddr>, timeout: Duration) -> Result<Box<dyn Provider>> {
        let config = VerbsConfig {
            source,
            connect_wait: timeout,
            ..VerbsConfig::default()
        };
        Ok(Box::new(Verbs::new(devices()?, config)?))
    }

    pub fn speak_iwarp() -> Result<bool> {
        let devices = devices()?.report();
        Ok(devices
            .iter()
            .any(|device| device.transport == Transport::Iwarp))
    }
}

#[cfg(not(feature = "verbs"))]
mod devices {
    use std::net::IpAddr;
    use std::time::Duration;

    use anyhow::{Result, bail};
    use millrace_reactor::fabric::Provider;

    pub fn provider(_: Option<IpAddr>, _: Duration) -> Result<Box<dyn Provider>> {
        bail!(super::NOT_BUILT_IN)
    }

    pub fn speak_iwarp() -> Result<bool> {
        // Without devices there is no connection to wait for.
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_a_device_needs_its_address() {
        let iwarp = Fabric::default();
        assert_eq!(iwarp.host(1).expect("always").to_string(), "127.0.0.2");
        let mut verbs = Fabric {
            kind: Kind::Verbs,
            device_address: Vec::new(),
            crc: false,
        };
        let error = verbs.host(0).expect_err("none").to_string();
        assert!(error.contains("--device-address"), "{error}");
        verbs.device_address = vec!["192.0.2.7".parse().expect("an address")];
        assert_eq!(verbs.host(0).expect("given").to_string(), "192.0.2.7");
        let error = verbs.host(1).expect_err("one only").to_string();
        assert!(error.contains("2 address(es)"), "{error}");
    }

    #[test]
    fn a_fabric_is_one_of_two() {
        assert_eq!(kind("iwarp"), Ok(Kind::Iwarp));
        assert!(kind("tcp").is_err_and(|error| error.contains("`verbs`")));
        assert_eq!(kind("verbs").is_ok(), cfg!(feature = "verbs"));
    }

    #[cfg(not(feature = "verbs"))]
    #[test]
    fn a_program_without_devices_says_how_to_have_them() {
        let fabric = Fabric {
            kind: Kind::Verbs,
            device_address: Vec::new(),
            crc: false,
        };
        let made = fabric.provider(None, Duration::ZERO);
        let error = made.err().expect("none is built in").to_string();
        for part in ["libibverbs-dev", "--features verbs", "ibverbs-providers"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
