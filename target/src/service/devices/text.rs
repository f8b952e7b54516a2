//! RDMA devices as text.

use std::fmt::Write;
use std::net::{Ipv6Addr, SocketAddr};

use millrace_admin::config::{ByteSize, Config};
use millrace_reactor::fabric::verbs::{DeviceReport, Features};

use super::listeners;

/// Logs a line for a device, and one for each of its ports.
pub fn log(device: &DeviceReport) {
    tracing::info!(
        device = device.name,
        transport = device.transport.name(),
        firmware = device.firmware,
        numa_node = device.numa_node,
        "RDMA device"
    );
    for port in &device.ports {
        let (device, port, state, mtu) = (&device.name, port.number, port.state, port.mtu);
        tracing::info!(device, port, state, mtu, "port of an RDMA device");
    }
}

/// The devices, and the listeners of a configuration on them; `find` returns the device and port of
/// an address.
pub fn describe(
    devices: &[DeviceReport],
    config: Option<&Config>,
    find: impl Fn(SocketAddr) -> Option<(String, u8)>,
) -> String {
    let mut text = String::new();
    for device in devices {
        one(&mut text, device);
    }
    for (path, fabric) in config.iter().flat_map(|config| listeners(config)) {
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{path}.listen: {}: {}",
            fabric.listen,
            place(devices, fabric.listen, &find)
        );
    }
    text
}

fn one(text: &mut String, device: &DeviceReport) {
    let firmware = match device.firmware.as_str() {
        "" => String::new(),
        version => format!(", firmware {version}"),
    };
    let node = device
        .numa_node
        .map_or_else(String::new, |node| format!(", memory node {node}"));
    let vectors = device.completion_vectors;
    let transport = device.transport;
    let _ = writeln!(
        text,
        "{}: {transport}{firmware}{node}, {vectors} completion vectors",
        device.name
    );
    for port in &device.ports {
        let _ = writeln!(
            text,
            "  port {}: {}, MTU {}",
            port.number, port.state, port.mtu
        );
        for gid in &port.gids {
            let _ = writeln!(text, "    {}", address(gid));
        }
    }
    let registration = match device.registration_max {
        u64::MAX => "registrations of any size".to_owned(),
        most => format!("{} in a registration", ByteSize(most)),
    };
    let _ = writeln!(
        text,
        "  at most: {} queue pairs with {} requests, {} ranges in a request ({} in a Read), {} \
         completions in a queue,\n    {} Reads served and {} open at once; {registration}",
        device.queue_pairs_max,
        device.work_requests_max,
        device.ranges_max,
        device.read_ranges_max,
        device.completions_max,
        device.reads_served_max,
        device.reads_open_max
    );
    let _ = writeln!(text, "  features: {}", features(device.features));
}

fn features(features: Features) -> String {
    let Features {
        memory_windows,
        shared_receive_queues,
        send_invalidate,
    } = features;
    let all = [
        (memory_windows, "memory windows"),
        (shared_receive_queues, "shared receives"),
        (send_invalidate, "invalidation by Sends"),
    ];
    let there: Vec<_> = all
        .into_iter()
        .filter_map(|(there, name)| there.then_some(name))
        .collect();
    match there.is_empty() {
        true => "none".to_owned(),
        false => there.join(", "),
    }
}

/// A GID, as the IP address that it contains, if any.
fn address(gid: &Ipv6Addr) -> String {
    match gid.to_ipv4_mapped() {
        Some(address) => format!("{address} ({gid})"),
        None => gid.to_string(),
    }
}

/// The device of a listener's address.
fn place(
    devices: &[DeviceReport],
    listen: SocketAddr,
    find: impl Fn(SocketAddr) -> Option<(String, u8)>,
) -> String {
    if listen.ip().is_unspecified() {
        return "all devices, including those added later".to_owned();
    }
    let Some((name, number)) = find(listen) else {
        return "no RDMA device has this address, so nothing can listen there now; use the address \
            of a device's network interface"
            .to_owned();
    };
    let device = devices.iter().find(|device| device.name == name);
    let mut ports = device.into_iter().flat_map(|device| &device.ports);
    match ports.find(|port| port.number == number) {
        Some(port) if !port.is_active => {
            format!(
                "{name}, port {number}, which is not active ({})",
                port.state
            )
        }
        _ => format!("{name}, port {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_admin::config;
    use millrace_reactor::fabric::verbs::{PortReport, Transport};

    fn device(name: &str, gid: &str, is_active: bool) -> DeviceReport {
        DeviceReport {
            name: name.to_owned(),
            transport: Transport::Roce,
            firmware: "20.1".to_owned(),
            numa_node: Some(1),
            completion_vectors: 4,
            ports: vec![PortReport {
                number: 1,
                is_active,
                state: if is_active { "active" } else { "down" },
                mtu: 4096,
                gids: vec![gid.parse().expect("a GID")],
            }],
            queue_pairs_max: 100,
            work_requests_max: 200,
            ranges_max: 30,
            read_ranges_max: 10,
            completions_max: 4000,
            reads_served_max: 16,
            reads_open_max: 17,
            registration_max: 1 << 40,
            features: Features {
                memory_windows: true,
                send_invalidate: true,
                ..Features::default()
            },
        }
    }

    #[test]
    fn devices_are_told_with_their_ports_and_what_they_can() {
        let text = describe(&[device("mlx5_0", "::ffff:10.0.0.7", true)], None, |_| None);
        for words in [
            "mlx5_0: RoCE, firmware 20.1, memory node 1, 4 completion vectors\n",
            "  port 1: active, MTU 4096\n    10.0.0.7 (::ffff:10.0.0.7)\n",
            "at most: 100 queue pairs with 200 requests, 30 ranges in a request (10 in a Read)",
            "16 Reads served and 17 open at once; 1TiB in a registration",
            "  features: memory windows, invalidation by Sends\n",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn listeners_are_told_with_the_port_that_has_their_address() {
        let devices = [
            device("rxe0", "::ffff:10.0.0.7", true),
            device("rxe1", "fd00::7", false),
        ];
        let listeners: Vec<_> = ["0.0.0.0:1", "10.0.0.7:2", "'[fd00::7]:3'", "10.0.0.8:4"]
            .into_iter()
            .map(|listen| format!("{{provider: verbs, listen: {listen}}}"))
            .collect();
        let text = format!("fabric: [{}]", listeners.join(", "));
        let config = config::parse(&text, "test").expect("ports are others");
        let find = |address: SocketAddr| match address.port() {
            2 => Some(("rxe0".to_owned(), 1)),
            3 => Some(("rxe1".to_owned(), 1)),
            _ => None,
        };
        let told = describe(&devices, Some(&config), find);
        for words in [
            "fabric[0].listen: 0.0.0.0:1: all devices",
            "fabric[1].listen: 10.0.0.7:2: rxe0, port 1\n",
            "fabric[2].listen: [fd00::7]:3: rxe1, port 1, which is not active (down)\n",
            "fabric[3].listen: 10.0.0.8:4: no RDMA device has this address",
        ] {
            assert!(told.contains(words), "{words} in {told}");
        }
    }
}
