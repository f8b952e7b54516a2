//! What `millraced` makes of listeners on RDMA devices, with and without the feature `verbs`, on a
//! machine that has no device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use millrace::service::devices::BUILT_IN;

fn millraced(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millraced"));
    command.args(arguments).output().expect("runs")
}

/// Whether this machine has devices: what is said without any cannot be seen on it.
fn has_devices() -> bool {
    millraced(&["devices"]).status.success()
}

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("millraced-devices");
    fs::create_dir_all(&folder).expect("a folder for tests");
    let file = folder.join(name);
    let text = "reactors: { poll: adaptive }\n\
                mempool: { hugepages: off, size: 8MiB }\n\
                rpc: { listen: \"127.0.0.1:0\" }\n\
                admin: { listen: \"127.0.0.1:0\" }\n\
                fabric:\n\
                - { provider: iwarp, listen: \"127.0.0.1:0\" }\n\
                - listen: 0.0.0.0:20049\n  provider: verbs\n";
    fs::write(&file, text).expect("written");
    file
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_version_tells_what_is_built_in() {
    let long = text(&millraced(&["--version"]).stdout);
    let words = match BUILT_IN {
        true => "providers: iwarp, verbs (RDMA devices)",
        false => "providers: iwarp (built without RDMA devices)",
    };
    assert!(long.contains(words), "{long}");
    let has_ceph = long.contains("\nstores: memory, posix, ceph");
    assert_eq!(has_ceph, cfg!(feature = "ceph"), "{long}");
    assert!(long.contains("\nstores: memory, posix"), "{long}");
    let first = long.lines().next().expect("a line");
    assert_eq!(first, format!("millraced {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_cannot_be_served_is_named_with_its_line() {
    let file = file("listener.yaml");
    let file = file.to_str().expect("plain");
    let place = format!("{file}:8:13: fabric[1].provider: ");
    let check = millraced(&["--check", "--config", file]);
    if !BUILT_IN {
        // This program never will: exit status 2 tells systemd to let it be.
        for ran in [check, millraced(&["--config", file])] {
            assert_eq!(ran.status.code(), Some(2));
            let said = text(&ran.stderr);
            assert!(said.starts_with(&place), "{said}");
            for words in [
                "built without RDMA devices",
                "cargo build --features verbs",
                "libibverbs-dev librdmacm-dev libclang1-14 libclang-common-14-dev pkg-config",
                "provider iwarp",
            ] {
                assert!(said.contains(words), "{words} in {said}");
            }
        }
        return;
    }
    assert_eq!(check.status.code(), Some(0));
    let said = text(&check.stdout);
    if has_devices() {
        assert!(
            said.contains("fabric[1].listen: 0.0.0.0:20049: all devices"),
            "{said}"
        );
        return;
    }
    assert!(
        said.contains(&format!("note: {place}this machine has no RDMA device")),
        "{said}"
    );
    assert!(said.contains("millraced would not start now"), "{said}");
    let started = millraced(&["--config", file]);
    assert_eq!(started.status.code(), Some(1));
    let said = text(&started.stderr);
    assert!(
        said.contains(&format!(
            "millraced: {place}this machine has no RDMA device"
        )),
        "{said}"
    );
}

#[test]
fn devices_are_listed_or_it_is_said_why_there_are_none() {
    let ran = millraced(&["devices"]);
    let said = text(&ran.stderr);
    if !BUILT_IN {
        assert_eq!(ran.status.code(), Some(1));
        assert!(said.contains("built without RDMA devices"), "{said}");
    } else if ran.status.success() {
        let listed = text(&ran.stdout);
        assert!(listed.contains("port 1: "), "{listed}");
    } else {
        assert_eq!(ran.status.code(), Some(1));
        assert!(said.contains("RDMA device"), "{said}");
    }
}
