//! Who may change things, through the API's sockets.

mod support;

use std::fs;

use millrace_admin::config::Config;
use millrace_admin::control::Control;
use support::Service;
use support::bench::{Bench, TOKEN, problem, report};
use support::http::{Answer, Request};

/// A change of nothing with this header `Authorization`.
fn say(bench: &Bench, authorization: &[&str]) -> Answer {
    let mut request = Request::new("PATCH", "/api/v1/config")
        .header("if-match", "*")
        .header("content-type", "application/json")
        .body("{}".to_owned());
    for value in authorization {
        request = request.header("authorization", value);
    }
    request.send(bench.admin.address())
}

#[test]
fn the_token_is_asked_for_and_compared() {
    let bench = Bench::new();
    let good = format!("Bearer {TOKEN}");
    for wrong in [
        &[][..],
        &["Bearer"],
        &["Bearer "],
        &["Basic YTpi"],
        &[TOKEN],
        &[&good, &good],
        &["Bearer a-token-of-the-test"],
    ] {
        let answer = say(&bench, wrong);
        problem(&answer, 401);
        let scheme = answer.header("www-authenticate").unwrap();
        assert!(scheme.starts_with("Bearer"), "{scheme}");
    }
    for right in [
        good.as_str(),
        &format!("bearer   {TOKEN}"),
        &format!("BEARER {TOKEN} "),
    ] {
        report(&say(&bench, &[right]));
    }
}

#[test]
fn a_new_token_counts_at_once_and_a_missing_one_is_told() {
    let bench = Bench::new();
    let file = bench.folder.path().join("token");
    let old = format!("Bearer {TOKEN}");
    report(&say(&bench, &[&old]));
    fs::write(&file, "another-token-of-the-tests").unwrap();
    problem(&say(&bench, &[&old]), 401);
    report(&say(&bench, &["Bearer another-token-of-the-tests"]));
    fs::write(&file, "short").unwrap();
    let told = problem(&say(&bench, &["Bearer short"]), 503);
    assert!(told.detail.contains("16 characters"), "{told:?}");
    fs::remove_file(&file).unwrap();
    problem(&say(&bench, &[&old]), 503);
    // Not even if it leads to the right token.
    let elsewhere = bench.folder.path().join("elsewhere");
    fs::write(&elsewhere, TOKEN).unwrap();
    std::os::unix::fs::symlink(elsewhere, &file).unwrap();
    let told = problem(&say(&bench, &[&old]), 503);
    assert!(told.detail.contains("symbolic link"), "{told:?}");
    assert_eq!(bench.get("/api/v1/config").status, 200);
}

#[test]
fn without_a_token_file_nothing_can_be_changed() {
    let service = Service::new(Config::default());
    let admin = service.serve();
    let request = Request::new("POST", "/api/v1/config/reload").header("authorization", "Bearer x");
    let told = problem(&request.send(admin.address()), 403);
    assert!(told.detail.contains("admin.token_file"), "{told:?}");
    assert_eq!(service.config().admin.token_file, None);
}

#[test]
fn whoever_says_many_wrong_tokens_has_to_wait() {
    let bench = Bench::new();
    for _ in 0..8 {
        problem(&say(&bench, &["Bearer wrong-wrong-wrong"]), 401);
    }
    // A slow machine may give one more try for each second that the eight took.
    let answer = loop {
        let answer = say(&bench, &["Bearer wrong-wrong-wrong"]);
        if answer.status != 401 {
            break answer;
        }
    };
    problem(&answer, 429);
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    let audit = fs::read_to_string(bench.folder.path().join("audit.jsonl")).unwrap();
    assert!(
        audit.lines().count() >= 8 && !audit.contains("wrong-wrong"),
        "{audit}"
    );
    assert_eq!(bench.get("/healthz").status, 200, "readers do not wait");
}

/// Whatever is added later is found here by its description.
#[test]
fn nothing_can_be_changed_without_the_token() {
    let bench = Bench::new();
    let description = bench.get("/api/v1/openapi.json").body;
    let description: serde_json::Value = serde_json::from_str(&description).unwrap();
    let mut asked = 0;
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in ["put", "post", "patch", "delete"] {
            if item.get(method).is_none() {
                continue;
            }
            let parts = path.split('/').map(|part| match part {
                "{address}" => "192.0.2.1",
                part if part.starts_with('{') => "7",
                part => part,
            });
            let path = parts.collect::<Vec<_>>().join("/");
            let answer = Request::new(&method.to_uppercase(), &path).send(bench.admin.address());
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
            asked += 1;
        }
    }
    assert!(asked >= 8, "{asked}");
}
