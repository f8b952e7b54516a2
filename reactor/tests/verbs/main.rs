//! RDMA devices, real ones. Needs the feature `verbs` and a device:
//!
//! ```sh
//! cargo test -p millrace-reactor --features verbs --test verbs --no-run
//! bench/kernel-client/in-guest --device rxe -- build/debug/deps/verbs-...
//! ```
//!
//! Without a device, they are recorded as skipped. Tests that unplug a device or change what the
//! process may lock run alone ([`alone`]).
//!
//! Providers are tried on the device that has the address of `MILLRACE_TEST_FABRIC`
//! (`verbs:ADDRESS`), by default 10.0.2.15, that of the guests.

mod devices;
mod ending;
mod keys;
mod memory;
#[path = "../pair/mod.rs"]
mod pair;
mod sleeping;
mod transfer;
mod unplugging;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millrace_mempool::Registry;
use millrace_reactor::fabric::verbs::{Devices, DevicesError, Verbs, VerbsConfig};
use millrace_reactor::fabric::{ControlPath, Event, QueuePairId, QueuePairLimits};

use pair::{LIMITS, Pair, Side, is_padded, parameters};

/// Held by every test here, for some change what all share. None, recorded as skipped, where this
/// machine has no RDMA device.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static LOCK: Mutex<()> = Mutex::new(());
    match millrace_testing::rdma_device() {
        Ok(_) => Some(LOCK.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(reason) => {
            millrace_testing::skip!("{reason}");
            None
        }
    }
}

/// As [`alone`], where all devices are software on eth0, which may be unplugged.
fn alone_with_software_devices() -> Option<MutexGuard<'static, ()>> {
    let alone = alone()?;
    let names = std::fs::read_dir("/sys/class/infiniband").expect("devices");
    let software = names.flatten().all(|device| {
        let name = device.file_name();
        let name = name.to_string_lossy();
        name.starts_with("rxe") || name.starts_with("siw")
    });
    if !software || !std::path::Path::new("/sys/class/net/eth0").exists() {
        millrace_testing::skip!("an RDMA device is no software one on eth0, and stays plugged in");
        return None;
    }
    Some(alone)
}

/// Where to listen.
fn address() -> SocketAddr {
    let address = millrace_testing::rdma_device().expect("asked before");
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

/// A second connection between both sides, without receives: the client's queue pair, and the
/// server's.
fn connected_again(pair: &mut Pair<Verbs>) -> (QueuePairId, QueuePairId) {
    let listener = pair.listener;
    let at = pair.server.provider.listener_address(listener);
    let at = at.expect("it listens");
    let provider = &mut pair.client.provider;
    let other = provider.connect(at, parameters(LIMITS, b"other"), Instant::now());
    let other = other.expect("a connect");
    let there = pair.until(|pair| {
        pair.server.take(|event| match event {
            Event::ConnectRequest {
                queue_pair,
                private_data,
                ..
            } => {
                assert!(is_padded(private_data, b"other"));
                Some(*queue_pair)
            }
            _ => None,
        })
    });
    let provider = &mut pair.server.provider;
    let accepted = provider.accept(there, parameters(LIMITS, b""));
    accepted.expect("it asked");
    for queue_pair in [other, there] {
        pair.until(|pair| {
            let wanted = |event: &Event| {
                matches!(event, Event::Established { queue_pair: seen, .. } if *seen == queue_pair)
                    .then_some(())
            };
            let found = pair.client.take(wanted);
            found.or_else(|| pair.server.take(wanted))
        });
    }
    (other, there)
}
