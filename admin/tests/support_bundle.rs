//! The archive for support, as its receiver reads it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use support::ctl::{Bench, TOKEN, ended, has};

mod support;

/// What no archive may have.
const SECRET: &str = "what-a-key-file-has-inside";

/// The files of an archive, without the name of their folder.
fn unpacked(archive: &Path) -> BTreeMap<String, String> {
    let file = fs::File::open(archive).unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().unwrap();
    let mut files = BTreeMap::new();
    for entry in entries {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let (folder, name) = path.split_once('/').unwrap();
        assert!(folder.starts_with("millrace-support-2"), "{path}");
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(name.to_owned(), text);
    }
    files
}

/// A program of this name in the bench's folder.
fn program(bench: &Bench, name: &str, script: &str) {
    let file = bench.write(name, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(file, fs::Permissions::from_mode(0o700)).unwrap();
}

/// A bench whose configuration names files with secrets, and whose log has the token.
fn bench() -> Bench {
    let bench = Bench::new();
    let secret = bench.write("secret", SECRET).display().to_string();
    bench.says(&["config", "set", &format!("handle_secret={secret}")]);
    program(
        &bench,
        "journalctl",
        &format!("echo \"$@\"; echo someone wrote {TOKEN} here"),
    );
    bench
}

fn bundle(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = bench.command(&[&["support-bundle"], arguments].concat());
    command
        .current_dir(bench.folder.path())
        .env("PATH", bench.folder.path());
    command
}

#[test]
fn an_archive_has_the_state_and_no_secret() {
    let bench = bench();
    let mut command = bundle(&bench, &["all.tar.gz"]);
    let (said, _) = ended(0, command.output().unwrap());
    has(
        &said,
        &["all.tar.gz: ", " files", "Read it before you send it"],
    );
    let archive = bench.file("all.tar.gz");
    let mode = fs::metadata(&archive).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let files = unpacked(&archive);
    for (name, words) in [
        ("config.yaml", "token_file: "),
        ("config.yaml", "handle_secret: "),
        ("config-history.json", "\"start\""),
        ("version.json", "millraced"),
        ("status.txt", "ready: clients are served"),
        ("metrics.txt", "millrace_build_info"),
        ("exports.json", "/scratch"),
        ("clients.json", "192.0.2.1"),
        (
            "figures-exports.json",
            r#""/scratch":{"interval_seconds":5.0"#,
        ),
        (
            "figures-clients.json",
            r#""192.0.2.1":{"interval_seconds":5.0"#,
        ),
        ("connections.json", "192.0.2.1:800"),
        ("listeners.json", "iwarp"),
        ("nfs4-clients.json", "clients"),
        ("host/memory.txt", "HugePages_Total"),
        ("host/kernel.txt", "Linux"),
        ("log.txt", "--unit millrace --lines 2000"),
    ] {
        has(
            files.get(name).unwrap_or_else(|| panic!("no {name}")),
            &[words],
        );
        has(&files["contents.txt"], &[name]);
    }
    has(&files["log.txt"], &["someone wrote [token] here"]);
    for (name, text) in &files {
        assert!(!text.contains(TOKEN) && !text.contains(SECRET), "{name}");
    }
    // An archive is never overwritten.
    let mut command = bundle(&bench, &["all.tar.gz"]);
    let (_, complaint) = ended(2, command.output().unwrap());
    has(&complaint, &["all.tar.gz", "exists"]);
}

#[test]
fn who_interrupts_it_leaves_no_archive() {
    let bench = bench();
    let pipe = bench.file("asked");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // It tells that it was asked, and never answers: nobody writes into the pipe afterwards.
    program(
        &bench,
        "journalctl",
        "echo asked > asked; read answer < asked",
    );
    let mut running = bundle(&bench, &["part.tar.gz"]).spawn().unwrap();
    assert_eq!(fs::read_to_string(&pipe).unwrap(), "asked\n");
    // As Ctrl-C, which programs that a shell runs in the background may ignore.
    let process = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert!(!running.wait().unwrap().success());
    let left = fs::read_dir(bench.folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.contains(&"part.tar.gz".into()), "{left:?}");
    // And where none can be made, nobody is asked.
    let mut command = bundle(&bench, &["missing/part.tar.gz"]);
    let (_, complaint) = ended(2, command.output().unwrap());
    has(&complaint, &["missing/part.tar.gz", "No such file"]);
}

#[test]
fn what_cannot_be_had_is_listed() {
    let bench = bench();
    fs::remove_file(bench.file("journalctl")).unwrap();
    let mut command = bundle(&bench, &["--json"]);
    command.env("MILLRACE_ADDRESS", "http://127.0.0.1:1");
    let (said, _) = ended(0, command.output().unwrap());
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    let archive = bench.file(told["archive"].as_str().unwrap());
    let contents = &unpacked(&archive)["contents.txt"];
    has(
        contents,
        &[
            "version.json and all else of the server",
            "cannot connect",
            "there is no program journalctl",
            "host/memory.txt",
        ],
    );
    let missing = told["missing"].as_array().unwrap();
    assert!(missing.iter().any(|one| one["file"] == "log.txt"), "{told}");
}

#[test]
fn facts_of_this_host_are_not_taken_for_those_of_another() {
    let bench = bench();
    let mut command = bundle(&bench, &["far.tar.gz", "--timeout", "1ms"]);
    command.env("MILLRACE_ADDRESS", "http://192.0.2.1:1");
    ended(0, command.output().unwrap());
    let files = unpacked(&bench.file("far.tar.gz"));
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["contents.txt"]);
    has(&files["contents.txt"], &["the server is on another host"]);
}
