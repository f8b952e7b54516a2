//! What clients of NFS version 4 keep when `millraced` is killed and started again, over TCP.

use std::fs;

use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attributes, ClientOwner, CreateMode, DelegationType, ExchangeIdOperation, OpenClaim,
    OpenDelegation, Operation, OperationResults, OperationStatus as Status, ProtectionOffer,
    ReadOperation, StateId, WriteOperation, sequence_flags,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};

use crate::session_client::{Results, ServerFolders, SessionClient, kill};

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

/// Whether an OPEN in the result with this number came with a delegation for writing.
fn is_delegated(results: &Results, at: usize) -> bool {
    results.read(|status, all| match all[at] {
        OperationResults::Open(Ok(ref reply)) => {
            matches!(reply.delegation, OpenDelegation::Write(_))
        }
        ref other => panic!("{status:?} {other:?}"),
    })
}

#[test]
fn v4_lease_31_delegations_in_a_folder_of_this_server_alone_outlive_a_killed_server() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join_as(address, b"first", true);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let open = |client: &mut SessionClient| {
        let create = CreateMode::Unchecked(Attributes::NONE);
        let opening = client.opening(Some(create), OpenClaim::Name(b"file"));
        let results = client.run(&[
            Operation::Putrootfh(()),
            Operation::Lookup(b"data"),
            opening,
            Operation::Getfh(()),
        ]);
        assert_eq!(results.status(), Status::Ok);
        let handle = results.read(|_, all| match all[4] {
            OperationResults::Getfh(Ok(handle)) => handle.0.to_vec(),
            ref other => panic!("{other:?}"),
        });
        (is_delegated(&results, 3), handle)
    };
    let (is_granted, handle) = open(&mut client);
    assert!(!is_granted, "others may change the files of the folder");
    kill(server);
    let (server, address) = folders.start();
    client.reconnect(address);
    let refused = client.reclaim_with(&handle, DelegationType::Write).status();
    assert_eq!(refused, Status::ReclaimBad);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    kill(server);

    folders.edit("kind: posix,", "kind: posix, exclusive: true,");
    let (server, address) = folders.start();
    // The same client: its record may still be there, so that the server waits for it.
    client.reconnect(address);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    assert!(open(&mut client).0);
    kill(server);
    let (server, address) = folders.start();
    client.reconnect(address);
    let reclaimed = client.reclaim_with(&handle, DelegationType::Write);
    assert!(is_delegated(&reclaimed, 2));
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let mut other = SessionClient::join(address, b"second");
    assert_eq!(other.reclaim_complete(), Status::Ok);
    assert_eq!(other.open(b"data", b"file"), Err(Status::Delay));
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

/// Owner and scope of a server.
fn identity(client: &mut SessionClient) -> (Vec<u8>, Vec<u8>) {
    let exchange = Operation::ExchangeId(ExchangeIdOperation {
        owner: ClientOwner {
            verifier: [1; 8],
            owner: BoundedBytes(client.owner),
        },
        flags: 0,
        protection: ProtectionOffer::Unprotected,
        implementation: None,
    });
    client.compound(&[exchange]).read(|_, all| match all[0] {
        OperationResults::ExchangeId(Ok(reply)) => {
            (reply.owner.major.0.to_vec(), reply.scope.0.to_vec())
        }
        ref other => panic!("{other:?}"),
    })
}

#[test]
fn v4_sess_17_and_v4_data_07_a_server_and_what_it_wrote_outlive_its_restart() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"client");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let known = identity(&mut client);
    let (handle, state) = client.open(b"data", b"file").unwrap();
    for (offset, stable) in [(0, Stability::DataSync), (4, Stability::FileSync)] {
        let write = Operation::Write(WriteOperation {
            state,
            offset,
            stable,
            data: Bulk::inline(b"data"),
        });
        let written = client.run(&[Operation::Putfh(BoundedBytes(&handle)), write]);
        written.read(|_, all| match &all[2] {
            OperationResults::Write(Ok(reply)) => {
                assert_ne!(reply.committed, Stability::Unstable);
                assert!(stable == Stability::DataSync || reply.committed == stable);
            }
            other => panic!("{other:?}"),
        });
    }
    // Another server on the same host is another one.
    let others = ServerFolders::new();
    let (other, elsewhere) = others.start();
    let mut stranger = SessionClient::join(elsewhere, b"client");
    let foreign = identity(&mut stranger);
    assert_ne!((&foreign.0, &foreign.1), (&known.0, &known.1));
    assert_ne!(foreign.0, known.0);
    assert_ne!(foreign.1, known.1);
    drop(other);
    // It is killed.
    drop(server);
    let (_server, address) = folders.start();
    client.reconnect(address);
    assert_eq!(identity(&mut client), known);
    let read = Operation::Read(ReadOperation {
        state: StateId::ANONYMOUS,
        offset: 0,
        count: 16,
    });
    let found = client.run(&[Operation::Putfh(BoundedBytes(&handle)), read]);
    found.read(|_, all| match &all[2] {
        OperationResults::Read(Ok(reply)) => {
            assert_eq!(reply.data.as_inline(), Some(&b"datadata"[..]));
        }
        other => panic!("{other:?}"),
    });
}
