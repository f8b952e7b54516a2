//! RDMA devices, real ones. Needs the feature `verbs` and a device:
//!
//! ```sh
//! cargo test -p millrace-reactor --features verbs --test verbs --no-run
//! bench/kernel-client/in-guest --device rxe -- build/debug/deps/verbs-... --include-ignored
//! ```
//!
//! Tests that unplug a device or change what the process may lock run alone ([`alone`]).
//!
//! Providers are tried on the device that has the address of `MILLRACE_TEST_FABRIC`
//! (`verbs:ADDRESS`), by default 10.0.2.15, that of the guests.

mod devices;
mod ending;
mod memory;
#[path = "../pair/mod.rs"]
mod pair;
mod sleeping;
mod transfer;
mod unplugging;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_mempool::Registry;
use millrace_reactor::fabric::QueuePairLimits;
use millrace_reactor::fabric::verbs::{Devices, DevicesError, Verbs, VerbsConfig};

use pair::{LIMITS, Pair, Side};

/// Held by every test here, for some change what all share.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where to listen.
fn address() -> SocketAddr {
    let fabric = std::env::var("MILLRACE_TEST_FABRIC").unwrap_or_default();
    let address = match fabric.strip_prefix("verbs:") {
        Some(address) => address.parse().expect("verbs:ADDRESS"),
        None => IpAddr::from(Ipv4Addr::new(10, 0, 2, 15)),
    };
    SocketAddr::new(address, 0)
}

/// Opens the devices.
type Open = fn(&Registry) -> Result<Devices, DevicesError>;

/// As the service does, and with windows wherever there are some.
const WAYS: [Open; 2] = [Devices::open, Devices::open_trusting_windows];

fn side_of(open: Open, config: VerbsConfig) -> Side<Verbs> {
    Side::new(|registry| {
        let devices = open(registry).expect("an RDMA device");
        Verbs::new(&devices, config).expect("a provider")
    })
}

fn side(config: VerbsConfig) -> Side<Verbs> {
    side_of(Devices::open, config)
}

/// Two sides whose exposures are windows wherever there are some.
fn trusting(limits: QueuePairLimits) -> Pair<Verbs> {
    let [client, server] =
        [(); 2].map(|()| side_of(Devices::open_trusting_windows, VerbsConfig::default()));
    Pair::connected(client, server, address(), limits)
}

fn with_limits(client: VerbsConfig, server: VerbsConfig, limits: QueuePairLimits) -> Pair<Verbs> {
    Pair::connected(side(client), side(server), address(), limits)
}

fn plain() -> Pair<Verbs> {
    let config = VerbsConfig::default;
    with_limits(config(), config(), LIMITS)
}
