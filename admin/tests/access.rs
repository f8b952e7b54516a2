//! Who is answered: by which name the server is asked, from where, and with what.

mod support;

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use millrace_admin::api::{ApiLimits, Rate};
use millrace_admin::config::{Config, to_yaml};
use millrace_admin::control::Control;
use serde_json::json;
use support::Service;
use support::bench::{Bench, TOKEN, problem, report};
use support::ctl::{ctl, ended, has};
use support::http::{Answer, Request};

const PATCH: &str = "application/merge-patch+json";

fn authorized(request: Request) -> Request {
    request.header("authorization", &format!("Bearer {TOKEN}"))
}

/// A change of the log's filter, with the token.
fn change(bench: &Bench, log: &str) -> Request {
    let body = json!({ "log": log });
    let request = bench.request("PATCH", "/api/v1/config", PATCH, &body);
    request.header("if-match", "*")
}

#[test]
fn requests_that_name_another_server_are_refused() {
    let bench = Bench::new();
    let address = bench.admin.address();
    for path in ["/", "/metrics", "/healthz", "/api/v1/config", "/nothing"] {
        let request = Request::new("GET", path).host("rebound.example:9620");
        let told = problem(&request.send(address), 421);
        assert!(told.detail.contains("admin.hosts"), "{told:?}");
    }
    let told = change(&bench, "warn").host("rebound.example").send(address);
    problem(&told, 421);
    assert_eq!(bench.service.config().log, "info");

    report(&bench.patch(json!({ "admin": { "hosts": ["storage.example"] } })));
    let ask = |host: &str| {
        Request::new("GET", "/metrics")
            .host(host)
            .send(address)
            .status
    };
    assert_eq!(ask("storage.example:80"), 200);
    assert_eq!(ask("rebound.example"), 421);
    assert_eq!(ask(&address.to_string()), 200);
}

#[test]
fn pages_of_other_sites_change_and_read_nothing() {
    let bench = Bench::new();
    let address = bench.admin.address();
    for (name, value) in [
        ("origin", "http://other.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let told = problem(
            &change(&bench, "warn").header(name, value).send(address),
            403,
        );
        assert!(told.detail.contains("another site"), "{told:?}");
        let read = Request::new("GET", "/api/v1/config").header(name, value);
        problem(&read.send(address), 403);
    }
    assert_eq!(bench.service.config().log, "info");
    let own = change(&bench, "warn")
        .header("origin", "http://localhost")
        .header("sec-fetch-site", "same-origin");
    report(&own.send(address));
}

#[test]
fn reading_needs_the_token_where_that_is_asked_for() {
    let bench = Bench::new();
    report(&bench.patch(json!({ "admin": { "read_token": "required" } })));
    for path in [
        "/metrics",
        "/api/v1/config",
        "/api/v1/openapi.json",
        "/nothing",
    ] {
        problem(&bench.get(path), 401);
        let told = authorized(Request::new("GET", path)).send(bench.admin.address());
        let expected = if path == "/nothing" { 404 } else { 200 };
        assert_eq!(told.status, expected, "{path}");
    }
    for path in [
        "/",
        "/assets/main.js",
        "/docs/",
        "/docs/operations",
        "/healthz",
        "/readyz",
    ] {
        assert_eq!(bench.get(path).status, 200, "{path}");
    }
    let ask = |arguments: &[&str]| {
        let mut command = ctl();
        command
            .env(
                "MILLRACE_ADDRESS",
                format!("http://{}", bench.admin.address()),
            )
            .args(arguments);
        command
    };
    let (_, told) = ended(
        1,
        ask(&["exports", "--token-file", "/dev/null"])
            .output()
            .unwrap(),
    );
    has(&told, &["401", "--token-file"]);
    let token = bench.folder.path().join("token");
    let (said, _) = ended(
        0,
        ask(&["exports", "--token-file", token.to_str().unwrap()])
            .output()
            .unwrap(),
    );
    has(&said, &["/scratch"]);
}

/// The same API on a Unix socket, for a server without a token.
struct OnSocket {
    folder: tempfile::TempDir,
    service: std::sync::Arc<Service>,
    _admin: millrace_admin::api::AdminHandle,
}

impl OnSocket {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::default();
        let file = folder.path().join("millraced.yaml");
        fs::write(&file, to_yaml(&config)).unwrap();
        let service = Service::new(config);
        let socket = folder.path().join("admin.sock");
        let admin = service.serve_at(Some(&socket), Some(file), ApiLimits::default());
        Self {
            folder,
            service,
            _admin: admin,
        }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("admin.sock")
    }

    fn ctl(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = ctl();
        command.env(
            "MILLRACE_ADDRESS",
            format!("unix:{}", self.socket().display()),
        );
        command.args(arguments);
        command
    }
}

#[test]
fn root_and_the_servers_user_make_changes_over_the_socket_without_a_token() {
    let bench = OnSocket::new();
    let answer = Request::new("GET", "/metrics")
        .host("any.name")
        .send_to(&bench.socket());
    assert_eq!(answer.status, 200);
    let (said, _) = ended(0, bench.ctl(&["log", "set", "debug"]).output().unwrap());
    assert!(!said.is_empty());
    assert_eq!(bench.service.config().log, "debug");
    let history = Request::new("GET", "/api/v1/config/history").send_to(&bench.socket());
    let history: serde_json::Value = serde_json::from_str(&history.body).unwrap();
    let author = &history["history"][0]["author"];
    assert!(
        author["name"] != "token" && author["address"].is_null(),
        "{author}"
    );
    let who = Request::new("GET", "/api/v1/whoami").send_to(&bench.socket());
    let who: serde_json::Value = serde_json::from_str(&who.body).unwrap();
    assert_eq!(
        who,
        json!({ "name": author["name"], "role": "admin", "by": "socket" })
    );
    // A page of another site cannot use a browser that is made to come by it.
    let told = Request::new("POST", "/api/v1/config/reload").header("origin", "http://x");
    problem(&told.send_to(&bench.socket()), 403);
}

#[test]
fn other_users_read_over_the_socket_if_its_group_lets_them_and_change_nothing() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        millrace_testing::skip!("needs root, to be another user");
        return;
    }
    let bench = OnSocket::new();
    fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o755)).unwrap();
    // A program that another user may run, wherever the build is.
    let program = bench.folder.path().join("millracectl");
    // By another process: what other tests start would inherit a descriptor that writes it, and a
    // program cannot be run while there is one.
    let mut copy = std::process::Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_millracectl")).arg(&program);
    assert!(copy.status().unwrap().success());
    let as_nobody = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.env(
            "MILLRACE_ADDRESS",
            format!("unix:{}", bench.socket().display()),
        );
        command.env_remove("MILLRACE_TOKEN_FILE").args(arguments);
        command.uid(NOBODY).gid(NOBODY).output().unwrap()
    };
    let (_, told) = ended(2, as_nobody(&["exports"]));
    has(&told, &["Permission denied", "sudo"]);
    std::os::unix::fs::chown(bench.socket(), None, Some(NOBODY)).unwrap();
    let (said, _) = ended(0, as_nobody(&["exports"]));
    has(&said, &["/scratch"]);
    let (_, told) = ended(1, as_nobody(&["log", "set", "debug"]));
    has(&told, &["403", "read-only"]);
    assert_eq!(bench.service.config().log, "info");
}

#[test]
fn a_socket_that_is_not_there_is_told_of() {
    let mut command = ctl();
    command.args(["--address", "unix:/nonexistent/admin.sock", "exports"]);
    let (_, told) = ended(2, command.output().unwrap());
    has(&told, &["unix:/nonexistent/admin.sock", "admin.socket"]);
    let mut command = ctl();
    command.args(["--address", "unix:admin.sock", "exports"]);
    let (_, told) = ended(2, command.output().unwrap());
    has(&told, &["unix:/PATH"]);
}

#[test]
fn what_bounds_the_token_is_set_in_the_file_only() {
    let bench = Bench::new();
    let folder = bench.folder.path().to_str().unwrap();
    for (key, value) in [
        ("token_file", json!(format!("{folder}/mine"))),
        ("token_file", json!(null)),
        ("audit_file", json!(format!("{folder}/elsewhere"))),
        ("audit_file", json!(null)),
        ("exportable_roots", json!(["/"])),
        ("socket", json!(format!("{folder}/admin.sock"))),
    ] {
        for patch in [
            json!({ "admin": { key: value } }),
            json!({ "admin": { key: value }, "log": "warn" }),
        ] {
            let told = problem(&bench.patch(patch), 422);
            assert_eq!(told.errors[0].path, format!("admin.{key}"));
            assert!(told.errors[0].message.contains("file only"), "{told:?}");
        }
    }
    let tls = json!({
        "certificate": "/cert", "key": "/key", "client_ca": "/mine", "client_auth": "required",
    });
    let told = problem(&bench.patch(json!({ "admin": { "tls": tls } })), 422);
    assert_eq!(told.errors[0].path, "admin.tls.client_ca");
    assert!(told.errors[0].message.contains("file only"), "{told:?}");
    let patch = json!({ "hardening": { "seccomp": "off" } });
    let told = problem(&bench.patch(patch), 422);
    assert_eq!(told.errors[0].path, "hardening");
    assert!(told.errors[0].message.contains("file only"), "{told:?}");
    let root = bench.folder.path().join("data");
    fs::create_dir(&root).unwrap();
    let export =
        json!({ "exports": [{ "path": "/data", "store": { "kind": "posix", "root": root } }] });
    let told = problem(&bench.patch(export.clone()), 422);
    assert_eq!(told.errors[0].path, "exports[0].store.root");
    assert!(
        told.errors[0].message.contains("exportable_roots"),
        "{told:?}"
    );
    assert_eq!(bench.service.config().log, "info");

    // The file may say so, and what it says holds after a reload.
    let mut config = Config::clone(&bench.service.config());
    config.admin.exportable_roots = vec![bench.folder.path().to_owned()];
    config.admin.audit_file = None;
    fs::write(bench.file(), to_yaml(&config)).unwrap();
    report(&bench.ask("POST", "/api/v1/config/reload", "", ""));
    report(&bench.patch(export));
    assert_eq!(bench.service.config().exports.len(), 1);
}

fn held(bench: &Bench, count: usize, text: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(bench.admin.address()).unwrap();
        // It may have been closed already, for those that came later.
        let _ = std::io::Write::write_all(&mut stream, text.as_bytes());
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn idle_connections_make_room_for_those_who_ask() {
    let bench = Bench::new();
    for text in [
        "",
        "GET /metrics HTTP/1.1\r\nhost: local",
        "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let _held = held(&bench, 80, text);
        assert_eq!(bench.get("/healthz").status, 200);
        assert_eq!(bench.get("/api/v1/config").status, 200);
        report(&bench.patch(json!({ "log": "info" })));
    }
}

#[test]
fn with_every_connection_at_work_operators_and_health_are_answered() {
    let bench = Bench::within(ApiLimits {
        body_time: Duration::from_secs(600),
        ..ApiLimits::default()
    });
    // Requests whose bodies do not come.
    let _held = held(
        &bench,
        40,
        "PUT /api/v1/config HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n",
    );
    for _ in 0..20 {
        assert_eq!(bench.get("/healthz").status, 200);
        assert_eq!(bench.get("/readyz").status, 200);
        let told = problem(&bench.get("/api/v1/config"), 429);
        assert!(told.detail.contains("valid token"), "{told:?}");
        report(&change(&bench, "info").send(bench.admin.address()));
    }
}

#[test]
fn a_valid_token_is_never_told_to_wait() {
    let bench = Bench::within(ApiLimits {
        loopback_rate: Rate {
            per_second: 1,
            burst: 1,
        },
        ..ApiLimits::default()
    });
    let wrong = || {
        let request = Request::new("POST", "/api/v1/config/reload");
        request.header("authorization", "Bearer wrong-wrong-wrong-wrong")
    };
    let statuses: Vec<u16> = (0..30)
        .map(|_| wrong().send(bench.admin.address()).status)
        .collect();
    assert!(statuses.contains(&429), "{statuses:?}");
    for _ in 0..20 {
        let told: Answer = change(&bench, "info").send(bench.admin.address());
        report(&told);
        let read = authorized(Request::new("GET", "/api/v1/config"));
        assert_eq!(read.send(bench.admin.address()).status, 200);
    }
}
