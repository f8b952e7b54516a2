//! The configuration through the API's sockets.
#![allow(
    clippy::needless_pass_by_value,
    reason = "bodies stand where they are sent"
)]

mod support;

use std::fs;
use std::time::UNIX_EPOCH;

use millrace_admin::change::{ChangeHistory, Pending};
use millrace_admin::config::{Effect, parse};
use millrace_admin::control::{ApplyError, Control};
use millrace_admin::status::ReactorOutcome;
use serde_json::{Value, json};
use support::bench::{Bench, problem, report};
use support::http::{Answer, Request};

#[test]
fn a_patch_changes_what_runs_and_gets_a_new_tag() {
    let bench = Bench::new();
    let before = bench.tag();
    let answer = bench.patch(json!({ "flow": { "credits": 64 } }));
    let report = report(&answer);
    assert_eq!(report.generation, 2);
    assert_eq!(report.changes.len(), 1);
    let change = &report.changes[0];
    assert_eq!(change.path, "flow.credits");
    assert_eq!((&change.before, &change.after), (&json!(128), &json!(64)));
    assert_eq!(change.effect, Effect::Live);
    assert!(report.restart_required.is_empty() && !report.persisted && !report.dry_run);
    assert!(report.reactors[0].applied);
    assert_eq!(bench.service.config().flow.credits, 64);
    let after = bench.tag();
    assert_ne!(before, after);
    assert_eq!(answer.header("etag"), Some(after.clone()));

    let again = Request::new("GET", "/api/v1/config").header("if-none-match", &after);
    let again = again.send(bench.admin.address());
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    assert_eq!(again.header("etag"), Some(after));
    let old = Request::new("GET", "/api/v1/config").header("if-none-match", &before);
    assert_eq!(old.send(bench.admin.address()).status, 200);
}

#[test]
fn what_a_change_leaves_as_it_was_is_told() {
    let bench = Bench::new();
    let left = "rpc.rpcbind: the port mapper does not know the new addresses";
    *bench.service.pending.lock().unwrap() = vec![left.to_owned()];
    let told = report(&bench.patch(json!({ "flow": { "credits": 64 } })));
    assert_eq!(told.notes.last().unwrap(), left);
    assert!(told.reactors[0].applied);
}

#[test]
fn put_takes_json_and_yaml_and_nothing_else() {
    let bench = Bench::new();
    let yaml = bench.get("/api/v1/config?format=yaml").body;
    let mut config = parse(&yaml, "answer").unwrap();
    config.log = "warn".to_owned();
    let json = serde_json::to_string(&config).unwrap();
    let done = report(&bench.ask(
        "PUT",
        "/api/v1/config",
        "Application/JSON; charset=utf-8",
        json,
    ));
    assert_eq!(done.changes[0].path, "log");
    let done = report(&bench.ask("PUT", "/api/v1/config", "application/yaml", yaml));
    assert_eq!(
        (done.generation, done.changes[0].after.clone()),
        (3, json!("info"))
    );
    for kind in ["", "text/plain", "application/merge-patch+json"] {
        let problem = problem(&bench.ask("PUT", "/api/v1/config", kind, "{}"), 415);
        assert!(problem.detail.contains("application/yaml"), "{problem:?}");
        let is_missing = problem.detail.contains("Content-Type is missing");
        assert_eq!(is_missing, kind.is_empty(), "{problem:?}");
    }
    let answer = bench.ask("PATCH", "/api/v1/config", "application/yaml", "log: info");
    problem(&answer, 415);
    let accepted = answer.header("accept-patch").unwrap();
    assert!(
        accepted.starts_with("application/merge-patch+json"),
        "{accepted}"
    );
    for (kind, body) in [("application/json", "{"), ("application/yaml", "\u{0}")] {
        let answer = bench.ask("PUT", "/api/v1/config", kind, body);
        assert!(matches!(answer.status, 400 | 422), "{answer:?}");
    }
    problem(
        &bench.ask("PATCH", "/api/v1/config", "application/json", "nothing"),
        400,
    );
    assert_eq!(
        bench.get("/api/v1/config").header("etag"),
        Some(bench.tag())
    );
}

#[test]
fn what_is_wrong_is_told_by_key() {
    let bench = Bench::new();
    let before = bench.tag();
    for (kind, body, path, words) in [
        (
            "application/json",
            r#"{"flow": {"credits": "many"}}"#,
            "flow.credits",
            "whole number",
        ),
        (
            "application/json",
            r#"{"flow": {"credit": 1}}"#,
            "flow.credit",
            "unknown key",
        ),
        (
            "application/json",
            r#"{"flow": {"credits": 0}}"#,
            "flow.credits",
            "1 to 4096",
        ),
        (
            "application/yaml",
            "flow:\n  credits: many\n",
            "flow.credits",
            "line 2, column 12",
        ),
        (
            "application/yaml",
            "flow:\n  credit: 1\n",
            "flow.credit",
            "line 2, column 3",
        ),
        (
            "application/yaml",
            "log: no such level\n",
            "log",
            "neither a level",
        ),
    ] {
        let problem = problem(&bench.ask("PUT", "/api/v1/config", kind, body), 422);
        assert_eq!(problem.errors[0].path, path, "{problem:?}");
        assert!(problem.errors[0].message.contains(words), "{problem:?}");
    }
    for (patch, path) in [
        (json!({ "admin": { "listen": "nowhere" } }), "admin.listen"),
        (json!({ "exports": [{ "path": "/a" }] }), "exports[0]"),
        (json!({ "nothing": 1 }), "nothing"),
        (json!(7), ""),
    ] {
        let problem = problem(&bench.patch(patch), 422);
        assert_eq!(problem.errors[0].path, path, "{problem:?}");
    }
    assert_eq!(bench.tag(), before);
}

#[test]
fn a_change_says_which_configuration_it_is_for() {
    let bench = Bench::new();
    let patch = || bench.request("PATCH", "/api/v1/config", "application/json", &"{}");
    let send = |request: Request| request.send(bench.admin.address());
    problem(&send(patch()), 428);
    problem(&send(patch().header("if-match", "1")), 400);
    let answer = send(patch().header("if-match", "\"0000000000000001-1\""));
    problem(&answer, 412);
    assert_eq!(answer.header("etag"), Some(bench.tag()));
    problem(
        &send(patch().header("if-match", &format!("W/{}", bench.tag()))),
        412,
    );
    report(&send(patch().header("if-match", "*")));
    report(&send(
        patch().header("if-match", &format!("\"x\", {}", bench.tag())),
    ));
}

#[test]
fn of_two_writers_with_one_tag_exactly_one_wins() {
    let bench = Bench::new();
    for round in 0..10 {
        let tag = bench.tag();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let body = json!({ "flow": { "credits": 10 + 2 * round + writer } });
                let request = bench
                    .request("PATCH", "/api/v1/config", "application/json", &body)
                    .header("if-match", &tag);
                request.begin(bench.admin.address())
            })
            .collect();
        let answers: Vec<_> = writers.into_iter().map(Answer::read).collect();
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "{answers:?}");
    }
    let history: ChangeHistory =
        serde_json::from_str(&bench.get("/api/v1/config/history").body).unwrap();
    assert_eq!(history.history.len(), 11);
}

#[test]
fn a_dry_run_and_a_change_of_nothing_leave_all_as_it_was() {
    let bench = Bench::new();
    let before = bench.tag();
    let body = json!({ "flow": { "credits": 64 }, "rpcrdma": { "inline": "8KiB" } });
    let tried = bench.ask(
        "PATCH",
        "/api/v1/config?dry_run=true",
        "application/json",
        body,
    );
    let tried = report(&tried);
    assert!(tried.dry_run && tried.generation == 1 && tried.changes.len() == 2);
    assert_eq!(tried.restart_required[0].path, "rpcrdma.inline");
    assert_eq!(bench.service.config().flow.credits, 128);
    let nothing = report(&bench.patch(json!({ "flow": { "credits": 128 } })));
    assert!(nothing.generation == 1 && nothing.changes.is_empty());
    assert_eq!(bench.tag(), before);
    let metrics = bench.get("/metrics").body;
    for outcome in ["tried", "unchanged"] {
        let line = format!("\nmillrace_config_changes_total{{outcome=\"{outcome}\"}} 1\n");
        assert!(metrics.contains(&line), "{outcome} in {metrics}");
    }
    for query in ["dry_run=1", "dry=true", "persist"] {
        let path = format!("/api/v1/config?{query}");
        problem(&bench.ask("PATCH", &path, "application/json", "{}"), 400);
    }
}

#[test]
fn what_waits_for_a_restart_is_told() {
    let bench = Bench::new();
    let patch = json!({ "rpcrdma": { "inline": "8KiB" }, "flow": { "credits": 64 } });
    let done = report(&bench.patch(patch));
    assert_eq!(done.changes[0].effect, Effect::Restart);
    assert_eq!(done.changes[1].effect, Effect::Live);
    let running = bench.service.config();
    assert_eq!(
        (running.rpcrdma.inline.bytes(), running.flow.credits),
        (4096, 64)
    );
    let pending: Pending = serde_json::from_str(&bench.get("/api/v1/config/pending").body).unwrap();
    assert_eq!(pending.generation, 2);
    assert_eq!(pending.restart_required, done.restart_required);
    assert_eq!(pending.restart_required[0].before, json!("4KiB"));
    let metrics = bench.get("/metrics").body;
    assert!(
        metrics.contains("\nmillrace_config_restart_required 1\n"),
        "{metrics}"
    );
    // Back to what runs: nothing waits any more, and it took no restart.
    let back = report(&bench.patch(json!({ "rpcrdma": { "inline": "4KiB" } })));
    assert_eq!(back.changes[0].effect, Effect::Live);
    assert!(back.restart_required.is_empty());
}

#[test]
fn history_is_shown_and_gone_back_to() {
    let bench = Bench::new();
    report(&bench.patch(json!({ "flow": { "credits": 64 } })));
    let path = "/api/v1/config/rollback/1";
    let problem_of = |request: Request| problem(&request.send(bench.admin.address()), 428);
    problem_of(bench.request("POST", path, "", &""));
    let back = report(&bench.ask("POST", path, "", ""));
    assert_eq!((back.generation, back.changes.len()), (3, 1));
    assert_eq!(bench.service.config().flow.credits, 128);
    let history: ChangeHistory =
        serde_json::from_str(&bench.get("/api/v1/config/history").body).unwrap();
    let told: Vec<_> = history
        .history
        .iter()
        .map(|entry| {
            (
                entry.generation,
                entry.summary.as_str(),
                entry.author.name.as_str(),
            )
        })
        .collect();
    let expected = [
        (3, "rollback to 1", "token"),
        (2, "patch", "token"),
        (1, "start", "start"),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        history.history[0].author.address.as_deref(),
        Some("127.0.0.1")
    );
    // By the clock of the host, as its files are.
    let written = fs::metadata(bench.file()).unwrap().modified().unwrap();
    let written = written.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let mut entries = history.history.iter();
    assert!(entries.all(|entry| entry.time_seconds >= written));
    let second = bench.get("/api/v1/config/history/2?format=yaml").body;
    assert_eq!(parse(&second, "answer").unwrap().flow.credits, 64);
    let second: Value = serde_json::from_str(&bench.get("/api/v1/config/history/2").body).unwrap();
    assert_eq!(second["flow"]["credits"], 64);
    for path in ["/api/v1/config/history/4", "/api/v1/config/history/x"] {
        problem(&bench.get(path), 404);
    }
    problem(&bench.ask("POST", "/api/v1/config/rollback/9", "", ""), 404);
}

#[test]
fn what_cannot_be_applied_leaves_all_as_it_was_and_says_how_reactors_fared() {
    let bench = Bench::new();
    let before = bench.tag();
    let outcome = |applied: bool| ReactorOutcome {
        name: "reactor-0".to_owned(),
        core: Some(0),
        applied,
        error: (!applied).then(|| "does not answer".to_owned()),
        seconds: 1.0,
    };
    for (reactors, status) in [(vec![], 409), (vec![outcome(true), outcome(false)], 503)] {
        *bench.service.refuses.lock().unwrap() = Some(ApplyError {
            path: "fabric[0].listen".to_owned(),
            reason: "the port is taken".to_owned(),
            reactors: reactors.clone(),
        });
        let answer = bench.ask(
            "PATCH",
            "/api/v1/config?persist=true",
            "application/json",
            json!({ "flow": { "credits": 64 } }),
        );
        let problem = problem(&answer, status);
        assert_eq!(problem.reactors, reactors);
        assert_eq!(problem.errors[0].path, "fabric[0].listen");
    }
    assert_eq!(bench.tag(), before);
    assert_eq!(bench.service.config().flow.credits, 128);
    assert!(
        fs::read_to_string(bench.file())
            .unwrap()
            .starts_with("# by hand")
    );
    assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 3);
}

#[test]
fn reload_takes_what_is_in_the_file() {
    let bench = Bench::new();
    let reload = |query: &str| {
        let path = format!("/api/v1/config/reload{query}");
        bench
            .request("POST", &path, "", &"")
            .send(bench.admin.address())
    };
    let text = fs::read_to_string(bench.file()).unwrap();
    fs::write(bench.file(), text.replace("credits: 128", "credits: 32")).unwrap();
    assert!(report(&reload("?dry_run=true")).changes.len() == 1);
    assert_eq!(bench.service.config().flow.credits, 128);
    assert_eq!(report(&reload("")).generation, 2);
    assert_eq!(bench.service.config().flow.credits, 32);
    fs::write(bench.file(), text.replace("credits: 128", "credits: lots")).unwrap();
    let broken = problem(&reload(""), 422);
    assert_eq!(broken.errors[0].path, "flow.credits");
    let place = format!("{}:", bench.file().display());
    assert!(broken.errors[0].message.starts_with(&place), "{broken:?}");
    assert_eq!(bench.service.config().flow.credits, 32);
    problem(&reload("?persist=true"), 400);
    let metrics = bench.get("/metrics").body;
    for line in [
        "millrace_config_generation 2",
        "millrace_config_reloads_total{outcome=\"ok\"} 1",
        "millrace_config_reloads_total{outcome=\"failed\"} 1",
        "millrace_config_last_reload_successful 0",
        "millrace_config_changes_total{outcome=\"tried\"} 1",
        "millrace_config_changes_total{outcome=\"applied\"} 1",
        "millrace_config_changes_total{outcome=\"invalid\"} 1",
    ] {
        assert!(
            metrics.contains(&format!("\n{line}\n")),
            "{line} in {metrics}"
        );
    }
}

#[test]
fn persist_writes_the_file_and_keeps_the_one_before() {
    let bench = Bench::new();
    let by_hand = fs::read_to_string(bench.file()).unwrap();
    let persist = |credits: u32| {
        let body = json!({ "flow": { "credits": credits } });
        report(&bench.ask(
            "PATCH",
            "/api/v1/config?persist=true",
            "application/json",
            body,
        ))
    };
    assert!(persist(64).persisted);
    let written = fs::read_to_string(bench.file()).unwrap();
    assert_eq!(written, by_hand.replace("credits: 128", "credits: 64"));
    let backup = |number: u32| {
        let name = format!("millraced.yaml.bak.{number}");
        fs::read_to_string(bench.folder.path().join(name)).ok()
    };
    assert_eq!(backup(1), Some(by_hand));
    // A change that was not kept comes with the next one that is.
    report(&bench.patch(json!({ "log": "warn" })));
    assert!(persist(64).persisted);
    let next = fs::read_to_string(bench.file()).unwrap();
    assert_eq!(next, written.replace("log: info", "log: warn"));
    assert_eq!(parse(&next, "file").unwrap(), *bench.service.config());
    assert_eq!((backup(2), backup(3)), (Some(written), None));
}

#[test]
fn persist_overwrites_no_file_that_was_edited_meanwhile() {
    let bench = Bench::new();
    let persist = |credits: u32| {
        bench.ask(
            "PATCH",
            "/api/v1/config?persist=true",
            "application/json",
            json!({ "flow": { "credits": credits } }),
        )
    };
    let edited = fs::read_to_string(bench.file()).unwrap() + "# The operator was here.\n";
    fs::write(bench.file(), &edited).unwrap();
    let told = problem(&persist(64), 409);
    assert!(told.detail.contains("config reload"), "{told:?}");
    assert_eq!(bench.service.config().flow.credits, 128);
    assert_eq!(fs::read_to_string(bench.file()).unwrap(), edited);
    // A file that is refused stays unknown.
    fs::write(bench.file(), "log: inof\n").unwrap();
    problem(&bench.ask("POST", "/api/v1/config/reload", "", ""), 422);
    problem(&persist(64), 409);
    fs::write(bench.file(), &edited).unwrap();
    report(&bench.ask("POST", "/api/v1/config/reload", "", ""));
    assert!(report(&persist(64)).persisted);
    let kept = fs::read_to_string(bench.file()).unwrap();
    assert!(kept.ends_with("# The operator was here.\n"), "{kept}");
    // What the server has written itself it knows.
    assert!(report(&persist(32)).persisted);
}

#[test]
fn without_a_file_there_is_nothing_to_reload_or_to_write() {
    let bench = Bench::new();
    let admin = bench.service.serve();
    for (method, path, body) in [
        ("POST", "/api/v1/config/reload", ""),
        (
            "PATCH",
            "/api/v1/config?persist=true",
            r#"{"flow":{"credits":64}}"#,
        ),
    ] {
        let request = bench.request(method, path, "application/json", &body);
        problem(&request.header("if-match", "*").send(admin.address()), 409);
    }
    assert_eq!(bench.service.config().flow.credits, 128);
}

#[test]
fn certificates_that_cannot_be_used_are_refused_by_their_key() {
    let bench = Bench::new();
    let tls = json!({ "certificate": "/nowhere/server.pem", "key": "/nowhere/server.key" });
    let answer = bench.patch(json!({ "admin": { "tls": tls } }));
    let errors = problem(&answer, 422).errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].path.starts_with("admin.tls."), "{errors:?}");
    assert!(errors[0].message.contains("/nowhere/server."), "{errors:?}");
    assert_eq!(bench.service.config().admin.tls, None);
}

#[test]
fn a_change_that_takes_memory_away_says_so_and_others_do_not() {
    let bench = Bench::new();
    let export = json!({
        "path": "/short", "store": { "kind": "memory", "size": "64MiB" },
        "clients": ["127.0.0.0/8"], "access": "rw",
    });
    let lost = |answer: &Answer| {
        let notes = report(answer).notes;
        notes
            .iter()
            .any(|note| note.contains("/short") && note.contains("lost when it is removed"))
    };
    assert!(!lost(&bench.patch(json!({ "exports": [export] }))));
    assert!(!lost(&bench.patch(json!({ "flow": { "credits": 64 } }))));
    assert!(lost(&bench.patch(json!({ "exports": [] }))));
}

#[test]
fn what_is_not_in_the_file_is_told() {
    let bench = Bench::new();
    let pending =
        || -> Pending { serde_json::from_str(&bench.get("/api/v1/config/pending").body).unwrap() };
    let kept = || -> Vec<(u64, bool)> {
        let history: ChangeHistory =
            serde_json::from_str(&bench.get("/api/v1/config/history").body).unwrap();
        let entries = history.history.iter();
        entries.map(|one| (one.generation, one.persisted)).collect()
    };
    let file = pending().file.unwrap();
    assert_eq!(file.path, bench.file().display().to_string());
    assert_eq!(
        (file.edited, file.unsaved, file.error),
        (false, vec![], None)
    );
    bench.patch(json!({ "flow": { "credits": 64 }, "rpcrdma": { "inline": "8KiB" } }));
    let told = pending();
    let file = told.file.unwrap();
    let keys: Vec<&str> = file.unsaved.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(keys, ["rpcrdma.inline", "flow.credits"]);
    assert_eq!(file.unsaved[1].before, json!(128));
    assert_eq!(file.unsaved[1].after, json!(64));
    assert!(!file.edited);
    assert_eq!(told.restart_required.len(), 1);
    assert_eq!(kept(), [(2, false), (1, true)]);
    // A change of nothing that writes the file: no new generation, and the latest is in the file.
    let saved = bench.ask(
        "PATCH",
        "/api/v1/config?persist=true",
        "application/merge-patch+json",
        "{}",
    );
    assert!(report(&saved).persisted);
    assert!(pending().file.unwrap().unsaved.is_empty());
    assert_eq!(kept(), [(2, true), (1, true)]);
    // What another writes to the file is seen before a reload.
    let text = fs::read_to_string(bench.file()).unwrap();
    fs::write(bench.file(), text.replace("credits: 64", "credits: 32")).unwrap();
    let file = pending().file.unwrap();
    assert!(file.edited);
    assert_eq!(file.unsaved[0].before, json!(32));
    fs::write(bench.file(), text.replace("credits: 64", "credits: lots")).unwrap();
    let file = pending().file.unwrap();
    assert!(file.error.unwrap().contains("flow.credits"));
    fs::write(bench.file(), text.replace("credits: 64", "credits: 32")).unwrap();
    report(&bench.ask("POST", "/api/v1/config/reload", "", ""));
    assert_eq!(kept(), [(3, true), (2, true), (1, true)]);
}
