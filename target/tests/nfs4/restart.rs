//! What clients of NFS version 4 keep when `millraced` is killed and started again, over TCP.

use std::fs;

use millrace_wire::nfs4::{OperationStatus as Status, sequence_flags};

use crate::session_client::{ServerFolders, SessionClient, kill};

#[test]
fn v4_lease_11_to_26_opens_and_locks_outlive_a_killed_server() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"first");
    assert_eq!(client.open(b"data", b"early"), Err(Status::Grace));
    let early = folders.0.path().join("data/early");
    assert!(!early.exists(), "nothing is made for an OPEN that waits");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    assert!(folders.records().is_empty());
    let (handle, open) = client.open(b"data", b"file").unwrap();
    assert_eq!(folders.records().len(), 1, "V4-LEASE-25");
    assert_eq!(client.lock(&handle, open, false), Status::Ok);
    assert_eq!(client.lock(&handle, open, true), Status::NoGrace);
    kill(server);

    // Killed once more before all is reclaimed.
    let (server, address) = folders.start();
    client.reconnect(address);
    client.reclaim(&handle).unwrap();
    kill(server);

    let (server, address) = folders.start();
    let (_, metrics) = server.get("/metrics");
    for line in ["grace_clients 1", "records_damaged 0"] {
        let line = format!("\nmillrace_nfs4_{line}\n");
        assert!(metrics.contains(&line), "V4-PERF-08: {line}");
    }
    client.reconnect(address);
    assert_eq!(client.flags(), sequence_flags::RESTART_RECLAIM);
    let mut other = SessionClient::join(address, b"second");
    assert_eq!(other.flags(), 0);
    assert_eq!(other.reclaim_complete(), Status::Ok);
    assert_eq!(other.open(b"data", b"early"), Err(Status::Grace));
    assert!(!early.exists());
    assert_eq!(other.reclaim(&handle), Err(Status::NoGrace));
    let open = client.reclaim(&handle).unwrap();
    assert_eq!(client.lock(&handle, open, false), Status::Grace);
    assert_eq!(client.lock(&handle, open, true), Status::Ok);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    assert_eq!(client.flags(), 0);
    assert_eq!(client.reclaim(&handle), Err(Status::NoGrace));
    // The grace period has ended with the last client.
    let (_, open) = other.open(b"data", b"file").unwrap();
    assert_eq!(other.lock(&handle, open, false), Status::Denied);
    assert_eq!(folders.records().len(), 2);
    kill(server);
}

#[test]
fn v4_lease_29_opens_in_memory_are_not_recorded_and_handles_are_stale_after_a_restart() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"first");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let (handle, _) = client.open(b"memory", b"file").unwrap();
    assert!(folders.records().is_empty());
    kill(server);
    let (server, address) = folders.start();
    client.reconnect(address);
    assert_eq!(client.reclaim(&handle), Err(Status::Stale));
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client.open(b"memory", b"file").unwrap();
    kill(server);
}

#[test]
fn v4_lease_27_the_client_of_a_damaged_record_is_not_waited_for() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"first");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let (handle, _) = client.open(b"data", b"file").unwrap();
    kill(server);
    let [record] = &folders.records()[..] else {
        panic!("one record")
    };
    let mut bytes = fs::read(record).unwrap();
    bytes[20] ^= 1;
    fs::write(record, bytes).unwrap();
    let (server, address) = folders.start();
    assert!(server.read.contains("damaged"), "{}", server.read);
    client.reconnect(address);
    assert_eq!(client.reclaim(&handle), Err(Status::NoGrace));
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client.open(b"data", b"file").unwrap();
    kill(server);
}
