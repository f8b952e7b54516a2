//! `millrace-bench pauses`, on a server that goes away and comes back.

use std::process::{Child, Command, Stdio};

use millrace_admin::control::Control;
use millrace_admin::status::DrainOrder;
use serde_json::Value;

use super::running::Running;

const CLIENTS: usize = 3;

fn begin(running: &Running, time: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-bench"));
    let (target, mount) = (running.fabric(0).to_string(), running.rpc().to_string());
    command.args(["pauses", "--target", &target, "--mount", &mount]);
    command.args(["--connections", &CLIENTS.to_string(), "--settle", "0ms"]);
    command.args(["--json", "--time", time]);
    let pauses = command.stdout(Stdio::piped()).spawn().expect("starts");
    all_connected(running);
    pauses
}

fn all_connected(running: &Running) {
    running.until("all are connected", |running| {
        let connections = running.control().connections();
        connections.expect("reactors answer").len() == CLIENTS
    });
}

/// Whether it succeeded, and its report.
fn end(pauses: Child) -> (bool, Value) {
    let output = pauses.wait_with_output().expect("ends");
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.success(), report)
}

#[test]
fn clients_that_lose_their_connections_wait_and_lose_no_call() {
    let running = Running::start("");
    let pauses = begin(&running, "3s");
    let order = DrainOrder {
        deadline_seconds: 60.0,
    };
    running.control().drain(order).expect("drains");
    running.until("all are gone", |running| {
        let status = running.control().drain_status();
        status.expect("reactors answer").connections == 0
    });
    running.control().cancel_drain().expect("listens again");
    all_connected(&running);
    let (succeeded, report) = end(pauses);
    assert_eq!(report["failed"], 0, "{report}");
    assert_eq!(report["reconnected"], CLIENTS, "{report}");
    assert!(report["calls"].as_u64() > Some(CLIENTS as u64), "{report}");
    assert!(report["longest_wait"].as_f64() > Some(0.0), "{report}");
    assert!(succeeded);
}

#[test]
fn a_file_that_is_lost_makes_calls_fail() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let pauses = begin(&running, "1s");
    let name = format!(".millrace-pauses-{}-1", pauses.id());
    let mut client = running.client(0);
    // It is there once its client is connected and has made it.
    running.until("its file is there", |_| {
        client.session.remove(root, name.as_bytes()).is_ok()
    });
    let (succeeded, report) = end(pauses);
    assert!(report["failed"].as_u64() > Some(0), "{report}");
    let failure = report["failure"].as_str().expect("it says why");
    assert!(failure.ends_with(": Stale"), "{report}");
    assert!(!succeeded);
}
