//! Devices and their memory.

use std::process::Command;
use std::sync::atomic::Ordering;

use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::fabric::verbs::{Devices, DevicesError, Transport, VerbsConfig, survey};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::{alone, alone_with_software_devices};

const ARENA: usize = 64 << 20;

fn names(devices: &Devices) -> Vec<String> {
    let reports = devices.report();
    reports.into_iter().map(|report| report.name).collect()
}

fn registered(devices: &Devices) -> Vec<u64> {
    let counters = devices.counters();
    let bytes = counters
        .iter()
        .map(|c| c.registered_bytes.load(Ordering::Relaxed));
    bytes.collect()
}

#[test]
fn all_memory_is_registered_with_all_devices_while_it_is_there() {
    let Some(_alone) = alone() else { return };
    let registry = Registry::new(HugepagePolicy::Off);
    let first = registry.arena(ARENA).expect("memory");
    let devices = Devices::open(&registry).expect("a device");
    let count = devices.report().len();
    assert!(count > 0);
    assert_eq!(registered(&devices), vec![ARENA as u64; count]);
    let second = registry.arena(4 << 20).expect("memory");
    let both = (first.len() + second.len()) as u64;
    assert_eq!(registered(&devices), vec![both; count]);
    drop(first);
    assert_eq!(registered(&devices), vec![second.len() as u64; count]);
    // The devices go first: nothing is left to be told when the memory goes.
    drop(devices);
    drop(second);
    let third = registry.arena(4 << 20).expect("without devices");
    let again = Devices::open(&registry).expect("a device");
    assert_eq!(registered(&again), vec![third.len() as u64; count]);
}

#[test]
fn a_survey_tells_what_is_then_used() {
    let Some(_alone) = alone() else { return };
    let seen = survey().expect("a device");
    let devices = Devices::open(&Registry::new(HugepagePolicy::Off)).expect("a device");
    assert_eq!(seen, devices.report());
    for report in &seen {
        println!("{report:?}");
        let port = report.ports.first().expect("a port");
        assert!(port.is_active && port.number == 1 && port.mtu >= 256);
        assert!(!port.gids.is_empty() && port.gids.iter().all(|gid| !gid.is_unspecified()));
        assert!(report.queue_pairs_max > 0 && report.work_requests_max > 0);
        assert!(report.completion_vectors > 0 && report.registration_max as usize >= ARENA);
    }
    let windows = seen.iter().all(|report| report.features.memory_windows);
    assert_eq!(devices.invalidation().receives, windows);
    assert!(!VerbsConfig::default().force_read_registrations);
}

/// Raises what was lowered when the test ends.
struct Limited {
    limit: Rlimit,
    rights: CapabilitySets,
}

impl Limited {
    /// From here on this thread locks no more than `bytes` of memory.
    fn to(bytes: u64) -> Self {
        let limit = getrlimit(Resource::Memlock);
        let rights = capabilities(None).expect("our own");
        let less = CapabilitySets {
            effective: rights.effective - CapabilitySet::IPC_LOCK,
            ..rights
        };
        set_capabilities(None, less).expect("fewer are allowed");
        let low = Rlimit {
            current: Some(bytes),
            ..limit
        };
        setrlimit(Resource::Memlock, low).expect("less is allowed");
        Self { limit, rights }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(Resource::Memlock, self.limit).expect("as it was");
        set_capabilities(None, self.rights).expect("as they were");
    }
}

#[test]
fn memory_beyond_the_limit_is_refused_with_advice() {
    let Some(_alone) = alone() else { return };
    let registry = Registry::new(HugepagePolicy::Off);
    let small = registry.arena(2 << 20).expect("memory");
    let devices = Devices::open(&registry).expect("a device");
    let before = registered(&devices);
    {
        let _limited = Limited::to(8 << 20);
        let refused = registry.arena(ARENA).expect_err("too much").to_string();
        println!("{refused}");
        for part in ["67108864 bytes", "LimitMEMLOCK=infinity", "8388608 bytes"] {
            assert!(refused.contains(part), "{part:?} in {refused:?}");
        }
        // What there was goes on.
        assert_eq!(registered(&devices), before);
        drop(devices);
        let large = registry.arena(ARENA);
        let large = large.expect("no device is asked any more");
        let error = Devices::open(&registry).expect_err("too much");
        let DevicesError::Unusable(reason) = &error else {
            panic!("{error}");
        };
        assert!(reason.contains("ulimit -l"), "{reason}");
        drop(large);
    }
    let devices = Devices::open(&registry).expect("as before");
    assert_eq!(registered(&devices), before);
    drop(small);
}

#[test]
fn of_several_devices_one_that_refuses_memory_is_left_out() {
    let Some(_alone) = alone() else { return };
    let registry = Registry::new(HugepagePolicy::Off);
    let devices = Devices::open(&registry).expect("a device");
    let all = names(&devices);
    let arena = {
        // Every device's registration counts.
        let _limited = Limited::to(ARENA as u64 * 3 / 2);
        registry.arena(ARENA).expect("the first takes it")
    };
    let mut left = registered(&devices);
    left.retain(|&bytes| bytes == arena.len() as u64);
    assert_eq!(left.len(), 1);
    assert_eq!(names(&devices).len(), 1);
    let first = &names(&devices)[0];
    assert!(all.contains(first));
    // The one that is left goes on to get all memory.
    let more = registry.arena(4 << 20).expect("memory");
    let counters = devices.counters();
    let counters = counters.iter().find(|counters| counters.name() == first);
    let bytes = counters.map(|counters| counters.registered_bytes.load(Ordering::Relaxed));
    assert_eq!(bytes, Some((arena.len() + more.len()) as u64));
}

fn rdma(arguments: &[&str]) {
    let status = Command::new("rdma").args(arguments).status();
    assert!(status.expect("iproute2").success(), "rdma {arguments:?}");
}

/// Waits for something that the control thread does by itself.
fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

#[test]
fn a_device_is_unplugged_and_comes_back_with_all_memory() {
    let Some(_alone) = alone_with_software_devices() else {
        return;
    };
    let registry = Registry::new(HugepagePolicy::Off);
    let arena = registry.arena(ARENA).expect("memory");
    let devices = Devices::open(&registry).expect("a device");
    let all = devices.report();
    for report in &all {
        let kind = match report.transport {
            Transport::Iwarp => "siw",
            Transport::Roce | Transport::InfiniBand => "rxe",
        };
        let counters = devices.counters();
        let counters = counters.iter().find(|c| c.name() == report.name);
        let counters = counters.expect("every device is counted");
        let opened = counters.opened.load(Ordering::Relaxed);
        // The kernel waits until everybody has let go.
        rdma(&["link", "delete", &report.name]);
        assert!(!names(&devices).contains(&report.name));
        assert_eq!(counters.in_use.load(Ordering::Relaxed), 0);
        assert_eq!(counters.unplugged.load(Ordering::Relaxed), opened);
        let late = registry.arena(2 << 20).expect("the others take it");
        rdma(&["link", "add", &report.name, "type", kind, "netdev", "eth0"]);
        until(|| names(&devices).contains(&report.name));
        assert_eq!(counters.opened.load(Ordering::Relaxed), opened + 1);
        let both = (arena.len() + late.len()) as u64;
        assert_eq!(registered(&devices), vec![both; all.len()]);
        drop(late);
        assert_eq!(registered(&devices), vec![arena.len() as u64; all.len()]);
    }
}
