//! What operators see of the clients of NFS version 4 and end by hand, by the API of `millraced`.

use millrace_admin::client::{Answer, Client, Method, Order};
use millrace_admin::status::{
    AwaitedClient, GraceStatus, LockRange, Nfs4Client, Nfs4Clients, Nfs4Revocation, Nfs4State,
    Nfs4States,
};
use millrace_wire::nfs4::{
    Attributes, CreateMode, OpenClaim, OpenOperation, Operation, OperationStatus as Status,
    StateOwner, sequence_flags, share,
};
use millrace_wire::rpc::Accepted;
use millrace_wire::xdr::BoundedBytes;

use crate::session_client::{ServerFolders, SessionClient, kill};

fn get(operator: &Client, path: &str) -> Answer {
    let answer = operator.get(path).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

fn delete(operator: &Client, path: &str) -> u16 {
    let order = Order::new(Method::Delete, path);
    operator.send(&order).unwrap().status
}

#[test]
fn v4_sec_08_owners_are_escaped_where_operators_see_them() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let operator = folders.operator(&server);
    let client = SessionClient::join(address, b"\x1b[31m\0\n\"owner\xff");
    let at = format!("/api/v1/nfs4/clients/{:016x}", client.id);
    let shown: Nfs4Client = get(&operator, &at).value().unwrap();
    assert_eq!(shown.owner, r#"\x1b[31m\x00\n\"owner\xff"#);
    kill(server);
}

#[test]
fn v4_open_37_the_log_says_for_whom_denials_hold() {
    let folders = ServerFolders::new();
    let (mut server, address) = folders.start();
    let mut client = SessionClient::join(address, b"client");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    for (export, name, deny) in [
        (&b"memory"[..], &b"one"[..], share::WRITE),
        (b"data", b"one", 0),
        (b"data", b"two", share::WRITE),
    ] {
        let opening = client.opening(
            Some(CreateMode::Unchecked(Attributes::NONE)),
            OpenClaim::Name(name),
        );
        let Operation::Open(open) = opening else {
            panic!("{opening:?}")
        };
        let denying = Operation::Open(OpenOperation { deny, ..open });
        let all = [Operation::Putrootfh(()), Operation::Lookup(export), denying];
        assert_eq!(client.run(&all).status(), Status::Ok);
    }
    // The first such line is about the folder.
    assert!(server.until("a client denies").contains("/data"));
    kill(server);
}

#[test]
fn v4_deleg_28_operators_see_who_has_what_and_take_it() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let operator = folders.operator(&server);
    let mut client = SessionClient::join(address, b"first");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let (handle, open) = client.open(b"data", b"file").unwrap();
    assert_eq!(client.lock(&handle, open, false), Status::Ok);

    let id = format!("{:016x}", client.id);
    let at = format!("/api/v1/nfs4/clients/{id}");
    let shown: Nfs4Client = get(&operator, &at).value().unwrap();
    assert_eq!((&shown.id, &shown.owner[..]), (&id, "first"));
    assert_eq!(shown.address.as_deref(), Some("127.0.0.1"));
    assert_eq!((shown.minor_version, shown.recorded), (Some(2), true));
    assert_eq!((shown.opens, shown.locked_ranges), (1, 1));
    assert!(shown.lease_left_seconds > 0.0 && shown.lease_left_seconds <= 90.0);
    let listed: Nfs4Clients = get(&operator, "/api/v1/nfs4/clients").value().unwrap();
    assert_eq!((&listed.clients[0].id, listed.clients.len()), (&id, 1));

    let wanted = format!("/api/v1/nfs4/states?kind=lock&client={id}&export=/data");
    let locks: Nfs4States = get(&operator, &wanted).value().unwrap();
    let [lock] = &locks.states[..] else {
        panic!("{locks:?}");
    };
    assert_eq!(lock.owner.as_deref(), Some("locker"));
    assert_eq!(lock.export.as_deref(), Some("/data"));
    let range = LockRange {
        offset: 0,
        length: Some(10),
        exclusive: true,
    };
    assert_eq!(lock.ranges, [range]);
    let none: Nfs4States = get(&operator, "/api/v1/nfs4/states?export=/memory")
        .value()
        .unwrap();
    assert_eq!(none, Nfs4States::default());

    let mut other = SessionClient::join(address, b"second");
    assert_eq!(other.reclaim_complete(), Status::Ok);
    let (_, theirs) = other.open(b"data", b"file").unwrap();
    assert_eq!(other.lock(&handle, theirs, false), Status::Denied);
    let path = format!("/api/v1/nfs4/states/{}", lock.stateid);
    assert_eq!(
        (delete(&operator, &path), delete(&operator, &path)),
        (204, 404)
    );
    let revoked: Nfs4State = get(&operator, &path).value().unwrap();
    assert_eq!(revoked.revocation, Some(Nfs4Revocation::Administrative));
    assert_eq!(client.flags(), sequence_flags::ADMIN_REVOKED);
    assert_eq!(other.lock(&handle, theirs, false), Status::Ok);

    client.open(b"data", b"another").unwrap();
    let forced = format!("{at}?force=true");
    let ends = [&at, &forced, &at].map(|path| delete(&operator, path));
    assert_eq!(ends, [409, 204, 404]);
    assert_eq!(client.run(&[]).status(), Status::BadSession);
    assert_eq!(other.flags(), 0);
    kill(server);
}

#[test]
fn v4_perf_08_operations_are_counted_by_kind_and_failures_by_status() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"client");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client.open(b"memory", b"file").unwrap();
    let missing = [Operation::Putrootfh(()), Operation::Lookup(b"missing")];
    for _ in 0..2 {
        assert_eq!(client.run(&missing).status(), Status::NoEntry);
    }
    // Its reply is kept, as it might have changed something.
    let [root, export] = [Operation::Putrootfh(()), Operation::Lookup(b"memory")];
    let removal = [root, export, Operation::Remove(b"missing")];
    assert_eq!(client.run(&removal).status(), Status::NoEntry);
    assert_eq!(client.repeat(&removal).status(), Status::NoEntry);
    let other = [Operation::Getfh(())];
    assert_eq!(client.repeat(&other).status(), Status::SequenceFalseRetry);
    let (_, metrics) = server.get("/metrics");
    for line in [
        "operations_total{operation=\"exchange_id\"} 1",
        "operations_total{operation=\"reclaim_complete\"} 1",
        "operations_total{operation=\"open\"} 1",
        "operations_total{operation=\"lookup\"} 4",
        "operations_total{operation=\"remove\"} 1",
        "operations_total{operation=\"read\"} 0",
        "operation_errors_total{operation=\"lookup\"} 2",
        "operation_errors_total{operation=\"open\"} 0",
        "operation_errors_total{operation=\"sequence\"} 1",
        "errors_total{status=\"noent\"} 3",
        "errors_total{status=\"seq_false_retry\"} 1",
        "replays_total 1",
    ] {
        let line = format!("\nmillrace_nfs4_{line}\n");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    kill(server);
}

#[test]
fn v4_lease_12_operators_see_the_grace_period_and_end_it() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let operator = folders.operator(&server);
    let path = "/api/v1/nfs4/grace";
    let mut client = SessionClient::join(address, b"first");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let (handle, _) = client.open(b"data", b"file").unwrap();
    let grace: GraceStatus = get(&operator, path).value().unwrap();
    assert_eq!(grace, GraceStatus::default());
    assert_eq!(delete(&operator, path), 404);
    kill(server);

    let (server, address) = folders.start();
    let operator = folders.operator(&server);
    let mut other = SessionClient::join(address, b"second");
    assert_eq!(other.reclaim_complete(), Status::Ok);
    assert_eq!(other.open(b"data", b"file"), Err(Status::Grace));
    let grace: GraceStatus = get(&operator, path).value().unwrap();
    assert_eq!((grace.active, grace.waits_for), (true, 1));
    let first = AwaitedClient {
        owner: "first".to_owned(),
        client: None,
    };
    assert_eq!(grace.awaited, [first]);
    assert!(grace.left_seconds > 0.0);
    assert_eq!(delete(&operator, path), 204);
    other.open(b"data", b"file").unwrap();
    client.reconnect(address);
    assert_eq!(client.reclaim(&handle), Err(Status::NoGrace));
    kill(server);
}

#[test]
fn v4_lease_11_lease_and_courtesy_change_while_clients_are_served() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let operator = folders.operator(&server);
    let mut client = SessionClient::join(address, b"first");
    assert_eq!(client.lease(), 90);
    let patch = Order::new(Method::Patch, "/api/v1/config")
        .if_match("*")
        .with_body(
            "application/merge-patch+json",
            br#"{"nfs4": {"lease": "200s", "courtesy": "60s"}}"#.to_vec(),
        );
    let answer = operator.send(&patch).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(client.lease(), 200);
    let path = format!("/api/v1/nfs4/clients/{:016x}", client.id);
    let shown: Nfs4Client = get(&operator, &path).value().unwrap();
    assert!(shown.lease_left_seconds > 100.0, "{shown:?}");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client.open(b"data", b"file").unwrap();
    kill(server);

    // The configuration file still has the lease of before.
    let (server, _) = folders.start();
    let operator = folders.operator(&server);
    let grace: GraceStatus = get(&operator, "/api/v1/nfs4/grace").value().unwrap();
    assert!(grace.left_seconds > 100.0, "{grace:?}");
    kill(server);
}

#[test]
fn without_version_3_only_version_4_is_served() {
    let (nfs, mount) = (100_003, 100_005);
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"first");
    assert_eq!(client.null(nfs, 3), Accepted::Success);
    assert_eq!(client.null(mount, 3), Accepted::Success);
    kill(server);

    folders.configure("nfs3: off");
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"second");
    let only_four = Accepted::ProgramMismatch { low: 4, high: 4 };
    assert_eq!(client.null(nfs, 3), only_four);
    assert_eq!(client.null(mount, 3), Accepted::ProgramUnavailable);
    assert_eq!(client.null(nfs, 4), Accepted::Success);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client.open(b"data", b"file").unwrap();
    kill(server);
}

#[test]
fn a_client_with_more_state_than_a_turn_removes_is_ended_with_all_of_it() {
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let operator = folders.operator(&server);
    let mut client = SessionClient::join(address, b"many");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    for number in 0..1200_u32 {
        let owner = number.to_be_bytes();
        let opening = client.opening(
            Some(CreateMode::Unchecked(Attributes::NONE)),
            OpenClaim::Name(b"file"),
        );
        let Operation::Open(open) = opening else {
            panic!("{opening:?}")
        };
        let owner = StateOwner {
            client: client.id,
            owner: BoundedBytes(&owner),
        };
        let all = [
            Operation::Putrootfh(()),
            Operation::Lookup(b"memory"),
            Operation::Open(OpenOperation { owner, ..open }),
        ];
        assert_eq!(client.run(&all).status(), Status::Ok);
    }
    let states = || -> Nfs4States {
        let page = get(&operator, "/api/v1/nfs4/states?kind=open&limit=1");
        page.value().unwrap()
    };
    assert_eq!(states().states.len(), 1);
    let at = format!("/api/v1/nfs4/clients/{:016x}?force=true", client.id);
    assert_eq!(delete(&operator, &at), 204);
    let listed: Nfs4Clients = get(&operator, "/api/v1/nfs4/clients").value().unwrap();
    assert!(listed.clients.is_empty());
    assert!((0..1000).any(|_| states().states.is_empty()), "it ends");
    kill(server);
}
