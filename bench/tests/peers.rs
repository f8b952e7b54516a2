//! What the management plane tells of clients, their connections and what they asked for, as a
//! running service sees them.

mod serving;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use millrace::service::ServiceControl;
use millrace_admin::control::Control;
use millrace_admin::status::ClientStatus;
use serving::{BYTES, client, connections, exchange, session, start, until};

/// Whole numbers below this are exact in every language.
const EXACT: u64 = 1 << 53;

fn clients(control: &ServiceControl, address: &str) -> Option<ClientStatus> {
    let list = control.clients().expect("reactors answer");
    list.into_iter().find(|client| client.address == address)
}

#[test]
fn clients_are_told_over_all_their_connections() {
    let service = start("limits: [{ clients: [127.0.0.2], iops: 1000 }]\n");
    let control = &*service.control();
    let (first, second) = (client(&service, "127.0.0.1"), client(&service, "127.0.0.2"));
    let mut sessions = [session(&first), session(&first), session(&second)];
    exchange(&first, &mut sessions[0]);
    for session in &mut sessions {
        session.null().expect("an answer");
    }
    let rpc = service.addresses().rpc.expect("served");
    let tcp = TcpStream::connect(rpc).expect("connects");

    let list = connections(control, 4);
    let mut ids: Vec<u64> = list.iter().map(|one| one.id).collect();
    assert!(ids.iter().all(|&id| id > 0 && id < EXACT), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 4, "sorted, and each only once");
    let (records, rdma): (Vec<_>, Vec<_>) = list.iter().partition(|one| one.provider == "tcp");
    assert_eq!(records.len(), 1);
    let record = records[0];
    assert_eq!(record.peer, tcp.local_addr().expect("bound").to_string());
    assert_eq!((record.credits_granted, record.latency), (None, None));
    assert_eq!((record.requests, record.rpcrdma_version), (0, None));
    let busiest = until(control, |control| {
        let list = control.connections().expect("reactors answer");
        list.into_iter().find(|one| one.requests == 5)
    });
    assert_eq!(busiest.provider, "iwarp");
    assert_eq!(busiest.bytes_read, BYTES as u64);
    assert_eq!(busiest.bytes_written, BYTES as u64);
    let latency = busiest.latency.expect("calls were answered");
    assert!(latency.p50_seconds > 0.0 && latency.p50_seconds <= latency.p999_seconds);
    assert_eq!(rdma.iter().filter(|one| one.id == busiest.id).count(), 1);

    // Two RDMA connections, one that is left of TCP, and the call of MOUNT.
    let told = until(control, |control| {
        clients(control, "127.0.0.1").filter(|one| one.requests == 7)
    });
    assert_eq!(told.connections, 3);
    assert_eq!(
        (told.bytes_read, told.bytes_written),
        (BYTES as u64, BYTES as u64)
    );
    assert_eq!(told.credits_requested, 16);
    assert!((2..=16).contains(&told.credits_granted), "{told:?}");
    assert_eq!(
        (told.limits.iops, told.waiting, told.exposures),
        (None, 0, 0)
    );
    let other = clients(control, "127.0.0.2").expect("connected");
    assert_eq!((other.connections, other.limits.iops), (1, Some(1000)));

    let operations = control.operations();
    let one = |name: &str| {
        let mut found = operations.iter().filter(|one| one.procedure == name);
        found.next().unwrap_or_else(|| panic!("no {name}")).clone()
    };
    for name in ["read", "write"] {
        let done = one(name);
        assert_eq!(
            (done.program.as_str(), done.requests, done.errors),
            ("nfs", 1, 0)
        );
        assert_eq!(done.bytes, BYTES as u64);
        assert!(done.latency.is_some());
    }
    assert_eq!(
        (one("mnt").program.as_str(), one("mnt").bytes),
        ("mount", 0)
    );
    assert!(operations.iter().all(|one| one.requests > 0));
    drop(sessions);
    service.drain(Duration::ZERO);
}

#[test]
fn evicted_connections_are_gone_and_what_they_did_is_not() {
    let service = start("");
    let control = &*service.control();
    let client = client(&service, "127.0.0.1");
    let mut session = session(&client);
    session.null().expect("an answer");
    let tcp = TcpStream::connect(service.addresses().rpc.expect("served")).expect("connects");
    let list = connections(control, 2);
    let unknown = list.iter().map(|one| one.id).max().unwrap_or_default() + 1;
    assert_eq!(control.evict(unknown), Ok(false));
    for one in &list {
        assert_eq!(control.evict(one.id), Ok(true));
    }
    connections(control, 0);
    for one in &list {
        assert_eq!(control.evict(one.id), Ok(false));
    }
    assert_eq!(clients(control, "127.0.0.1"), None);
    let usage = control.client_usage();
    let present = usage.present.iter().map(|client| client.totals.requests);
    assert_eq!(present.sum::<u64>() + usage.gone.requests, 1);
    assert!(session.null().is_err(), "the connection has ended");
    drop(tcp);
    service.drain(Duration::ZERO);
}

#[test]
fn however_many_ask_reactors_report_ten_times_a_second_at_most() {
    let service = start("");
    let control = &*service.control();
    let messages = || control.reactors().expect("reactors answer")[0].messages;
    let before = messages();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    control.connections().expect("reactors answer");
                    control.clients().expect("reactors answer");
                    control.reactors().expect("reactors answer");
                }
            });
        }
    });
    let most = start.elapsed().as_millis() / 100 + 2;
    let asked = u128::from(messages() - before);
    assert!(asked <= most, "{asked} rounds, of {most}");
    service.drain(Duration::ZERO);
}
