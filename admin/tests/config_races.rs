//! Changes of the configuration that are slow, given up, or fail when they are half done.

mod support;

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use millrace_admin::api::ApiLimits;
use millrace_admin::control::Control;
use serde_json::json;
use support::bench::{Bench, problem, report};
use support::http::{Answer, Request};

/// Makes the next change wait: it says when it has begun, and goes on at a word.
fn held(bench: &Bench) -> (Receiver<()>, Sender<()>) {
    let (begun, has_begun) = channel();
    let (go_on, goes_on) = channel();
    *bench.service.gate.lock().unwrap() = Some((begun, goes_on));
    (has_begun, go_on)
}

fn credits(bench: &Bench, credits: u32) -> Request {
    let body = json!({ "flow": { "credits": credits } });
    let request = bench.request("PATCH", "/api/v1/config", "application/json", &body);
    request.header("if-match", "*")
}

#[test]
fn readers_do_not_wait_for_a_slow_change() {
    let bench = Bench::new();
    let tag = bench.tag();
    let (has_begun, go_on) = held(&bench);
    let slow = credits(&bench, 64).begin(bench.admin.address());
    has_begun.recv().unwrap();
    // More writers than there are threads that may block.
    let address = bench.admin.address();
    let others: Vec<_> = (1..9)
        .map(|number| credits(&bench, number).begin(address))
        .collect();
    for path in [
        "/api/v1/config/history",
        "/api/v1/config/pending",
        "/metrics",
        "/healthz",
    ] {
        assert_eq!(bench.get(path).status, 200, "{path}");
    }
    assert_eq!(bench.tag(), tag);
    go_on.send(()).unwrap();
    assert_eq!(report(&Answer::read(slow)).generation, 2);
    let mut generations: Vec<u64> = others
        .into_iter()
        .map(|other| report(&Answer::read(other)).generation)
        .collect();
    generations.sort_unstable();
    assert_eq!(generations, [3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn a_client_that_goes_away_leaves_a_whole_change() {
    let bench = Bench::new();
    let (has_begun, go_on) = held(&bench);
    let client = credits(&bench, 64).begin(bench.admin.address());
    has_begun.recv().unwrap();
    drop(client);
    // The server has seen the end of the connection, or will, before it reads this one.
    assert_eq!(bench.get("/healthz").status, 200);
    go_on.send(()).unwrap();
    let next = report(&credits(&bench, 65).send(bench.admin.address()));
    assert_eq!(next.generation, 3);
    assert_eq!(next.changes[0].before, json!(64));
}

#[test]
fn a_change_that_takes_too_long_goes_on_and_those_behind_it_are_not_begun() {
    let bench = Bench::within(ApiLimits {
        change_time: Duration::from_millis(20),
        ..ApiLimits::default()
    });
    let (has_begun, go_on) = held(&bench);
    let slow = credits(&bench, 64).begin(bench.admin.address());
    has_begun.recv().unwrap();
    let told = problem(&Answer::read(slow), 503);
    assert!(told.detail.contains("continues"), "{told:?}");
    let told = problem(&credits(&bench, 65).send(bench.admin.address()), 503);
    assert!(told.detail.contains("nothing was done"), "{told:?}");
    go_on.send(()).unwrap();
    // It is in force in the end; whoever comes too early is told so.
    while bench.service.config().flow.credits != 64 {
        assert_eq!(bench.get("/healthz").status, 200);
    }
}

#[test]
fn a_file_that_cannot_be_written_takes_the_change_back() {
    let bench = Bench::new();
    let text = fs::read_to_string(bench.file()).unwrap();
    let before = bench.tag();
    let persist = || {
        let body = json!({ "flow": { "credits": 64 } });
        bench.ask(
            "PATCH",
            "/api/v1/config?persist=true",
            "application/json",
            body,
        )
    };
    // A folder in the backup's place: it shows when the change is in force already.
    let backup = bench
        .folder
        .path()
        .join(format!("millraced.yaml.bak.{}", u64::MAX));
    fs::create_dir(&backup).unwrap();
    let told = problem(&persist(), 503);
    assert!(told.detail.contains("millraced.yaml.bak"), "{told:?}");
    assert_eq!(
        bench.service.applied.load(Ordering::Relaxed),
        2,
        "put in force and taken back"
    );
    // A folder in the new file's place: it shows before.
    fs::remove_dir(&backup).unwrap();
    let new = bench.folder.path().join(".millraced.yaml.new");
    fs::create_dir(&new).unwrap();
    problem(&persist(), 503);
    assert_eq!(bench.service.applied.load(Ordering::Relaxed), 2);
    fs::remove_dir(&new).unwrap();

    assert_eq!(bench.service.config().flow.credits, 128);
    assert_eq!(bench.tag(), before);
    assert_eq!(fs::read_to_string(bench.file()).unwrap(), text);
    let metrics = bench.get("/metrics").body;
    let counted = "\nmillrace_config_changes_total{outcome=\"not_written\"} 2\n";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(report(&persist()).persisted);
}
