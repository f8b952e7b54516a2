//! Roles of tokens and of users of the socket, over real sockets.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use millrace_admin::api::{AdminHandle, ApiLimits};
use millrace_admin::client::{Answer, Client, ClientToken, Method, Order};
use millrace_admin::config::{Admin, Config, ReadToken};
use millrace_admin::roles::{Role, hash};
use millrace_admin::status::*;
use serde_json::Value;
use support::Service;
use support::ctl::{Bench, ctl, ended, has};
use support::http::Request;

mod support;

const READER: &str = "a-token-that-may-read";
const OPERATOR: &str = "a-token-that-may-operate";
const ADMIN: &str = "a-token-that-may-do-all";
/// That of `admin.token_file`.
const ONLY: &str = "the-token-of-the-file";

struct RoleBench {
    folder: tempfile::TempDir,
    _service: Arc<Service>,
    admin: AdminHandle,
}

impl RoleBench {
    fn new(read_token: ReadToken) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| -> PathBuf {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            file
        };
        let lines = [
            ("rita", "read", READER),
            ("otto", "operate", OPERATOR),
            ("ada", "admin", ADMIN),
        ]
        .map(|(name, role, token)| format!("token {name} {role} {}\n", hash(token)));
        let config = Config {
            admin: Admin {
                token_file: Some(file("token", ONLY)),
                roles_file: Some(file("roles", &lines.concat())),
                audit_file: Some(folder.path().join("audit")),
                read_token,
                ..Admin::default()
            },
            ..Config::default()
        };
        let service = Service::new(config);
        let admin = service.serve_within(None, ApiLimits::default());
        Self {
            admin,
            _service: service,
            folder,
        }
    }

    fn send(&self, token: &str, order: &Order) -> Answer {
        let file = self.folder.path().join("sent");
        fs::write(&file, token).unwrap();
        let client = Client::new(&format!("http://{}", self.admin.address())).unwrap();
        let client = client.with_token(ClientToken::read(&file).unwrap());
        client.send(order).unwrap()
    }

    fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("audit")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }
}

/// What `operate` may do beside reading.
const OPERATIONS: [&str; 11] = [
    "ban_client",
    "cancel_drain",
    "end_nfs4_client",
    "end_nfs4_grace",
    "evict_client",
    "evict_connection",
    "flush_gss_contexts",
    "lift_ban",
    "revoke_nfs4_state",
    "start_drain",
    "take_over_gateway",
];

#[test]
fn each_role_may_do_what_it_says_and_no_more() {
    let bench = RoleBench::new(ReadToken::None);
    let described = bench.send(READER, &Order::new(Method::Get, "/api/v1/openapi.json"));
    let described: Value = described.value().unwrap();
    let (mut operated, mut refused) = (BTreeSet::new(), 0);
    for (path, operations) in described["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let method = match method.as_str() {
                "put" => Method::Put,
                "post" => Method::Post,
                "patch" => Method::Patch,
                "delete" => Method::Delete,
                _ => continue,
            };
            let name = operation["operationId"].as_str().unwrap();
            let path = path
                .replace("{address}", "192.0.2.99")
                .replace("{stateid}", "000000000000000000000000")
                .replace("{generation}", "77");
            let path = match path.contains("/nfs4/") {
                true => path.replace("{id}", "00000000000000ff"),
                false => path.replace("{id}", "99"),
            };
            let path = match path.contains("/listeners/") {
                true => path.replace("192.0.2.99", "192.0.2.99:1"),
                false => path,
            };
            // It is refused for its form where the role permits it.
            let order = Order::new(method, &path).with_body("text/plain", "-");
            let reader = bench.send(READER, &order);
            assert_eq!(reader.status, 403, "{name}: {reader:?}");
            let problem = reader.problem().unwrap();
            assert_eq!(problem.kind, ProblemType::Forbidden.uri());
            has(&problem.detail, &["rita has the role read", "this needs "]);
            if bench.send(OPERATOR, &order).status == 403 {
                refused += 1;
            } else {
                operated.insert(name.to_owned());
            }
            for token in [ADMIN, ONLY] {
                let status = bench.send(token, &order).status;
                assert!(!matches!(status, 401 | 403), "{name}: {status}");
            }
        }
    }
    let expected: BTreeSet<String> = OPERATIONS.map(str::to_owned).into();
    assert_eq!(operated, expected);
    assert!(refused > 8, "{refused}");
}

#[test]
fn the_audit_trail_names_the_token() {
    let bench = RoleBench::new(ReadToken::None);
    let ban = Order::new(Method::Put, "/api/v1/clients/192.0.2.99/ban")
        .with_body("application/json", r#"{"seconds":60}"#);
    for (token, status) in [(READER, 403), (OPERATOR, 200), (ADMIN, 200), (ONLY, 200)] {
        assert_eq!(bench.send(token, &ban).status, status, "{token}");
    }
    let told: Vec<(Value, Value)> = bench
        .audit()
        .into_iter()
        .map(|line| (line["author"].clone(), line["outcome"].clone()))
        .collect();
    let expected = [
        ("rita", "refused"),
        ("otto", "done"),
        ("ada", "done"),
        ("token", "done"),
    ];
    let expected = expected.map(|(author, outcome)| (author.into(), outcome.into()));
    assert_eq!(told, expected);
}

#[test]
fn every_role_reads_where_reading_needs_a_token() {
    let bench = RoleBench::new(ReadToken::Required);
    let list = Order::new(Method::Get, "/api/v1/exports");
    for token in [READER, OPERATOR, ADMIN, ONLY] {
        assert_eq!(bench.send(token, &list).status, 200, "{token}");
    }
    assert_eq!(bench.send("none-of-these-tokens", &list).status, 401);
}

#[test]
fn a_token_is_told_its_name_and_role_and_guesses_count() {
    let bench = RoleBench::new(ReadToken::None);
    let who = |token: &str| {
        let request = Request::new("GET", "/api/v1/whoami");
        let request = request.header("authorization", &format!("Bearer {token}"));
        request.send(bench.admin.address())
    };
    let expected = [
        (READER, "rita", Role::Read),
        (OPERATOR, "otto", Role::Operate),
        (ADMIN, "ada", Role::Admin),
        (ONLY, "token", Role::Admin),
    ];
    let all_told = || {
        for (token, name, role) in expected {
            let told: RequesterStatus = serde_json::from_str(&who(token).body).unwrap();
            let status = RequesterStatus {
                name: Some(name.to_owned()),
                role: Some(role),
                by: Some(RequesterProof::Token),
            };
            assert_eq!(told, status);
        }
    };
    all_told();
    assert_eq!(who("none-of-these-tokens").status, 401);
    assert_eq!(bench.audit()[0]["action"], "wrong token");
    while who("none-of-these-tokens").status == 401 {}
    assert_eq!(who("none-of-these-tokens").status, 429);
    all_told();
    let nobody = Request::new("GET", "/api/v1/whoami").send(bench.admin.address());
    let nothing = r#"{"name":null,"role":null,"by":null}"#;
    assert_eq!((nobody.status, &nobody.body[..]), (200, nothing));
}

#[test]
fn a_broken_file_gives_no_role_and_leaves_the_other_token() {
    let bench = RoleBench::new(ReadToken::None);
    let drain = Order::new(Method::Delete, "/api/v1/drain");
    fs::write(
        bench.folder.path().join("roles"),
        format!("user root\n{ADMIN}\n"),
    )
    .unwrap();
    let answer = bench.send(ADMIN, &drain);
    assert_eq!(answer.status, 503);
    let detail = answer.problem().unwrap().detail;
    has(&detail, &["admin.roles_file: ", "line 1"]);
    assert_eq!(bench.send(ONLY, &drain).status, 200);
}

#[test]
fn the_command_line_makes_tokens_for_the_file() {
    let bench = RoleBench::new(ReadToken::None);
    let make = |arguments: &[&str]| ended(0, ctl().args(arguments).output().unwrap()).0;
    let made = make(&["token", "new", "ci", "--role", "operate", "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let (token, line) = (
        made["token"].as_str().unwrap(),
        made["line"].as_str().unwrap(),
    );
    assert_eq!(token.len(), 64);
    assert!(line.starts_with("token ci operate sha256:") && !line.contains(token));
    fs::write(bench.folder.path().join("roles"), format!("{line}\n")).unwrap();
    let drain = Order::new(Method::Delete, "/api/v1/drain");
    assert_eq!(bench.send(token, &drain).status, 200);
    let words = make(&["token", "new", "ci", "--role", "read"]);
    has(&words, &["\ntoken ci read sha256:", "not shown again"]);
    assert!(!words.contains(token), "the same token twice");
    for bad in [["a b", "read"], ["ci", "root"]] {
        let arguments = ["token", "new", bad[0], "--role", bad[1]];
        ended(2, ctl().args(arguments).output().unwrap());
    }
    // The API cannot give itself another file.
    let other = Bench::new();
    let (_, complaint) = other.ends(
        1,
        &["config", "set", "admin.roles_file=/etc/millrace/roles"],
    );
    has(&complaint, &["admin.roles_file", "configuration file only"]);
}
