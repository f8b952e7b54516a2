//! The endpoints of the API, over real sockets, against a service without reactors.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use millrace_admin::api::AdminHandle;
use millrace_admin::change::{ChangeHistory, ChangeReport};
use millrace_admin::client::{Answer, Client, ClientToken, Method, Order};
use millrace_admin::config::{Config, Network};
use millrace_admin::control::{ApplyError, Nfs4Control};
use millrace_admin::status::*;
use serde_json::{Value, json};
use support::{Service, connection};

mod support;

const TOKEN: &str = "a token of sufficient length";

struct Api {
    service: Arc<Service>,
    handle: AdminHandle,
    client: Client,
    _folder: tempfile::TempDir,
}

/// A server with a token, and a client that has it.
fn api() -> Api {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let mut options = std::fs::OpenOptions::new();
    let mut written = options
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&file)
        .unwrap();
    written
        .write_all(TOKEN.replace(' ', "-").as_bytes())
        .unwrap();
    let mut config = Config::default();
    config.admin.token_file = Some(file.clone());
    let service = Service::new(config);
    let handle = service.serve();
    let client = Client::new(&format!("http://{}", handle.address())).unwrap();
    Api {
        service,
        client: client.with_token(ClientToken::read(&file).unwrap()),
        handle,
        _folder: folder,
    }
}

impl Api {
    fn ask(&self, method: Method, path: &str) -> Answer {
        self.client.send(&Order::new(method, path)).unwrap()
    }

    fn tell(&self, method: Method, path: &str, body: &Value) -> Answer {
        let order = Order::new(method, path).with_body("application/json", body.to_string());
        self.client.send(&order).unwrap()
    }

    /// Sends bytes, with the token, and reads to the end of the connection.
    fn raw(&self, line: &str, headers: &str, body: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.handle.address()).unwrap();
        let token = TOKEN.replace(' ', "-");
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
             content-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }
}

fn problem(answer: &Answer, status: u16) -> Problem {
    assert_eq!(answer.status, status, "{answer:?}");
    let problem = answer.problem().unwrap();
    assert_eq!(problem.status, status);
    problem
}

#[test]
fn single_connections_are_shown_and_closed() {
    let api = api();
    let path = "/api/v1/connections/7";
    let shown: ConnectionStatus = api.ask(Method::Get, path).value().unwrap();
    assert_eq!(shown, connection());
    let forced = format!("{path}?force=true");
    let closed: Evicted = api.ask(Method::Delete, &forced).value().unwrap();
    assert_eq!(closed.connections, 1);
    for method in [Method::Get, Method::Delete] {
        let gone = problem(&api.ask(method, path), 404);
        assert!(gone.detail.contains("no connection 7"), "{gone:?}");
    }
}

#[test]
fn names_that_can_be_none_are_not_found() {
    let api = api();
    for path in [
        "/api/v1/connections/x",
        "/api/v1/connections/-1",
        "/api/v1/connections/+7",
        "/api/v1/connections/07",
        "/api/v1/connections/7.0",
        "/api/v1/connections/18446744073709551616",
        "/api/v1/connections/%ff",
        "/api/v1/clients/here",
        "/api/v1/clients/192.0.2.1:800",
        "/api/v1/clients/%00",
        "/api/v1/nfs4/clients/7",
        "/api/v1/nfs4/clients/5F2A9C0000000001",
        "/api/v1/nfs4/clients/5f2a9c000000000g",
        "/api/v1/nfs4/states/5f2a9c0000000001",
        "/api/v1/nfs4/states/+f2a01000000000000000001",
    ] {
        for method in [Method::Get, Method::Delete] {
            let answer = problem(&api.ask(method, path), 404);
            assert!(answer.detail.contains("the name in it"), "{answer:?}");
        }
    }
}

#[test]
fn all_connections_of_a_client_are_closed_and_no_others() {
    let api = api();
    let peer = |id: u64, peer: &str| ConnectionStatus {
        id,
        peer: peer.to_owned(),
        ..connection()
    };
    *api.service.connections.lock().unwrap() = vec![
        peer(1, "192.0.2.1:800"),
        peer(2, "[::ffff:192.0.2.1]:801"),
        peer(3, "192.0.2.10:800"),
    ];
    // The same client by another of its names.
    let path = "/api/v1/clients/::ffff:192.0.2.1";
    let shown: ClientStatus = api.ask(Method::Get, path).value().unwrap();
    assert_eq!(shown.address, "192.0.2.1");
    let forced = format!("{path}?force=true");
    let closed: Evicted = api.ask(Method::Delete, &forced).value().unwrap();
    assert_eq!(closed.connections, 2);
    let left: Connections = api.ask(Method::Get, "/api/v1/connections").value().unwrap();
    assert_eq!(left.connections, [peer(3, "192.0.2.10:800")]);
    problem(&api.ask(Method::Delete, path), 404);
}

#[test]
fn a_capture_comes_as_a_file() {
    let api = api();
    let answer = api.raw(
        "POST /api/v1/connections/7/capture",
        "content-type: application/json; charset=utf-8\r\n",
        "{}",
    );
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    assert!(
        head.contains("content-type: application/vnd.tcpdump.pcap"),
        "{head}"
    );
    assert!(
        head.contains("content-disposition: attachment; filename=\"millrace-connection-7.pcap\""),
        "{head}"
    );
    assert_eq!(body, "8\r\ncaptured\r\n0\r\n\r\n");
    let path = "/api/v1/connections/8/capture";
    problem(&api.tell(Method::Post, path, &json!({})), 404);
}

#[test]
fn bounds_of_captures_are_checked_each() {
    let api = api();
    let path = "/api/v1/connections/7/capture";
    for (body, fields) in [
        (json!({"messages": 0}), vec!["messages"]),
        (
            json!({"messages": 1_000_001, "bytes": 1}),
            vec!["messages", "bytes"],
        ),
        (json!({"seconds": -0.5}), vec!["seconds"]),
        (
            json!({"seconds": 3600.1, "bytes": 1_u64 << 31}),
            vec!["bytes", "seconds"],
        ),
        (json!({"messages": -1}), vec!["messages"]),
        (json!({"messages": "ten"}), vec!["messages"]),
        (json!({"packets": 1}), vec!["packets"]),
        (json!(7), vec![""]),
    ] {
        let problem = problem(&api.tell(Method::Post, path, &body), 422);
        let found: Vec<&str> = problem.errors.iter().map(|error| &*error.path).collect();
        assert_eq!(found, fields, "{problem:?}");
    }
}

#[test]
fn a_drain_begins_is_seen_and_taken_back() {
    let api = api();
    let path = "/api/v1/drain";
    let phase = |answer: Answer| answer.value::<DrainStatus>().unwrap().phase;
    assert_eq!(phase(api.ask(Method::Get, path)), DrainPhase::Serving);
    let order = json!({"deadline_seconds": 30});
    assert_eq!(
        phase(api.tell(Method::Post, path, &order)),
        DrainPhase::Draining
    );
    assert_eq!(phase(api.ask(Method::Get, path)), DrainPhase::Draining);
    assert_eq!(phase(api.ask(Method::Delete, path)), DrainPhase::Serving);
    for (body, field) in [
        (json!({}), ""),
        (json!({"deadline_seconds": 86_401}), "deadline_seconds"),
        (json!({"deadline_seconds": null}), "deadline_seconds"),
        (json!({"deadline_seconds": 1, "hard": true}), "hard"),
    ] {
        let problem = problem(&api.tell(Method::Post, path, &body), 422);
        assert_eq!(problem.errors[0].path, field, "{problem:?}");
    }
}

#[test]
fn bodies_that_cannot_be_read_are_told_apart() {
    let api = api();
    let json = "content-type: application/json\r\n";
    for (headers, body, status) in [
        ("", "{}", "415"),
        ("content-type: text/plain\r\n", "{}", "415"),
        ("content-type: \u{e9}\r\n", "{}", "415"),
        (json, "", "400"),
        (json, "{", "400"),
        (json, "{\"deadline_seconds\": 1} x", "400"),
        (json, "{\"deadline_seconds\": 1e999}", "422"),
        (json, &"[".repeat(10_000), "422"),
    ] {
        let answer = api.raw("POST /api/v1/drain", headers, body);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{headers}{answer}"
        );
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
}

#[test]
fn nothing_changes_without_the_token() {
    let api = api();
    let client = Client::new(&format!("http://{}", api.handle.address())).unwrap();
    for (method, path) in [
        (Method::Delete, "/api/v1/connections/7"),
        (Method::Delete, "/api/v1/clients/192.0.2.1"),
        (Method::Post, "/api/v1/connections/7/capture"),
        (Method::Post, "/api/v1/drain"),
        (Method::Delete, "/api/v1/drain"),
        (Method::Put, "/api/v1/clients/192.0.2.1/limits"),
        (Method::Delete, "/api/v1/clients/192.0.2.1/limits"),
        (Method::Post, "/api/v1/listeners"),
        (Method::Delete, "/api/v1/listeners/127.0.0.1:20049"),
        (Method::Put, "/api/v1/log"),
        (Method::Delete, "/api/v1/nfs4/clients/5f2a9c0000000001"),
        (
            Method::Delete,
            "/api/v1/nfs4/states/5f2a01000000000000000001",
        ),
        (Method::Delete, "/api/v1/nfs4/grace"),
    ] {
        let answer = client.send(&Order::new(method, path)).unwrap();
        problem(&answer, 401);
    }
    assert_eq!(api.service.connections.lock().unwrap().len(), 1);
    let grace = api.service.nfs4.grace().unwrap();
    let clients = api.service.nfs4.clients.lock().unwrap().len();
    assert_eq!((grace.active, clients), (true, 2));
    let operations: Operations = client.get("/api/v1/operations").unwrap().value().unwrap();
    assert_eq!(operations.operations.len(), 1);
}

#[test]
fn figures_are_shown_from_a_time_on() {
    let api = api();
    let figures: Figures = api.ask(Method::Get, "/api/v1/figures").value().unwrap();
    // Nothing has been noted for an interval yet.
    assert_eq!(
        (figures.interval_seconds, figures.points),
        (5.0, Vec::new())
    );
    let path = "/api/v1/figures?after=1700000000000";
    assert_eq!(api.ask(Method::Get, path).status, 200);
    for subject in ["export=%2Fnone", "client=192.0.2.1", "client=::1&after=5"] {
        let path = format!("/api/v1/figures?{subject}");
        let figures: Figures = api.ask(Method::Get, &path).value().unwrap();
        assert_eq!(figures.points, [], "{subject} has no history");
    }
    let queries = [
        "export=%2Fa&export=%2Fb",
        "after=now",
        "after=-1",
        "after=9007199254740992",
        "after=1&before=2",
    ];
    for query in queries {
        let path = format!("/api/v1/figures?{query}");
        problem(&api.ask(Method::Get, &path), 400);
    }
    for query in ["client=192.0.2.1&export=%2Fscratch", "client=somewhere"] {
        let path = format!("/api/v1/figures?{query}");
        problem(&api.ask(Method::Get, &path), 422);
    }
}

#[test]
fn limits_of_a_client_are_an_entry_of_the_configuration() {
    let api = api();
    let path = "/api/v1/clients/::ffff:10.1.2.3/limits";
    let limits = |api: &Api| api.service.config.lock().unwrap().limits.clone();
    let network = |text: &str| vec![text.parse::<Network>().unwrap()];
    let both = json!({"iops": 100, "bandwidth_bytes": 1 << 20});
    let wide = json!({"limits": [{"clients": ["10.0.0.0/8"], "iops": 7}]});
    let patch = Order::new(Method::Patch, "/api/v1/config")
        .with_body("application/json", wide.to_string())
        .if_match("*");
    assert_eq!(api.client.send(&patch).unwrap().status, 200);

    let answer = api.tell(Method::Put, path, &both);
    let report: ChangeReport = answer.value().unwrap();
    assert_eq!(report.generation, 3);
    assert!(answer.tag.unwrap().ends_with("-3\""));
    let found = limits(&api);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].clients, network("10.1.2.3"));
    assert_eq!(found[0].bandwidth.unwrap().0, 1 << 20);
    // Put again, it is replaced; tried, nothing changes.
    let tried = format!("{path}?dry_run=true");
    assert_eq!(
        api.tell(Method::Put, &tried, &json!({"iops": 9})).status,
        200
    );
    assert_eq!(limits(&api), found);
    assert_eq!(api.tell(Method::Put, path, &json!({"iops": 9})).status, 200);
    assert_eq!(limits(&api)[0].iops, Some(9));
    assert_eq!(limits(&api)[0].bandwidth, None);
    assert_eq!(limits(&api).len(), 2);

    let stale = Order::new(Method::Delete, path).if_match("\"0000000000000000-1\"");
    problem(&api.client.send(&stale).unwrap(), 412);
    assert_eq!(api.ask(Method::Delete, path).status, 200);
    assert_eq!(limits(&api).len(), 1);
    problem(&api.ask(Method::Delete, path), 404);
    let history: ChangeHistory = api
        .ask(Method::Get, "/api/v1/config/history")
        .value()
        .unwrap();
    assert_eq!(history.history[0].summary, "limits");

    for (body, field) in [
        (json!({}), ""),
        (json!({"iops": null, "bandwidth_bytes": null}), ""),
        (json!({"iops": 0}), "iops"),
        (json!({"bandwidth_bytes": 0}), "bandwidth_bytes"),
        (json!({"iops": 1.5}), "iops"),
        (json!({"bandwidth": 1}), "bandwidth"),
    ] {
        let problem = problem(&api.tell(Method::Put, path, &body), 422);
        assert_eq!(problem.errors[0].path, field, "{problem:?}");
    }
    problem(
        &api.tell(Method::Put, "/api/v1/clients/x/limits", &both),
        404,
    );
    problem(&api.tell(Method::Put, &format!("{path}?dry=1"), &both), 400);
}

#[test]
fn listeners_come_and_go_through_the_configuration() {
    let api = api();
    let path = "/api/v1/listeners";
    let entry = json!({"provider": "iwarp", "listen": "127.0.0.1:20050"});
    assert_eq!(api.tell(Method::Post, path, &entry).status, 200);
    let listeners: Listeners = api.ask(Method::Get, path).value().unwrap();
    let addresses: Vec<&str> = listeners
        .listeners
        .iter()
        .map(|one| &*one.address)
        .collect();
    assert_eq!(addresses, ["127.0.0.1:20049", "127.0.0.1:20050"]);
    let second = "/api/v1/listeners/127.0.0.1:20050";
    let shown: ListenerStatus = api.ask(Method::Get, second).value().unwrap();
    assert_eq!(shown.index, Some(1));
    let taken = problem(&api.tell(Method::Post, path, &entry), 422);
    assert_eq!(taken.errors[0].path, "fabric[2].listen");
    assert_eq!(api.ask(Method::Delete, second).status, 200);
    for method in [Method::Get, Method::Delete] {
        problem(&api.ask(method, second), 404);
        problem(&api.ask(method, "/api/v1/listeners/127.0.0.1"), 404);
    }
    for (body, field) in [
        (json!({"provider": "iwarp"}), ""),
        (
            json!({"provider": "iwarp", "listen": "localhost:1"}),
            "listen",
        ),
        (
            json!({"provider": "iwarp", "listen": "[::]:1", "port": 1}),
            "port",
        ),
        (
            json!({"provider": "verbs", "listen": "[::]:1", "crc": "off"}),
            "",
        ),
    ] {
        let problem = problem(&api.tell(Method::Post, path, &body), 422);
        assert_eq!(problem.errors[0].path, field, "{problem:?}");
    }
}

#[test]
fn a_listener_that_cannot_be_had_changes_nothing() {
    let api = api();
    *api.service.refuses.lock().unwrap() = Some(ApplyError {
        path: "fabric[1].listen".to_owned(),
        reason: "the address is in use".to_owned(),
        reactors: Vec::new(),
    });
    let entry = json!({"provider": "iwarp", "listen": "127.0.0.1:20050"});
    let refused = problem(&api.tell(Method::Post, "/api/v1/listeners", &entry), 409);
    assert!(
        refused.detail.contains("the address is in use"),
        "{refused:?}"
    );
    let config = api
        .ask(Method::Get, "/api/v1/config")
        .value::<Value>()
        .unwrap();
    assert_eq!(config["fabric"].as_array().unwrap().len(), 1);
}

#[test]
fn the_filter_of_the_log_is_shown_and_set() {
    let api = api();
    let path = "/api/v1/log";
    let filter = |api: &Api| {
        api.ask(Method::Get, path)
            .value::<LogFilter>()
            .unwrap()
            .filter
    };
    assert_eq!(filter(&api), "info");
    let wanted = json!({"filter": "info,millrace::nfs3=debug"});
    assert_eq!(api.tell(Method::Put, path, &wanted).status, 200);
    assert_eq!(filter(&api), "info,millrace::nfs3=debug");
    for wrong in ["", "no such level"] {
        let problem = problem(&api.tell(Method::Put, path, &json!({"filter": wrong})), 422);
        assert_eq!(problem.errors[0].path, "log", "{problem:?}");
    }
}

/// Every page of a list, with the identifiers of its items.
fn pages(api: &Api, path: &str, name: &str, key: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let answer = api.ask(Method::Get, &format!("{path}?limit=2{cursor}"));
        let page: Value = answer.value().unwrap();
        let items = page[name].as_array().unwrap().iter();
        pages.push(items.map(|one| one[key].to_string()).collect());
        match &page["next"] {
            Value::Null => return pages,
            next => cursor = format!("&cursor={}", next.as_str().unwrap_or(&next.to_string())),
        }
    }
}

#[test]
fn lists_come_in_pages_in_a_stable_order() {
    let api = api();
    *api.service.connections.lock().unwrap() = [9, 3, 1 << 40, 5, 7]
        .map(|id| ConnectionStatus { id, ..connection() })
        .to_vec();
    assert_eq!(
        pages(&api, "/api/v1/connections", "connections", "id"),
        [vec!["3", "5"], vec!["7", "9"], vec!["1099511627776"]]
    );
    *api.service.addresses.lock().unwrap() = ["10.0.0.10", "fd00::1", "10.0.0.9"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(
        pages(&api, "/api/v1/clients", "clients", "address"),
        [vec!["\"10.0.0.9\"", "\"10.0.0.10\""], vec!["\"fd00::1\""]]
    );
    let exports = pages(&api, "/api/v1/exports", "exports", "path");
    assert_eq!(exports, [["\"/data\"", "\"/scratch\""]]);
    for wrong in [
        "clients?limit=0",
        "clients?limit=1001",
        "connections?limit=x",
        "connections?cursor=-1",
        "exports?limit=1&limit=2",
    ] {
        let answer = api.ask(Method::Get, &format!("/api/v1/{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}");
        assert_eq!(answer.problem().unwrap().kind, ProblemType::Query.uri());
    }
}
