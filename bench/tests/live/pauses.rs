//! `millrace-bench pauses`, on a server that goes away and comes back.

use std::process::{Child, Command, Stdio};

use millrace_admin::control::Control;
use millrace_admin::status::{ConnectionStatus, DrainOrder};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::running::Running;

const CLIENTS: usize = 3;

/// Starts one that goes on until it is ended.
fn begin(running: &Running) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-bench"));
    let (target, mount) = (running.fabric(0).to_string(), running.rpc().to_string());
    command.args(["pauses", "--target", &target, "--mount", &mount]);
    command.args(["--connections", &CLIENTS.to_string(), "--settle", "0ms"]);
    command.args(["--json", "--time", "60m"]);
    let pauses = command.stdout(Stdio::piped()).spawn().expect("starts");
    all_at_work(running, &[]);
    pauses
}

fn connections(running: &Running) -> Vec<ConnectionStatus> {
    running.control().connections().expect("reactors answer")
}

/// Waits until all clients are connected, by others than these connections, and have made more calls
/// than they begin with.
fn all_at_work(running: &Running, before: &[ConnectionStatus]) {
    running.until("all are at work", |running| {
        let connections = connections(running);
        let is_at_work = |one: &ConnectionStatus| {
            one.requests > 20 && before.iter().all(|other| other.id != one.id)
        };
        connections.len() == CLIENTS && connections.iter().all(is_at_work)
    });
}

/// Interrupts it. Whether it succeeded, and its report.
fn end(pauses: Child) -> (bool, Value) {
    kill_process(Pid::from_child(&pauses), Signal::INT).expect("it runs");
    let output = pauses.wait_with_output().expect("ends");
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.success(), report)
}

#[test]
fn clients_that_lose_their_connections_wait_and_lose_no_call() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let pauses = begin(&running);
    let name = format!(".millrace-pauses-{}-1", pauses.id());
    let before = connections(&running);
    let order = DrainOrder {
        deadline_seconds: 60.0,
    };
    running.control().drain(order).expect("drains");
    running.until("all are gone", |running| {
        let status = running.control().drain_status();
        status.expect("reactors answer").connections == 0
    });
    running.control().cancel_drain().expect("listens again");
    all_at_work(&running, &before);
    let (succeeded, report) = end(pauses);
    assert_eq!(report["failed"], 0, "{report}");
    assert_eq!(report["reconnected"], CLIENTS, "{report}");
    assert!(report["calls"].as_u64() > Some(CLIENTS as u64), "{report}");
    assert!(report["longest_wait"].as_f64() > Some(0.0), "{report}");
    assert!(succeeded);
    let mut client = running.client(0);
    let left = client.session.remove(root, name.as_bytes());
    assert!(left.is_err(), "an interrupted one leaves no file");
}

#[test]
fn a_file_that_is_lost_makes_calls_fail() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let pauses = begin(&running);
    let name = format!(".millrace-pauses-{}-1", pauses.id());
    let mut client = running.client(0);
    let removed = client.session.remove(root, name.as_bytes());
    removed.expect("its file is there");
    drop(client);
    running.until("only its clients are left", |running| {
        connections(running).len() == CLIENTS
    });
    let before = connections(&running);
    running.until("each has made another call", |running| {
        let has_more = |one: &ConnectionStatus| {
            let was = before.iter().find(|other| other.id == one.id);
            was.is_some_and(|was| one.requests > was.requests + 2)
        };
        connections(running).iter().all(has_more)
    });
    let (succeeded, report) = end(pauses);
    assert!(report["failed"].as_u64() > Some(0), "{report}");
    let failure = report["failure"].as_str().expect("it says why");
    assert!(failure.ends_with(": Stale"), "{report}");
    assert!(!succeeded);
}
