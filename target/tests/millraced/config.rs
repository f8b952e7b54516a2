//! Changes of the configuration of a running `millraced`: the signal, the file and the API.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::millraced::{Server, ask};
use crate::tcp_client::{block_on, create, mount, write};

const TOKEN: &str = "a-token-that-no-log-may-show";

/// A server with a token, an audit trail and a file to edit.
struct Configured {
    server: Server,
    folder: tempfile::TempDir,
}

impl Configured {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, TOKEN).unwrap();
        let file = folder.path().join("millraced.yaml");
        let text = format!(
            r#"
reactors: {{ cores: auto, poll: adaptive }}
mempool: {{ hugepages: off, size: 8MiB }}
fabric: [{{ provider: iwarp, listen: "127.0.0.1:0" }}]
rpc: {{ listen: "127.0.0.1:0" }}
exports: [{{ path: /scratch, store: {{ kind: memory, size: 1MiB }} }}]
flow: {{ credits: 32 }}
admin:
  listen: "127.0.0.1:0"
  token_file: {}
  audit_file: {}
"#,
            token.display(),
            folder.path().join("audit.jsonl").display()
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
        command.arg("--config").arg(&file);
        Self {
            server: Server::serving(command),
            folder,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("millraced.yaml")
    }

    fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.file()).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.file(), text.replace(from, to)).unwrap();
    }

    fn hang_up(&self) {
        self.server.signal(Signal::HUP);
    }

    fn until(&mut self, words: &str) -> String {
        self.server.until(words)
    }

    /// All of its log that was read.
    fn read(&self) -> &str {
        &self.server.read
    }

    /// Status and body; `headers` are whole lines.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let admin = self.server.admin.expect("it serves");
        ask(admin, method, path, headers, body).expect("it listens")
    }

    fn patch(&self, token: &str, body: &str) -> (u16, String) {
        let headers = format!(
            "authorization: Bearer {token}\r\nif-match: *\r\ncontent-type: application/json\r\n"
        );
        self.ask("PATCH", "/api/v1/config", &headers, body)
    }

    fn metric(&self, name: &str) -> String {
        let (_, text) = self.ask("GET", "/metrics", "", "");
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .to_owned()
    }
}

#[test]
fn a_hang_up_reads_the_file_and_a_broken_one_changes_nothing() {
    let mut server = Configured::start();
    server.edit("size: 8MiB", "size: 8MiB }\nrpcrdma: { inline: 8KiB");
    server.hang_up();
    let line = server.until("the configuration was reloaded");
    assert!(line.contains("generation=2"), "{line}");
    assert!(
        server
            .read()
            .contains("rpcrdma.inline: \"8KiB\" waits for a restart"),
        "{}",
        server.read()
    );
    assert_eq!(server.metric("millrace_config_generation"), "2");
    assert_eq!(server.metric("millrace_config_restart_required"), "1");

    server.edit("inline: 8KiB", "inline: 9000");
    server.hang_up();
    server.until("the configuration was not reloaded");
    let place = format!("{}:4:20: ", server.file().display());
    assert!(
        server.read().contains(&place),
        "{place} in {}",
        server.read()
    );
    assert_eq!(server.metric("millrace_config_generation"), "2");
    let outcomes = ["ok", "failed"].map(|outcome| {
        let name = format!("millrace_config_reloads_total{{outcome=\"{outcome}\"}}");
        server.metric(&name)
    });
    assert_eq!(outcomes, ["1", "1"]);
    assert_eq!(server.metric("millrace_config_last_reload_successful"), "0");
    let (_, config) = server.ask("GET", "/api/v1/config", "", "");
    assert!(config.contains(r#""inline":"8KiB""#), "{config}");
}

#[test]
fn changes_need_the_token_which_no_record_shows() {
    let mut server = Configured::start();
    let body = r#"{"rpcrdma": {"inline": "8KiB"}}"#;
    assert_eq!(server.patch("another-token-of-someone", body).0, 401);
    let (status, report) = server.patch(TOKEN, body);
    assert_eq!(status, 200, "{report}");
    server.hang_up();
    server.until("the configuration was reloaded");
    let file = server.folder.path().join("audit.jsonl");
    let audit = fs::read_to_string(file).unwrap();
    let expected = [
        r#""author":"unknown","address":"127.0.0.1","action":"wrong token","outcome":"refused""#,
        r#""author":"token","address":"127.0.0.1","action":"patch","outcome":"applied""#,
        r#""author":"signal","address":null,"action":"reload","outcome":"applied""#,
    ];
    assert_eq!(audit.lines().count(), expected.len(), "{audit}");
    for (line, words) in audit.lines().zip(expected) {
        assert!(line.contains(words), "{words} in {line}");
    }
    assert!(server.read().contains("wrong token"), "{}", server.read());
    for text in [audit.as_str(), server.read()] {
        for secret in [TOKEN, "another-token-of-someone"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn a_limit_changes_live_by_request_and_by_hang_up() {
    let mut server = Configured::start();
    let body =
        r#"{"limits": [{"clients": ["192.0.2.0/24"], "iops": 500}], "flow": {"credits": 64}}"#;
    let (status, report) = server.patch(TOKEN, body);
    assert_eq!(status, 200, "{report}");
    assert!(report.contains(r#""restart_required":[]"#), "{report}");
    assert!(report.contains(r#""path":"limits[0]""#), "{report}");
    assert!(report.contains(r#""applied":true"#), "{report}");

    // The file says nothing of the limit, and another number of credits.
    server.edit("credits: 32", "credits: 16");
    server.hang_up();
    server.until("the configuration was reloaded");
    let (_, config) = server.ask("GET", "/api/v1/config", "", "");
    assert!(config.contains(r#""credits":16"#), "{config}");
    assert!(!config.contains("192.0.2.0"), "{config}");
    assert_eq!(server.metric("millrace_config_generation"), "3");
    assert_eq!(server.metric("millrace_config_restart_required"), "0");
}

#[test]
fn a_listener_on_devices_that_are_not_there_is_refused_by_request_and_by_hang_up() {
    let listed = Command::new(env!("CARGO_BIN_EXE_millraced"))
        .arg("devices")
        .output();
    if listed.unwrap().status.success() {
        millrace_testing::skip!("this machine has RDMA devices, so the listener would be had");
        return;
    }
    let mut server = Configured::start();
    let why = match millrace::service::devices::BUILT_IN {
        true => "this machine has no RDMA device",
        false => "this millraced is built without RDMA devices",
    };
    let headers = format!(
        "authorization: Bearer {TOKEN}\r\nif-match: *\r\ncontent-type: application/json\r\n"
    );
    let entry = r#"{"provider": "verbs", "listen": "0.0.0.0:20049"}"#;
    for path in ["/api/v1/listeners?dry_run=true", "/api/v1/listeners"] {
        let (status, report) = server.ask("POST", path, &headers, entry);
        assert_eq!(status, 422, "{report}");
        assert!(
            report.contains(r#""path":"fabric[1].provider""#),
            "{report}"
        );
        assert!(report.contains(why), "{report}");
    }
    server.edit(
        r#"listen: "127.0.0.1:0" }]"#,
        "listen: \"127.0.0.1:0\" },\n  { provider: verbs, listen: \"0.0.0.0:20049\" }]",
    );
    server.hang_up();
    server.until("the configuration was not reloaded");
    let place = format!("{}:5:15: {why}", server.file().display());
    let line = server.read().lines().find(|line| line.contains(&place));
    let line = line.unwrap_or_else(|| panic!("{place} in {}", server.read()));
    assert!(line.contains("fabric[1].provider"), "{line}");
    assert_eq!(server.metric("millrace_config_generation"), "1");
}

#[test]
fn a_hang_up_removes_an_export_in_memory_only_without_files_and_clients() {
    let mut server = Configured::start();
    let (_, listeners) = server.ask("GET", "/api/v1/listeners", "", "");
    let (_, rpc) = listeners
        .split_once(r#""provider":"tcp","address":""#)
        .unwrap();
    let rpc = rpc.split('"').next().unwrap().parse().unwrap();
    block_on(async {
        let mut client = mount(rpc, "/scratch").await.unwrap();
        let root = client.root_nfs_fh3();
        let file = create(&mut client, &root, "file").await;
        write(&mut client, &file, 0, b"content").await;
    });
    let scratch = "exports: [{ path: /scratch, store: { kind: memory, size: 1MiB } }]";
    let other = "exports: [{ path: /other, store: { kind: memory, size: 1MiB } }]";
    server.edit(scratch, other);
    server.hang_up();
    let outcome = server.until("the configuration was ");
    assert!(outcome.contains("not reloaded"), "{outcome}");
    for words in [
        "are in memory and would be lost",
        "exports[/scratch]",
        "millracectl config reload --force",
    ] {
        assert!(
            server.read().contains(words),
            "{words} in {}",
            server.read()
        );
    }
    let (_, exports) = server.ask("GET", "/api/v1/exports", "", "");
    assert!(
        exports.contains("/scratch") && !exports.contains("/other"),
        "{exports}"
    );
    assert_eq!(server.metric("millrace_config_generation"), "1");

    let headers = format!("authorization: Bearer {TOKEN}\r\n");
    let reload = "/api/v1/config/reload?force=true";
    let (status, report) = server.ask("POST", reload, &headers, "");
    assert_eq!(status, 200, "{report}");
    let (_, exports) = server.ask("GET", "/api/v1/exports", "", "");
    assert!(
        !exports.contains("/scratch") && exports.contains("/other"),
        "{exports}"
    );

    // One without files and clients needs no force.
    server.edit(other, "exports: []");
    server.hang_up();
    let outcome = server.until("the configuration was ");
    assert!(outcome.contains("was reloaded"), "{outcome}");
    let (_, exports) = server.ask("GET", "/api/v1/exports", "", "");
    assert!(!exports.contains("/other"), "{exports}");
}
