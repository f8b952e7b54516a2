//! Exports, listeners, clients, connections, the log and the drain from the command line.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use millrace_admin::control::Control;
use millrace_admin::status::DrainPhase;
use support::Service;
use support::ctl::{Bench, ctl, ended, has, told};
use support::tls::{Authority, front};

mod support;

#[test]
fn exports_come_and_go() {
    let bench = Bench::new();
    let add = ["exports", "add", "/new", "--memory", "64MiB"];
    let all = [
        &add[..],
        &[
            "--client",
            "10.0.0.0/8",
            "--client",
            "::1",
            "--read-only",
            "--squash",
            "root",
        ],
        &[
            "--iops",
            "500",
            "--bandwidth",
            "20MiB/s",
            "--anon-uid",
            "99",
            "--inodes",
            "1000000",
        ],
    ];
    has(
        &bench.says(&all.concat()),
        &["exports", "/new", "(live)", "generation 2"],
    );
    let export = bench.json(&["config", "get", "exports[/new]"]);
    assert_eq!(
        export["store"],
        serde_json::json!({"kind": "memory", "size": "64MiB", "inodes": 1_000_000})
    );
    assert_eq!(
        export["clients"],
        serde_json::json!(["10.0.0.0/8", "::1/128"])
    );
    assert_eq!(export["limits"]["bandwidth"], "20MiB/s");
    assert_eq!(
        (&export["access"], &export["squash"]),
        (&"ro".into(), &"root".into())
    );
    assert_eq!(export["anon_uid"], 99);
    let (_, complaint) = bench.ends(1, &add);
    has(&complaint, &["/new is exported already"]);
    has(
        &bench.says(&["exports", "remove", "/new"]),
        &["exports", "generation 3"],
    );
    let (_, complaint) = bench.ends(1, &["exports", "remove", "/new"]);
    has(&complaint, &["/new is not exported"]);
    assert!(bench.service.config().exports.is_empty());
    has(&bench.says(&["exports"]), &["PATH", "/scratch", "REQUESTS"]);
}

#[test]
fn connections_are_shown_and_evicted() {
    let bench = Bench::new();
    let text = bench.says(&["connections", "show", "7"]);
    has(
        &text,
        &["peer", "192.0.2.1:800", "half within 16us, 90% 32us"],
    );
    assert_eq!(
        bench.says(&["connections", "evict", "7", "--force"]),
        "connection 7 is closed\n"
    );
    let (_, complaint) = bench.ends(1, &["connections", "evict", "7"]);
    has(&complaint, &["404", "no connection 7"]);
    assert_eq!(bench.says(&["connections", "list"]), "no connections\n");
}

#[test]
fn captures_go_to_files_and_pipes() {
    let bench = Bench::new();
    let file = bench.file("calls.pcap");
    let path = file.to_str().unwrap();
    let (said, told) = bench.ends(0, &["connections", "capture", "7", "-o", path]);
    assert_eq!(said, "");
    has(&told, &["8 bytes in ", "calls.pcap"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"captured");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let piped = [
        "connections",
        "capture",
        "7",
        "-o",
        "-",
        "--messages",
        "5",
        "--seconds",
        "1s",
    ];
    assert_eq!(bench.says(&piped), "captured");

    let other = bench.file("none.pcap");
    let none = ["connections", "capture", "8", "-o", other.to_str().unwrap()];
    has(&bench.ends(1, &none).1, &["404"]);
    assert!(!other.exists());
    let bad = ["connections", "capture", "7", "-o", path, "--bytes", "1"];
    has(&bench.ends(1, &bad).1, &["422", "bytes: "]);
    let nowhere = ["connections", "capture", "7", "-o", "/nonexistent/a.pcap"];
    has(
        &bench.ends(2, &nowhere).1,
        &["cannot write", "No such file"],
    );
}

#[test]
fn a_drain_is_begun_waited_for_and_taken_back() {
    let bench = Bench::new();
    has(&bench.says(&["drain"]), &["serving clients: 1 connection,"]);
    let text = bench.says(&["drain", "start", "--deadline", "10s"]);
    has(
        &text,
        &[
            "draining, 10 s until connections are closed",
            "2 requests in flight",
        ],
    );
    assert_eq!(bench.json(&["drain", "status"])["phase"], "draining");
    has(&bench.says(&["drain", "cancel"]), &["serving clients"]);

    let wait = || told(bench.command(&["drain", "start", "--wait"]), "");
    for (phase, status, words) in [
        (DrainPhase::Drained, 0, "drained: no connections are left"),
        (DrainPhase::Serving, 1, "serving clients"),
    ] {
        *bench.service.drain.lock().unwrap() = DrainPhase::Serving;
        let child = wait();
        // It has begun to wait when the server drains.
        while *bench.service.drain.lock().unwrap() != DrainPhase::Draining {
            std::thread::yield_now();
        }
        *bench.service.drain.lock().unwrap() = phase;
        let (said, _) = ended(status, child.wait_with_output().unwrap());
        has(&said, &[words]);
    }
}

#[test]
fn the_status_is_one_page() {
    let bench = Bench::new();
    bench.says(&["config", "set", "mempool.hugepages=off"]);
    let text = bench.says(&["status"]);
    has(
        &text,
        &[
            "millraced ",
            "(debug) at 127.0.0.1:",
            ", up ",
            "ready: clients are served",
        ],
    );
    has(
        &text,
        &[
            "reactors    1, busy 25%",
            "clients     1 with 1 connection;",
        ],
    );
    has(
        &text,
        &[
            "exports     /data /scratch",
            "requests    99 since the start",
        ],
    );
    has(
        &text,
        &[
            "written     3.0GiB in 99 requests",
            "RESTART     needed by mempool.hugepages",
        ],
    );
    let page = bench.json(&["status"]);
    assert_eq!(page["readiness"], "ready");
    assert_eq!(page["restart_required"][0]["path"], "mempool.hugepages");
    bench.says(&["drain", "start"]);
    has(&bench.ends(1, &["status"]).0, &["NOT READY: draining"]);
    has(
        &bench.says(&["operations"]),
        &["PROCEDURE", "write", "99", "64us"],
    );
}

#[test]
fn a_server_with_tls_is_asked_by_its_authority_and_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let handle = Service::new(millrace_admin::config::Config::default()).serve();
    let authority = Authority::new();
    let server = authority.issue("127.0.0.1", |_| {});
    let address = front(handle.address(), &server, Some(&authority));
    let ca = authority.write(folder.path());
    let (cert, key) = authority.issue("operator", |_| {}).write(folder.path());
    let address = format!("https://{address}");
    let run = |files: &[(&str, &std::path::Path)]| -> Command {
        let mut command = ctl();
        command.args(["--address", &address, "version"]);
        for (option, file) in files {
            command.arg(option).arg(file);
        }
        command
    };
    let all = [("--ca", &*ca), ("--cert", &*cert), ("--key", &*key)];
    has(&ended(0, run(&all).output().unwrap()).0, &["millraced"]);
    for (files, words) in [
        (
            &all[..1],
            "asks for a client certificate; give one by --cert FILE and --key FILE",
        ),
        (&all[..2], "--cert and --key go together"),
        (&all[1..], "give --ca, too"),
        (&[], "give it by --ca FILE"),
        (&[("--ca", &*key)], "no certificate"),
    ] {
        has(&ended(2, run(files).output().unwrap()).1, &[words]);
    }
}

#[test]
fn shells_take_the_completion() {
    let produced = |shell: &str| ended(0, ctl().args(["completion", shell]).output().unwrap()).0;
    has(
        &produced("zsh"),
        &["#compdef millracectl", "show-generation", "--token-file"],
    );
    has(
        &produced("fish"),
        &["complete -c millracectl", "wait-ready"],
    );
    let script = produced("bash");
    has(&script, &["complete -F _millracectl", "capture"]);
    let mut bash = Command::new("bash");
    bash.arg("-n");
    let (_, complaint) = ended(0, told(bash, &script).wait_with_output().unwrap());
    assert_eq!(complaint, "");
}

#[test]
fn top_is_for_terminals() {
    let bench = Bench::new();
    has(
        &bench.ends(2, &["top"]).1,
        &["top needs a terminal", "millracectl status"],
    );
}
#[test]
fn listeners_come_and_go() {
    let bench = Bench::new();
    let text = bench.says(&["listeners", "list"]);
    has(&text, &["ADDRESS", "127.0.0.1:20049", "iwarp", "accepts"]);
    let text = bench.says(&["listeners", "add", "[::1]:20050", "--crc", "required"]);
    has(&text, &["fabric", "generation 2"]);
    assert_eq!(
        bench.service.config().fabric[1].listen.to_string(),
        "[::1]:20050"
    );
    has(
        &bench.says(&["listeners", "remove", "[::1]:20050"]),
        &["generation 3"],
    );
    assert_eq!(bench.service.config().fabric.len(), 1);
    let (_, complaint) = bench.ends(1, &["listeners", "remove", "[::1]:20050"]);
    has(&complaint, &["404"]);
}

#[test]
fn clients_are_shown_limited_and_evicted() {
    let bench = Bench::new();
    has(
        &bench.says(&["clients"]),
        &["ADDRESS", "192.0.2.1", "MEMORY", "THROTTLED"],
    );
    has(
        &bench.says(&["clients", "show", "192.0.2.1"]),
        &["credits granted", "memory held", "5.0MiB", "limits"],
    );
    let limit = [
        "clients",
        "limit",
        "192.0.2.1",
        "--iops",
        "500",
        "--bandwidth",
        "2MiB/s",
    ];
    has(&bench.says(&limit), &["limits", "generation 2"]);
    let config = bench.service.config();
    assert_eq!(config.limits.len(), 1);
    assert_eq!(
        serde_json::to_value(&config.limits[0]).unwrap()["bandwidth"],
        "2MiB/s"
    );
    has(
        &bench.says(&["clients", "unlimit", "192.0.2.1"]),
        &["generation 3"],
    );
    assert!(bench.service.config().limits.is_empty());
    let text = bench.says(&["clients", "evict", "192.0.2.1", "--force"]);
    assert_eq!(text, "closed 1 connection of 192.0.2.1\n");
    let (_, complaint) = bench.ends(1, &["clients", "evict", "192.0.2.1"]);
    has(&complaint, &["404"]);
}

#[test]
fn clients_are_banned_for_a_time() {
    let bench = Bench::new();
    has(&bench.says(&["clients", "bans"]), &["no address is banned"]);
    let ban = ["clients", "ban", "192.0.2.1", "--for", "2h", "--force"];
    let text = bench.says(&ban);
    assert_eq!(text, "banned 192.0.2.1 for 7200s; closed 1 connection\n");
    assert!(bench.service.connections.lock().unwrap().is_empty());
    // One that is not connected.
    let text = bench.says(&["clients", "ban", "2001:db8::1"]);
    assert_eq!(text, "banned 2001:db8::1 for 600s; closed 0 connections\n");
    has(
        &bench.says(&["clients", "bans"]),
        &["192.0.2.1", "7200s", "2001:db8::1", "600s"],
    );
    for time in ["0s", "721h", "10"] {
        bench.ends(
            if time == "10" { 2 } else { 1 },
            &["clients", "ban", "192.0.2.1", "--for", time],
        );
    }
    let text = bench.says(&["clients", "unban", "192.0.2.1"]);
    assert_eq!(text, "192.0.2.1 may connect again\n");
    let (_, complaint) = bench.ends(1, &["clients", "unban", "192.0.2.1"]);
    has(&complaint, &["404", "not banned"]);
}

#[test]
fn the_log_is_told_what_to_say() {
    let bench = Bench::new();
    assert_eq!(bench.says(&["log"]), "info\n");
    has(
        &bench.says(&["log", "set", "debug"]),
        &["log: info -> debug  (live)"],
    );
    assert_eq!(bench.says(&["log", "show"]), "debug\n");
    has(
        &bench.ends(1, &["log", "set", "no such level"]).1,
        &["422", "log: `no such level` is neither a level"],
    );
}

#[test]
fn a_list_of_several_pages_is_shown_whole() {
    let bench = Bench::new();
    let many = |id| millrace_admin::status::ConnectionStatus {
        id,
        ..support::connection()
    };
    *bench.service.connections.lock().unwrap() = (1..=2001).map(many).collect();
    let list = bench.json(&["connections"]);
    let ids = list["connections"].as_array().unwrap().iter();
    let ids: Vec<u64> = ids.map(|one| one["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=2001).collect::<Vec<u64>>());
    assert!(list["next"].is_null());
    assert_eq!(bench.says(&["connections"]).lines().count(), 2002);
}
