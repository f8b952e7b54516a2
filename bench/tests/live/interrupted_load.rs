//! `millrace-bench run`, interrupted.

use std::process::{Command, Stdio};

use millrace_admin::control::Control;
use millrace_admin::status::ConnectionStatus;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::running::Running;

/// Interrupts a load that works. Returns its report, and the status that it ended with.
fn interrupted(running: &Running, transport: &[&str]) -> (Value, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-bench"));
    let (target, mount) = (running.fabric(0).to_string(), running.rpc().to_string());
    command.args(["run", "--target", &target, "--mount", &mount]);
    command.args(["--json", "--time", "60m", "--depth", "1"]);
    command.args(["--file-size", "64KiB", "--settle", "0ms"]);
    command.args(transport);
    let load = command.stdout(Stdio::piped()).spawn().expect("starts");
    running.until("it works", |running| {
        let connections = running.control().connections();
        let works = |one: &ConnectionStatus| one.requests > 100;
        connections.expect("reactors answer").iter().any(works)
    });
    kill_process(Pid::from_child(&load), Signal::INT).expect("it runs");
    let output = load.wait_with_output().expect("ends");
    let report = serde_json::from_slice(&output.stdout).expect("JSON");
    (report, output.status.code())
}

#[test]
fn an_interrupted_load_leaves_no_file_and_shows_what_it_measured() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let over_tcp = format!("--tcp={}", running.rpc());
    for transport in [&[][..], &["--nfs", "4.2"], &[&over_tcp]] {
        let (report, status) = interrupted(&running, transport);
        let measured = &report["measurements"][0];
        assert!(measured["operations"].as_u64() > Some(0), "{report}");
        assert_eq!(status, Some(1), "it has not done all");
        let mut client = running.client(0);
        let listed = client.session.readdir(root, 0, [0; 8], 4096);
        let names = listed.expect("listed").entries.into_iter();
        let names: Vec<_> = names.map(|entry| entry.name).collect();
        assert_eq!(names, [&b"."[..], b".."], "{transport:?}");
    }
}
