//! The state of NFS version 4's clients in the API and on the command line.

mod support;

use millrace_admin::client::{Client, ClientToken, Method, Order};
use millrace_admin::config::{Config, to_yaml};
use millrace_admin::control::Control;
use millrace_admin::status::*;
use support::ctl::{Bench, TOKEN, has};
use support::nfs4::{client, state};

const FIRST: &str = "5f2a9c0000000001";
const SECOND: &str = "5f2a9c0000000002";
const OPEN: &str = "5f2a01000000000000000001";

/// Asks with the token; gives the status and the body.
fn ask(bench: &Bench, method: Method, path: &str) -> (u16, String) {
    let address = format!("http://{}", bench.admin.address());
    let token = ClientToken::read(&bench.file("token")).unwrap();
    let client = Client::new(&address).unwrap().with_token(token);
    let answer = client.send(&Order::new(method, path)).unwrap();
    assert!(!answer.body.contains(TOKEN));
    (answer.status, answer.body)
}

fn value<T: serde::de::DeserializeOwned>(bench: &Bench, path: &str) -> T {
    let (status, body) = ask(bench, Method::Get, path);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn lists_have_pages_and_filters() {
    let bench = Bench::new();
    let all: Nfs4Clients = value(&bench, "/api/v1/nfs4/clients");
    assert_eq!((all.clients.len(), all.next), (2, None));
    let page: Nfs4Clients = value(&bench, "/api/v1/nfs4/clients?limit=1");
    assert_eq!(
        (&page.clients[..], page.next),
        (&[client(FIRST)][..], Some(1))
    );
    let page: Nfs4Clients = value(&bench, "/api/v1/nfs4/clients?limit=1&after=1");
    assert_eq!((&page.clients[0].id[..], page.next), (SECOND, None));

    let count = |query: &str| {
        let list: Nfs4States = value(&bench, &format!("/api/v1/nfs4/states{query}"));
        list.states.len()
    };
    assert_eq!(count(""), 2);
    assert_eq!(count("?kind=lock"), 1);
    assert_eq!(count(&format!("?client={FIRST}&export=/scratch")), 2);
    assert_eq!(count(&format!("?client={SECOND}")), 0);
    assert_eq!(count("?export=/data"), 0);
    assert_eq!(count("?address=192.0.2.1"), 2);
    assert_eq!(count("?address=::ffff:192.0.2.1&kind=open"), 1);
    assert_eq!(count("?address=192.0.2.2"), 0);
}

#[test]
fn queries_that_cannot_be_are_refused() {
    let bench = Bench::new();
    for query in [
        "clients?limit=0",
        "clients?limit=1001",
        "clients?after=-1",
        "clients?after=4294967296",
        "clients?kind=open",
        "clients?what=1",
        "states?kind=all",
        "states?client=7",
        "states?limit=many",
    ] {
        let (status, body) = ask(&bench, Method::Get, &format!("/api/v1/nfs4/{query}"));
        assert_eq!(status, 400, "{query}: {body}");
        assert!(body.contains(ProblemType::Query.uri()), "{body}");
    }
    // It may be one by its form.
    for text in ["host", "4"] {
        let path = format!("/api/v1/nfs4/states?address={text}");
        let (status, body) = ask(&bench, Method::Get, &path);
        assert_eq!(status, 422, "{body}");
        assert!(body.contains(&format!("`{text}` is no address")), "{body}");
    }
}

#[test]
fn a_client_is_shown_and_ended_once() {
    let bench = Bench::new();
    let path = format!("/api/v1/nfs4/clients/{FIRST}");
    assert_eq!(value::<Nfs4Client>(&bench, &path), client(FIRST));
    let forced = format!("{path}?force=true");
    assert_eq!(ask(&bench, Method::Delete, &forced), (204, String::new()));
    for method in [Method::Get, Method::Delete] {
        let (status, body) = ask(&bench, method, &path);
        assert_eq!(status, 404);
        assert!(body.contains("no client 5f2a9c0000000001"), "{body}");
    }
    assert_eq!(bench.service.nfs4.clients.lock().unwrap().len(), 1);
}

#[test]
fn a_state_is_shown_and_revoked_once() {
    let bench = Bench::new();
    let path = format!("/api/v1/nfs4/states/{OPEN}");
    let shown: Nfs4State = value(&bench, &path);
    assert_eq!(shown, state(OPEN, Nfs4StateKind::Open));
    assert_eq!(ask(&bench, Method::Delete, &path).0, 204);
    assert_eq!(ask(&bench, Method::Delete, &path).0, 404);
    assert_eq!(bench.service.nfs4.states.lock().unwrap().len(), 1);
}

#[test]
fn the_grace_period_is_shown_and_ended_once() {
    let bench = Bench::new();
    let path = "/api/v1/nfs4/grace";
    let shown: GraceStatus = value(&bench, path);
    assert_eq!((shown.active, shown.waits_for), (true, 3));
    assert_eq!(ask(&bench, Method::Delete, path).0, 204);
    assert_eq!(ask(&bench, Method::Delete, path).0, 404);
    assert_eq!(value::<GraceStatus>(&bench, path), GraceStatus::default());
}

#[test]
fn orders_are_in_the_audit_file() {
    let bench = Bench::new();
    let file = bench.file("audit");
    let mut config = Config::clone(&bench.service.config());
    config.admin.audit_file = Some(file.clone());
    bench.write("millraced.yaml", &to_yaml(&config));
    bench.says(&["config", "reload"]);
    bench.says(&["nfs4", "end", FIRST, "--force"]);
    bench.says(&["nfs4", "revoke", OPEN]);
    bench.ends(1, &["nfs4", "revoke", OPEN]);
    bench.says(&["nfs4", "end-grace"]);
    let audit = std::fs::read_to_string(file).unwrap();
    has(
        &audit,
        &[
            "end NFS version 4 client 5f2a9c0000000001",
            "revoke NFS version 4 state 5f2a01000000000000000001",
            "not_found",
            "end the grace period",
        ],
    );
}

#[test]
fn the_command_line_shows_who_has_what() {
    let bench = Bench::new();
    let clients = bench.says(&["nfs4"]);
    has(
        &clients,
        &[FIRST, "192.0.2.1", "61.0s", "silent 5min", "Linux NFSv4.2"],
    );
    let page = bench.says(&["nfs4", "clients", "--limit", "1"]);
    has(&page, &["more with --after 1"]);
    let one = bench.says(&["nfs4", "client", SECOND]);
    has(
        &one,
        &["state kept", "24h", "down", "5 ranges of 1 owner", "4.2"],
    );
    let states = bench.says(&["nfs4", "states", "--kind", "lock", "--client", FIRST]);
    let ranges = "0-99w 200-r and 7 more (1 waiting)";
    has(&states, &["lock", ranges, "/scratch", "00c0ffee"]);
    assert!(!states.contains(OPEN), "{states}");
    let grace = bench.says(&["nfs4", "grace"]);
    has(
        &grace,
        &[
            "42.0s left at most, waits for 3 clients",
            "here: reclaims as 5f2a9c0000000001",
            "away: has not returned",
            "and 1 more",
        ],
    );
    let json = bench.json(&["nfs4", "states"]);
    assert_eq!(json["states"][0]["access"], "both");
}

#[test]
fn the_command_line_ends_and_revokes() {
    let bench = Bench::new();
    let gone = format!("client {FIRST} is gone\n");
    assert_eq!(bench.says(&["nfs4", "end", FIRST, "--force"]), gone);
    let (_, complaint) = bench.ends(1, &["nfs4", "end", FIRST]);
    has(&complaint, &["404", FIRST]);
    let revoked = format!("{OPEN} is revoked\n");
    assert_eq!(bench.says(&["nfs4", "revoke", OPEN]), revoked);
    let (_, complaint) = bench.ends(1, &["nfs4", "revoke", OPEN]);
    has(&complaint, &["404", "no such state"]);
    assert_eq!(
        bench.says(&["nfs4", "end-grace"]),
        "the grace period has ended\n"
    );
    has(&bench.says(&["nfs4", "grace"]), &["no grace period"]);
}
