//! The command line against a server, as programs and people use it.

use std::process::{Command, Output};
use std::sync::Arc;

use millrace_admin::api::AdminHandle;
use millrace_admin::config::{Config, parse};
use millrace_admin::status::*;
use support::Service;

mod support;

fn start() -> (AdminHandle, Arc<Service>) {
    let service = Service::new(Config::default());
    (service.serve(), service)
}

fn run(handle: &AdminHandle, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millracectl"))
        .arg("--address")
        .arg(format!("http://{}", handle.address()))
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs a command that succeeds and gives what it prints.
fn printed(handle: &AdminHandle, arguments: &[&str]) -> String {
    let output = run(handle, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tables_show_what_the_server_says() {
    let (handle, _service) = start();
    for (command, words) in [
        (
            "connections",
            &[
                "PEER",
                "VERSION  CREDITS  WANTED  IN FLIGHT  EXPOSURES",
                "      2       96     128          2         13",
                "192.0.2.1:800",
                "iwarp",
                "3.0GiB",
                "90.0s",
            ][..],
        ),
        (
            "reactors",
            &["NAME", "reactor-0", "25.0%", "250us", "12345"],
        ),
        (
            "exports",
            &[
                "/scratch",
                "memory",
                "1.5KiB",
                "1.0GiB",
                "127.0.0.0/8 ::1/128",
            ],
        ),
        (
            "version",
            &["millraced", env!("CARGO_PKG_VERSION"), "API v1"],
        ),
        ("metrics", &["# TYPE millrace_build_info gauge"]),
        ("health", &["healthy: ", "ready: "]),
    ] {
        let text = printed(&handle, &[command]);
        for word in words {
            assert!(text.contains(word), "no {word} in:\n{text}");
        }
    }
}

#[test]
fn an_export_whose_callers_act_as_the_server_is_told_apart() {
    let (handle, _service) = start();
    let list = printed(&handle, &["exports"]);
    let row = |path: &str| list.lines().find(|line| line.starts_with(path)).unwrap();
    assert!(list.lines().next().unwrap().contains("ACTS AS"), "{list}");
    assert!(row("/data").contains("server"), "{list}");
    assert!(!row("/scratch").contains("server"), "{list}");
    let page = printed(&handle, &["status"]);
    let told = page.lines().filter(|line| line.starts_with("IDENTITY"));
    let told: Vec<_> = told.collect();
    assert!(told.len() == 1 && told[0].contains("/data"), "{page}");
}

#[test]
fn the_configuration_is_printed_as_a_file_that_parses() {
    let (handle, _service) = start();
    assert_eq!(
        parse(&printed(&handle, &["config"]), "printed"),
        Ok(Config::default())
    );
}

#[test]
fn json_is_what_the_server_sends() {
    let (handle, _service) = start();
    for command in [
        "version",
        "config",
        "connections",
        "reactors",
        "exports",
        "health",
    ] {
        let text = printed(&handle, &[command, "--json"]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value.is_object(), "{text}");
    }
}

#[test]
fn a_refusal_is_told_in_words_with_status_one() {
    let (handle, _service) = start();
    let output = run(&handle, &["pools"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("answers 503: reactor-0 did not"), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
}

#[test]
fn health_and_readiness_set_the_exit_status() {
    let (handle, service) = start();
    printed(&handle, &["wait-ready"]);
    *service.readiness.lock().unwrap() = Readiness::Starting;
    let output = run(&handle, &["health"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("NOT READY: starting")
    );
    let output = run(&handle, &["wait-ready", "--timeout", "1ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("still starting")
    );

    *service.readiness.lock().unwrap() = Readiness::Ready;
    service.stalled.lock().unwrap().push(StalledReactor {
        name: "reactor-1".to_owned(),
        core: Some(1),
        activity: "polling".to_owned(),
        seconds: 3.0,
    });
    let output = run(&handle, &["health"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("reactor-1: in polling for 3.0s")
    );
}

#[test]
fn a_server_that_is_not_there_is_status_two() {
    let (handle, _service) = start();
    let address = format!("http://{}", handle.address());
    handle.shutdown();
    for (address, words) in [
        (address.as_str(), "cannot connect to 127.0.0.1:"),
        ("ftp://x:1", "write http://HOST:PORT"),
        ("https://127.0.0.1:1", "--ca FILE"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_millracectl"))
            .args(["--address", address, "version"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(words), "{text}");
    }
}
