//! Servers of the same files that act as one, by `millraced` over TCP.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use millrace_admin::client::{Method, Order};
use millrace_admin::status::{GatewayList, GatewayTakeover};
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attributes, ClientOwner, CloseOperation, CreateMode, DelegationType, ExchangeIdOperation,
    OpenClaim, OpenDelegation, OpenOperation, Operation, OperationResults,
    OperationStatus as Status, ProtectionOffer, StateId, WriteOperation, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};
use rustix::process::Signal;

use crate::millraced::Server;
use crate::session_client::{ServerFolders, SessionClient, kill};

/// Two gateways to one folder, which others may change as well.
struct GatewayPair {
    a: ServerFolders,
    b: ServerFolders,
}

impl GatewayPair {
    fn new() -> Self {
        Self::of(|data| format!("kind: posix, root: {data}"))
    }

    /// Two gateways to a directory of a cluster, if there is one.
    fn in_cluster() -> Option<Self> {
        Self::in_cluster_with("")
    }

    /// The same, with more keys of the store.
    fn in_cluster_with(keys: &str) -> Option<Self> {
        if !cfg!(feature = "ceph") {
            millrace_testing::skip!("built without the feature `ceph`");
            return None;
        }
        let Ok(conf) = std::env::var("MILLRACE_CEPH_CONF") else {
            millrace_testing::skip!("MILLRACE_CEPH_CONF is not set, so there is no Ceph cluster");
            return None;
        };
        let store = format!("kind: ceph, conf: {conf}, user: gateway, root: /{keys}");
        Some(Self::of(|_| store))
    }

    /// Two gateways to a store, which may be in a folder.
    fn of(store: impl FnOnce(&str) -> String) -> Self {
        let [a, b] = [ServerFolders::new(), ServerFolders::new()];
        let path = |folders: &ServerFolders, name: &str| folders.0.path().join(name);
        let data = [&a, &b].map(|folders| path(folders, "data").display().to_string());
        let store = store(&data[0]);
        for (folders, own) in [&a, &b].iter().zip(&data) {
            folders.edit(&format!("kind: posix, root: {own}"), &store);
        }
        let shared = path(&a, "gateways");
        fs::create_dir(&shared).unwrap();
        let secret = path(&a, "secret");
        fs::write(&secret, "00112233445566778899aabbccddeeff\n").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        for (folders, name) in [(&a, "a"), (&b, "b")] {
            folders.configure(&format!("handle_secret: {}", secret.display()));
            folders.configure(&format!(
                "gateways: {{ name: {name}, directory: {} }}",
                shared.display()
            ));
        }
        Self { a, b }
    }

    /// Gateways that tell each other what opens access and deny.
    fn with_share_reservations(self) -> Self {
        self.a.edit("name: a,", "name: a, share_reservations: on,");
        self.b.edit("name: b,", "name: b, share_reservations: on,");
        self
    }

    /// Gateways that tell each other which changes of names they execute.
    fn with_shared_replies(self) -> Self {
        self.a.edit("name: a,", "name: a, shared_replies: on,");
        self.b.edit("name: b,", "name: b, shared_replies: on,");
        self
    }

    /// The file with the record of a gateway.
    fn record(&self, name: &str) -> PathBuf {
        let shared = self.a.0.path().join("gateways");
        shared.join(name).join("gateway")
    }

    /// Waits until the record of a gateway has a word, or has it no more.
    fn await_word(&self, name: &str, word: &str, has: bool) {
        let read = || fs::read_to_string(self.record(name)).unwrap();
        while read().split_whitespace().any(|one| one == word) != has {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn take_over(&self, server: &Server, fenced: bool) -> Result<GatewayTakeover, (u16, String)> {
        let path = format!("/api/v1/gateways/a/take-over?fenced={fenced}");
        let order = Order::new(Method::Post, path);
        let answer = self.b.operator(server).send(&order).unwrap();
        match answer.status {
            200 => Ok(answer.value().unwrap()),
            status => Err((status, answer.body.clone())),
        }
    }
}

/// A client that may get state, with a file open and a lock.
fn holder(address: SocketAddr, owner: &'static [u8], file: &[u8]) -> (SessionClient, Vec<u8>) {
    let mut client = SessionClient::join(address, owner);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let (handle, open) = client.open(b"data", file).unwrap();
    assert_eq!(client.lock(&handle, open, false), Status::Ok);
    (client, handle)
}

/// The name of a file of one test: the cluster stays.
fn own_name() -> Vec<u8> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, SeqCst);
    format!("gateways-{}-{number}", std::process::id()).into_bytes()
}

/// A client that may get state.
fn client(address: SocketAddr, owner: &'static [u8]) -> SessionClient {
    let mut client = SessionClient::join(address, owner);
    assert_eq!(client.reclaim_complete(), Status::Ok);
    client
}

/// Opens the file `file` of an export, or one that is reclaimed, for this access, and denies this.
fn open_denying(
    client: &mut SessionClient,
    reclaimed: Option<&[u8]>,
    (access, deny): (u32, u32),
) -> Result<(Vec<u8>, StateId), Status> {
    let (create, claim) = match reclaimed {
        Some(_) => (None, OpenClaim::Previous(DelegationType::None)),
        None => {
            let create = CreateMode::Unchecked(Attributes::NONE);
            (Some(create), OpenClaim::Name(&b"file"[..]))
        }
    };
    let Operation::Open(open) = client.opening(create, claim) else {
        panic!("an OPEN")
    };
    let at = reclaimed.map_or(Operation::Putrootfh(()), |handle| {
        Operation::Putfh(BoundedBytes(handle))
    });
    let mut all = vec![at];
    all.extend(reclaimed.is_none().then_some(Operation::Lookup(b"data")));
    let opening = Operation::Open(OpenOperation {
        access,
        deny,
        ..open
    });
    all.extend([opening, Operation::Getfh(())]);
    let results = client.run(&all);
    match results.status() {
        Status::Ok => {}
        status => return Err(status),
    }
    let last = all.len();
    let handle = results.read(|_, all| match all[last] {
        OperationResults::Getfh(Ok(handle)) => handle.0.to_vec(),
        ref other => panic!("{other:?}"),
    });
    Ok((handle, results.state(last - 1)))
}

fn close(client: &mut SessionClient, handle: &[u8], open: StateId) -> Status {
    let close = CloseOperation { sequence: 0, open };
    let all = [
        Operation::Putfh(BoundedBytes(handle)),
        Operation::Close(close),
    ];
    client.run(&all).status()
}

/// Waits until a client's gateway grants opens again, which is a moment after its record says so.
fn await_grants(client: &mut SessionClient) {
    while client.open(b"data", b"granted") == Err(Status::Grace) {
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn stop(server: &mut Server) {
    server.signal(Signal::TERM);
    let status = server.process.wait().unwrap();
    assert!(status.success(), "{status}: {}", server.read);
}

/// Owner and scope, as a server tells them.
fn identity(address: SocketAddr) -> (Vec<u8>, Vec<u8>) {
    let exchange = Operation::ExchangeId(ExchangeIdOperation {
        owner: ClientOwner {
            verifier: [3; 8],
            owner: BoundedBytes(b"curious"),
        },
        flags: 0,
        protection: ProtectionOffer::Unprotected,
        implementation: None,
    });
    let mut client = SessionClient::join(address, b"any");
    client.compound(&[exchange]).read(|_, all| match all[0] {
        OperationResults::ExchangeId(Ok(reply)) => {
            (reply.owner.major.0.to_vec(), reply.scope.0.to_vec())
        }
        ref other => panic!("{other:?}"),
    })
}

#[test]
fn gateways_have_one_scope_and_the_same_handles_and_meet_locks_of_each_other() {
    let pair = GatewayPair::new();
    let (a, at_a) = pair.a.start();
    let (b, at_b) = pair.b.start();
    let (owner_a, scope_a) = identity(at_a);
    let (owner_b, scope_b) = identity(at_b);
    assert_eq!(scope_a, scope_b);
    assert_ne!(owner_a, owner_b);
    let (_holder, handle) = holder(at_a, b"first", b"file");
    let mut other = client(at_b, b"second");
    let (found, open) = other.open(b"data", b"file").unwrap();
    assert_eq!(found, handle);
    assert_eq!(other.lock(&found, open, false), Status::Denied);
    // The other one would not know.
    let create = Some(CreateMode::Unchecked(Attributes::NONE));
    let opening = other.opening(create, OpenClaim::Name(b"denied"));
    let Operation::Open(open) = opening else {
        panic!("{opening:?}")
    };
    for (deny, status) in [(share::WRITE, Status::ShareDenied), (0, Status::Ok)] {
        let opening = Operation::Open(OpenOperation { deny, ..open });
        let all = [
            Operation::Putrootfh(()),
            Operation::Lookup(b"data"),
            opening,
        ];
        assert_eq!(other.run(&all).status(), status);
    }
    let list: GatewayList = pair
        .b
        .operator(&b)
        .get("/api/v1/gateways")
        .unwrap()
        .value()
        .unwrap();
    let shown: Vec<_> = list
        .gateways
        .iter()
        .map(|one| (&*one.name, one.this, one.grants))
        .collect();
    assert_eq!(shown, [("a", false, true), ("b", true, true)]);
    let missing = Order::new(Method::Post, "/api/v1/gateways/c/take-over");
    assert_eq!(pair.b.operator(&b).send(&missing).unwrap().status, 404);
    let own = Order::new(Method::Post, "/api/v1/gateways/b/take-over?fenced=true");
    assert_eq!(pair.b.operator(&b).send(&own).unwrap().status, 409);
    kill(a);
    kill(b);
}

#[test]
fn a_gateway_answers_a_repeated_change_as_the_one_did_that_it_replaces() {
    for shares in [true, false] {
        let pair = GatewayPair::new();
        let pair = if shares {
            pair.with_shared_replies()
        } else {
            pair
        };
        let (a, at_a) = pair.a.start();
        let (b, at_b) = pair.b.start();
        let [mut first, mut second] = [&b"first"[..], b"second"].map(|owner| client(at_a, owner));
        first.open(b"data", b"file").unwrap();
        let remove = [
            Operation::Putrootfh(()),
            Operation::Lookup(b"data"),
            Operation::Remove(b"file"),
        ];
        assert_eq!(first.run(&remove).status(), Status::Ok);
        // Makes a file when the reply is recorded.
        second.open(b"data", b"other").unwrap();
        kill(a);
        pair.take_over(&b, true).unwrap();
        let again = first.repeat_at(at_b, &remove).status();
        let expected = if shares {
            Status::Ok
        } else {
            Status::BadSession
        };
        assert_eq!(again, expected);
        first.reconnect(at_b);
        assert_eq!(first.run(&remove).status(), Status::NoEntry);
        kill(b);
    }
}

#[test]
fn v4_open_15_gateways_respect_what_each_others_opens_deny() {
    let pair = GatewayPair::new().with_share_reservations();
    let (mut a, at_a) = pair.a.start();
    let (b, at_b) = pair.b.start();
    let (reads, writes) = ((share::READ, 0), (share::WRITE, 0));
    let mut first = client(at_a, b"first");
    let mut other = client(at_b, b"second");
    let (handle, open) = open_denying(&mut first, None, (share::READ, share::WRITE)).unwrap();
    assert_eq!(
        open_denying(&mut other, None, writes),
        Err(Status::ShareDenied)
    );
    let (found, read) = open_denying(&mut other, None, reads).unwrap();
    assert_eq!(found, handle);
    let denied = (share::READ, share::READ);
    assert_eq!(
        open_denying(&mut other, None, denied),
        Err(Status::ShareDenied)
    );
    assert_eq!(close(&mut other, &found, read), Status::Ok);
    // What is reclaimed is denied again.
    stop(&mut a);
    let (a, at_a) = pair.a.start();
    assert_eq!(open_denying(&mut other, None, reads), Err(Status::Grace));
    first.reconnect(at_a);
    let both = (share::READ, share::WRITE);
    let (_, reclaimed) = open_denying(&mut first, Some(&handle), both).unwrap();
    assert_ne!(reclaimed, open);
    assert_eq!(first.reclaim_complete(), Status::Ok);
    await_grants(&mut other);
    assert_eq!(
        open_denying(&mut other, None, writes),
        Err(Status::ShareDenied)
    );
    assert_eq!(close(&mut first, &handle, reclaimed), Status::Ok);
    // The end of a gateway ends what its clients have denied.
    let (_, write) = await_open(&mut other, writes);
    assert_eq!(close(&mut other, &handle, write), Status::Ok);
    await_open(&mut first, (share::READ, share::BOTH));
    kill(a);
    await_open(&mut other, (share::BOTH, 0));
    kill(b);
}

/// Opens a file that another gateway has just closed, or lost: others are told afterwards.
fn await_open(client: &mut SessionClient, shares: (u32, u32)) -> (Vec<u8>, StateId) {
    loop {
        match open_denying(client, None, shares) {
            Ok(opened) => return opened,
            Err(Status::ShareDenied) => std::thread::yield_now(),
            Err(status) => panic!("{status:?}"),
        }
    }
}

#[test]
fn nobody_grants_anything_while_clients_of_a_gateway_may_reclaim() {
    let pair = GatewayPair::new();
    let (mut a, at_a) = pair.a.start();
    let (b, at_b) = pair.b.start();
    let mut other = client(at_b, b"second");
    let (mut first, handle) = holder(at_a, b"first", b"file");
    stop(&mut a);
    // The lock is gone from the folder, and nobody gets it.
    let record = fs::read_to_string(pair.record("a")).unwrap();
    assert!(record.contains("enforces recovers proved"), "{record}");
    assert_eq!(other.open(b"data", b"file"), Err(Status::Grace));
    let (a, at_a) = pair.a.start();
    assert_eq!(other.open(b"data", b"file"), Err(Status::Grace));
    first.reconnect(at_a);
    let open = first.reclaim(&handle).unwrap();
    assert_eq!(first.lock(&handle, open, true), Status::Ok);
    assert_eq!(first.reclaim_complete(), Status::Ok);
    await_grants(&mut other);
    let (_, open) = other.open(b"data", b"file").unwrap();
    assert_eq!(other.lock(&handle, open, false), Status::Denied);
    kill(a);
    kill(b);
}

#[test]
fn clients_of_a_gateway_of_folders_that_was_killed_reclaim_nothing() {
    let pair = GatewayPair::new();
    let (a, at_a) = pair.a.start();
    let (b, at_b) = pair.b.start();
    let (mut first, handle) = holder(at_a, b"first", b"file");
    kill(a);
    // The host has freed the lock, so somebody else may have had it.
    let (mut other, _) = holder(at_b, b"second", b"file");
    let (a, at_a) = pair.a.start();
    assert!(a.read.contains("they reclaim nothing"), "{}", a.read);
    first.reconnect(at_a);
    assert_eq!(first.reclaim(&handle), Err(Status::NoGrace));
    assert_eq!(first.reclaim_complete(), Status::Ok);
    await_grants(&mut first);
    let (_, open) = first.open(b"data", b"file").unwrap();
    assert_eq!(first.lock(&handle, open, false), Status::Denied);
    await_grants(&mut other);
    other.open(b"data", b"another").unwrap();
    kill(a);
    kill(b);
}

#[test]
fn a_gateway_takes_the_place_of_one_that_was_stopped() {
    let pair = GatewayPair::new();
    let (mut a, at_a) = pair.a.start();
    let (b, at_b) = pair.b.start();
    let mut other = client(at_b, b"second");
    let (mut first, handle) = holder(at_a, b"first", b"file");
    stop(&mut a);
    let (status, why) = pair.take_over(&b, false).unwrap_err();
    assert_eq!(status, 409);
    assert!(why.contains("/data") && why.contains("--fenced"), "{why}");
    let taken = pair.take_over(&b, true).unwrap();
    assert_eq!((taken.clients, taken.may_reclaim), (1, true));
    // Its address leads to the other gateway now.
    first.reconnect(at_b);
    let open = first.reclaim(&handle).unwrap();
    assert_eq!(first.lock(&handle, open, true), Status::Ok);
    assert_eq!(other.open(b"data", b"file"), Err(Status::Grace));
    assert_eq!(first.reclaim_complete(), Status::Ok);
    await_grants(&mut other);
    let (_, open) = other.open(b"data", b"file").unwrap();
    assert_eq!(other.lock(&handle, open, false), Status::Denied);
    // When it starts again, it has nothing of that client.
    let (a, at_a) = pair.a.start();
    let mut back = SessionClient::join(at_a, b"first");
    assert_eq!(back.reclaim(&handle), Err(Status::NoGrace));
    kill(a);
    kill(b);
}

#[test]
fn clients_that_were_taken_are_recorded_by_the_next_start() {
    let pair = GatewayPair::new();
    let (mut a, at_a) = pair.a.start();
    let (mut b, _) = pair.b.start();
    let (mut first, handle) = holder(at_a, b"first", b"file");
    stop(&mut a);
    assert_eq!(pair.take_over(&b, true).unwrap().clients, 1);
    stop(&mut b);
    // As if it had ended before it recorded them.
    let clients = pair.record("b").with_file_name("clients");
    let records = fs::read_dir(&clients)
        .unwrap()
        .map(|one| one.unwrap().path());
    let records = records.filter(|file| file.extension().is_some_and(|end| end == "client"));
    assert_eq!(
        records.map(|file| fs::remove_file(file).unwrap()).count(),
        1
    );
    // They reclaim what was taken, and then what they have here.
    for turn in 0..2 {
        if turn > 0 {
            stop(&mut b);
        }
        let at_b;
        (b, at_b) = pair.b.start();
        first.reconnect(at_b);
        let open = first.reclaim(&handle).unwrap();
        assert_eq!(first.lock(&handle, open, true), Status::Ok);
        assert_eq!(first.reclaim_complete(), Status::Ok);
        pair.await_word("b", "enforces", false);
    }
    kill(b);
}

#[test]
fn clients_of_a_gateway_of_a_cluster_that_was_killed_reclaim_at_its_next_start() {
    let Some(pair) = GatewayPair::in_cluster() else {
        return;
    };
    let name = own_name();
    let (a, at_a) = pair.a.start();
    let (mut b, at_b) = pair.b.start();
    let (mut first, handle) = holder(at_a, b"first", &name);
    let mut other = client(at_b, b"second");
    let (_, open) = other.open(b"data", &name).unwrap();
    kill(a);
    // The cluster keeps the session of the gateway for a while, with the lock.
    let (mut a, at_a) = pair.a.start();
    assert_eq!(other.lock(&handle, open, false), Status::Grace);
    first.reconnect(at_a);
    let reclaimed = first.reclaim(&handle).unwrap();
    assert_eq!(first.lock(&handle, reclaimed, true), Status::Ok);
    assert_eq!(first.reclaim_complete(), Status::Ok);
    await_grants(&mut other);
    assert_eq!(other.lock(&handle, open, false), Status::Denied);
    stop(&mut a);
    stop(&mut b);
}

#[test]
fn a_gateway_of_a_cluster_takes_the_place_of_one_that_runs() {
    let Some(pair) = GatewayPair::in_cluster() else {
        return;
    };
    let name = own_name();
    let (mut a, at_a) = pair.a.start();
    let (mut b, at_b) = pair.b.start();
    let mut other = client(at_b, b"second");
    let (mut first, handle) = holder(at_a, b"first", &name);
    // Not switched off: its session is ended.
    a.signal(Signal::STOP);
    let taken = pair.take_over(&b, false).unwrap();
    assert_eq!((taken.clients, taken.may_reclaim), (1, true));
    first.reconnect(at_b);
    let open = first.reclaim(&handle).unwrap();
    assert_eq!(first.lock(&handle, open, true), Status::Ok);
    assert_eq!(other.open(b"data", &name), Err(Status::Grace));
    assert_eq!(first.reclaim_complete(), Status::Ok);
    await_grants(&mut other);
    let (_, open) = other.open(b"data", &name).unwrap();
    assert_eq!(other.lock(&handle, open, false), Status::Denied);
    a.signal(Signal::CONT);
    assert_eq!(a.process.wait().unwrap().code(), Some(75));
    stop(&mut b);
}

/// Opens a file for reading, and returns the handle and the delegation that comes with it.
fn delegated(holder: &mut SessionClient, name: &[u8]) -> (Vec<u8>, StateId) {
    let create = CreateMode::Unchecked(Attributes::NONE);
    let Operation::Open(open) = holder.opening(Some(create), OpenClaim::Name(name)) else {
        panic!("an OPEN")
    };
    let opening = Operation::Open(OpenOperation {
        access: share::READ | share::WANT_READ,
        ..open
    });
    let (top, lookup) = (Operation::Putrootfh(()), Operation::Lookup(b"data"));
    let opened = holder.run(&[top, lookup, opening, Operation::Getfh(())]);
    opened.read(|_, all| match (&all[3], &all[4]) {
        (OperationResults::Open(Ok(reply)), OperationResults::Getfh(Ok(handle))) => {
            let OpenDelegation::Read(delegation) = &reply.delegation else {
                panic!("{reply:?}")
            };
            (handle.0.to_vec(), delegation.state)
        }
        other => panic!("{other:?}"),
    })
}

fn give_back(holder: &mut SessionClient, handle: &[u8], delegation: StateId) -> Status {
    let all = [
        Operation::Putfh(BoundedBytes(handle)),
        Operation::Delegreturn(delegation),
    ];
    holder.run(&all).status()
}

#[test]
fn what_others_do_at_another_gateway_of_a_cluster_recalls_a_delegation() {
    let Some(pair) = GatewayPair::in_cluster_with(", delegations: true") else {
        return;
    };
    let (mut a, at_a) = pair.a.start();
    let (mut b, at_b) = pair.b.start();
    let mut holder = SessionClient::join_as(at_a, b"first", true);
    assert_eq!(holder.reclaim_complete(), Status::Ok);

    // It opens and writes a file that only the other gateway has used.
    let name = own_name();
    let (handle, delegation) = delegated(&mut holder, &name);
    let writer = std::thread::spawn(move || {
        let mut other = client(at_b, b"second");
        let (handle, open) = other.open(b"data", &name).unwrap();
        let write = Operation::Write(WriteOperation {
            state: open,
            offset: 0,
            stable: Stability::FileSync,
            data: Bulk::inline(b"data"),
        });
        let all = [Operation::Putfh(BoundedBytes(&handle)), write];
        assert_eq!(other.run(&all).status(), Status::Ok);
        other
    });
    assert_eq!(holder.recalled(), delegation);
    assert!(!writer.is_finished());
    assert_eq!(give_back(&mut holder, &handle, delegation), Status::Ok);
    let mut other = writer.join().unwrap();

    // It locks a file that it had open already.
    let name = own_name();
    let (handle, open) = other.open(b"data", &name).unwrap();
    let (found, delegation) = delegated(&mut holder, &name);
    assert_eq!(found, handle);
    assert_eq!(other.lock(&handle, open, false), Status::Delay);
    assert_eq!(holder.recalled(), delegation);
    assert_eq!(other.lock(&handle, open, false), Status::Delay);
    assert_eq!(give_back(&mut holder, &handle, delegation), Status::Ok);
    let mut locked = Status::Delay;
    while locked == Status::Delay {
        std::thread::park_timeout(Duration::from_millis(20));
        locked = other.lock(&handle, open, false);
    }
    assert_eq!(locked, Status::Ok);
    stop(&mut a);
    stop(&mut b);
}

#[test]
fn a_gateway_whose_place_is_taken_ends() {
    let pair = GatewayPair::new();
    let (mut a, at_a) = pair.a.start();
    let (b, at_b) = pair.b.start();
    let (_first, handle) = holder(at_a, b"first", b"file");
    let taken = pair.take_over(&b, true).unwrap();
    assert_eq!((taken.clients, taken.may_reclaim), (0, false));
    assert_eq!(a.process.wait().unwrap().code(), Some(75));
    a.until("taken the place of this one");
    pair.await_word("b", "enforces", false);
    let (_other, found) = holder(at_b, b"second", b"file");
    assert_eq!(found, handle);
    kill(b);
}

#[test]
fn a_gateway_that_starts_waits_until_the_others_grant_nothing() {
    let pair = GatewayPair::new();
    let (mut a, at_a) = pair.a.start();
    let (b, _) = pair.b.start();
    let (mut first, handle) = holder(at_a, b"first", b"file");
    stop(&mut a);
    // One that was killed, so that it does not say that it grants nothing.
    kill(b);
    let record = pair.record("b");
    fs::write(&record, "millrace-gateway-1\n").unwrap();
    let mut waiting = pair.a.spawn();
    waiting.until("waiting until these grant nothing");
    fs::remove_dir_all(record.parent().unwrap()).unwrap();
    waiting.await_service();
    first.reconnect(ServerFolders::address(&waiting));
    first.reclaim(&handle).unwrap();
    // A name is used by one process only.
    let mut second = pair.a.spawn();
    second.until("is used by another millraced");
    kill(waiting);
}
