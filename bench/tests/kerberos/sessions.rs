//! Calls one by one.

use millrace_bench::client::{self, ClientOptions};
use millrace_bench::requester::Session;
use millrace_bench::requester::session::CopyOptions;
use millrace_wire::nfs3::{CreateHow, FileHandle, SetAttributes};

use super::{KERBEROS, Realm, service, with_tickets};

/// More than one call moves.
const BYTES: usize = 2_000_001;

fn data() -> Vec<u8> {
    (0..BYTES)
        .map(|index| (index * 7 + index / 251) as u8)
        .collect()
}

fn create(session: &mut Session, root: FileHandle) -> FileHandle {
    let how = CreateHow::Guarded(SetAttributes::default());
    session.create(root, b"file", how).expect("created");
    session.lookup(root, b"file").expect("there").object
}

/// The whole file by calls of the largest size, and by small ones.
fn copy(session: &mut Session, file: FileHandle) {
    let data = data();
    for block in [None, Some(10_000)] {
        let options = CopyOptions { block, depth: 8 };
        let copied = session.copy_in(file, &mut &data[..], options);
        assert_eq!(copied.expect("written"), BYTES as u64);
        let mut read = Vec::new();
        session.copy_out(file, &mut read, options).expect("read");
        assert!(read == data, "{block:?}");
    }
}

/// Writes and reads a file of a service with each kind of security that takes a ticket.
fn copy_with_each(realm: &Realm, more: &str, change: impl Fn(&mut ClientOptions)) {
    for security in KERBEROS {
        let service = super::start(security, &format!("{}\n{more}", super::gss(realm)));
        let mut client = super::client(&service, security);
        change(&mut client.options);
        let pool = client::pool(64 << 20).expect("memory");
        let session = client.session(&pool, client.settings(16));
        let mut session = session.expect(security);
        let file = create(&mut session, client.root().expect("mounts"));
        copy(&mut session, file);
        let connection = session.connection();
        let fetched = connection.counters().read_chunk_replies > 0;
        assert_eq!(fetched, client.options.classic);
        let version = client::spoken(connection);
        assert_eq!(version == 2, client.options.version_two);
        session.close();
    }
}

#[test]
fn gss_ctx_05_rr1_sec_01_data_is_written_and_read_back_with_each_service() {
    let test = "sessions::gss_ctx_05_rr1_sec_01_data_is_written_and_read_back_with_each_service";
    with_tickets(test, |realm| copy_with_each(realm, "", |_| {}));
}

#[test]
fn gss_rdma_03_the_same_by_version_two() {
    let test = "sessions::gss_rdma_03_the_same_by_version_two";
    with_tickets(test, |realm| {
        copy_with_each(realm, "", |options| options.version_two = true);
    });
}

#[test]
fn gss_rdma_07_the_same_from_a_server_in_classic_mode() {
    let test = "sessions::gss_rdma_07_the_same_from_a_server_in_classic_mode";
    with_tickets(test, |realm| {
        let classic = "rpcrdma: { read_chunk_replies: on }";
        copy_with_each(realm, classic, |options| options.classic = true);
    });
}

#[test]
fn gss_ctx_15_a_context_is_ended_with_its_session() {
    let test = "sessions::gss_ctx_15_a_context_is_ended_with_its_session";
    with_tickets(test, |realm| {
        for security in KERBEROS {
            let service = service(realm, security);
            let client = super::client(&service, security);
            let pool = client::pool(16 << 20).expect("memory");
            let mut session = client.session(&pool, client.settings(4)).expect(security);
            session.null().expect("answered");
            let context = session.connection().context().cloned().expect("one");
            // By another session, which has a context of its own.
            let mut other = client.session(&pool, client.settings(4)).expect(security);
            other.end_context(&context).expect("answered");
            let error = session.null().expect_err("it is gone").to_string();
            assert!(error.contains("RPCSEC_GSS_CREDPROBLEM"), "{error}");
            let context = other.connection().context().cloned().expect("one");
            other.close();
            let mut last = client.session(&pool, client.settings(4)).expect(security);
            last.authenticate(context);
            last.null()
                .expect_err("it was ended when its session was closed");
        }
    });
}
