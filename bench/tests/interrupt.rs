//! A command that is interrupted ends what it has started, and removes its files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long the end of a killed process may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that says who it is and never listens. What it waits for is in the same process.
const SERVER: &str = "#!/bin/sh\nmkfifo \"$0.fifo\"\necho $$ $2 >&2\nread -r _ < \"$0.fifo\"\n";

/// Whether a process is there and has not ended.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn an_interrupted_command_leaves_no_server_and_no_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = folder.path().join("server");
    fs::write(&server, SERVER).expect("written");
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).expect("its own");
    for (command, signal, status) in [
        ("ceiling", Signal::INT, 130),
        ("changes", Signal::TERM, 143),
        ("crash", Signal::HUP, 129),
    ] {
        let _ = fs::remove_file(folder.path().join("server.fifo"));
        let mut bench = Command::new(env!("CARGO_BIN_EXE_millrace-bench"))
            .args([command, "--spawn"])
            .arg(&server)
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        // The log of a server under `crash` goes to a file.
        let mut line = String::new();
        if command == "crash" {
            let start = Instant::now();
            while line.is_empty() {
                let folders = fs::read_dir(folder.path()).expect("readable");
                let logs = folders.map(|entry| entry.expect("readable").path());
                let mut logs = logs.map(|folder| folder.join("millraced.log"));
                if let Some(log) = logs.find(|log| log.exists()) {
                    line = fs::read_to_string(log).expect("readable");
                }
                assert!(start.elapsed() < TEST_TIMEOUT, "no server");
                std::thread::yield_now();
            }
        } else {
            let mut errors = BufReader::new(bench.stderr.take().expect("piped"));
            errors.read_line(&mut line).expect("a line");
        }
        let (pid, config) = line.trim().split_once(' ').expect("two words");
        assert!(runs(pid) && Path::new(config).exists(), "{line}");
        let own = Pid::from_child(&bench);
        kill_process(own, signal).expect("it runs");
        let ended = bench.wait().expect("ends");
        assert_eq!((ended.code(), ended.signal()), (Some(status), None));
        let start = Instant::now();
        while runs(pid) {
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "the server of {command} is left"
            );
            std::thread::yield_now();
        }
        // Those of a crash run are for who looks for what went wrong.
        assert_eq!(Path::new(config).exists(), command == "crash", "{command}");
    }
    let left = fs::read_dir(folder.path()).expect("readable");
    let left = left.map(|entry| entry.expect("readable").file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with("millrace-bench"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
