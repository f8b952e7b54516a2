//! Metrics of RDMA devices, and of their provider.

use std::sync::atomic::Ordering::Relaxed;

use millrace_admin::metrics::{Families, catalogue};
use millrace_reactor::fabric::verbs::{DEVICE_EVENTS, VerbsCounters};

use crate::service::devices::Devices;

/// Counters of a listener's provider on one reactor, beyond those common to all providers.
pub fn of_provider(out: &mut Families, core: &str, counters: &VerbsCounters) {
    for (queue, count) in [
        ("send", &counters.send_doorbells),
        ("receive", &counters.receive_doorbells),
    ] {
        let labels = &[core, queue];
        out.number(&catalogue::VERBS_DOORBELLS, labels, count.get());
    }
    for (family, count) in [
        (&catalogue::VERBS_COMPLETIONS, &counters.completions),
        (&catalogue::VERBS_INLINED, &counters.inlined),
        (&catalogue::VERBS_ARMED, &counters.armed),
        (&catalogue::VERBS_QUEUE_WAITS, &counters.send_queue_waits),
        (
            &catalogue::VERBS_CONNECTION_EVENTS,
            &counters.connection_events,
        ),
        (&catalogue::VERBS_WINDOWS, &counters.windows_bound),
        (&catalogue::VERBS_REGISTRATIONS, &counters.registrations),
        (&catalogue::VERBS_UNDRAINED, &counters.undrained),
        (&catalogue::VERBS_LOST, &counters.devices_lost),
    ] {
        out.number(family, &[core], count.get());
    }
}

/// The devices, including removed ones.
pub fn of_devices(out: &mut Families, devices: &Devices) {
    for counters in devices.counters() {
        let device = counters.name();
        for (family, number) in [
            (&catalogue::RDMA_DEVICE_IN_USE, &counters.in_use),
            (&catalogue::RDMA_DEVICE_OPENED, &counters.opened),
            (&catalogue::RDMA_DEVICE_UNPLUGGED, &counters.unplugged),
            (
                &catalogue::RDMA_DEVICE_REGISTERED,
                &counters.registered_bytes,
            ),
        ] {
            out.number(family, &[device], number.load(Relaxed));
        }
        for (event, count) in DEVICE_EVENTS.iter().zip(&counters.events) {
            let labels = &[device, event];
            out.number(&catalogue::RDMA_DEVICE_EVENTS, labels, count.load(Relaxed));
        }
    }
    for device in devices.report() {
        let name = device.name.as_str();
        let node = device.numa_node;
        let node = node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        let labels = &[name, device.transport.name(), &device.firmware, &node];
        out.number(&catalogue::RDMA_DEVICE_INFO, labels, 1);
        for port in &device.ports {
            let labels = &[name, &port.number.to_string(), port.state];
            let active = u64::from(port.is_active);
            out.number(&catalogue::RDMA_PORT_ACTIVE, labels, active);
        }
    }
}
