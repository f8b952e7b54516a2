//! The configuration, shown and changed from the command line.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::{self, JoinHandle};

use millrace_admin::config::parse;
use millrace_admin::control::{ApplyError, Control};
use millrace_admin::status::ReactorOutcome;
use support::ctl::{Bench, ctl, ended, has, told};
use support::raw::request;

mod support;

#[test]
fn keys_are_shown_and_set() {
    let bench = Bench::new();
    assert_eq!(bench.says(&["config", "get", "flow.credits"]), "128\n");
    assert_eq!(
        bench.says(&["config", "get", "fabric[127.0.0.1:20049].crc"]),
        "auto\n"
    );
    has(
        &bench.says(&["config", "get", "reactors"]),
        &["cores:", "poll: busy"],
    );
    let (_, complaint) = bench.ends(1, &["config", "get", "flow.credit"]);
    has(&complaint, &["no `flow.credit`", "credits"]);

    let set = [
        "config",
        "set",
        "flow.credits=64",
        "log=info,millrace=debug",
    ];
    let text = bench.says(&[&set[..], &["--dry-run"]].concat());
    has(
        &text,
        &[
            "flow.credits: 128 -> 64  (live)",
            "dry run: nothing was changed",
        ],
    );
    assert_eq!(bench.service.config().flow.credits, 128);
    let text = bench.says(&set);
    has(
        &text,
        &[
            "log: info -> info,millrace=debug  (live)",
            "generation 2 is in force",
        ],
    );
    has(&text, &["applied by 1 reactor within 100us"]);
    assert_eq!(bench.service.config().flow.credits, 64);
    has(&bench.says(&set), &["nothing differs"]);

    let report = bench.json(&["config", "set", "flow.credits=32", "--persist"]);
    assert_eq!(report["changes"][0]["path"], "flow.credits");
    assert_eq!(report["persisted"], true);
    let file = std::fs::read_to_string(bench.file("millraced.yaml")).unwrap();
    assert_eq!(parse(&file, "file").unwrap().flow.credits, 32);
}

#[test]
fn what_cannot_be_set_is_told_key_by_key() {
    let bench = Bench::new();
    let (_, complaint) = bench.ends(1, &["config", "set", "flow.credits=0"]);
    has(
        &complaint,
        &["the server answers 422", "\n  flow.credits: "],
    );
    let (_, complaint) = bench.ends(1, &["config", "set", "flow.credit=1"]);
    has(&complaint, &["422", "credit"]);
    let (_, complaint) = bench.ends(2, &["config", "set", "flow.credits"]);
    has(&complaint, &["write KEY=VALUE"]);
    *bench.service.refuses.lock().unwrap() = Some(ApplyError {
        path: "mempool.size".to_owned(),
        reason: "there is no memory".to_owned(),
        reactors: vec![ReactorOutcome {
            name: "reactor-0".to_owned(),
            core: Some(0),
            applied: false,
            error: Some("out of pages\x1b[2J".to_owned()),
            seconds: 0.1,
        }],
    });
    let (_, complaint) = bench.ends(1, &["config", "set", "mempool.size=1GiB"]);
    has(
        &complaint,
        &[
            "there is no memory",
            "\n  reactor-0: out of pages\u{fffd}[2J",
        ],
    );
}

#[test]
fn files_are_compared_and_applied() {
    let bench = Bench::new();
    let text = bench.says(&["config"]);
    let file = bench.write("new.yaml", &text.replace("credits: 128", "credits: 16"));
    let file = file.to_str().unwrap();
    let difference = bench.says(&["config", "diff", file]);
    assert_eq!(difference, "  ~ flow.credits: 128 -> 16  (live)\n");
    let changes = bench.json(&["config", "diff", file]);
    assert_eq!(changes["changes"][0]["after"], 16);
    has(
        &bench.says(&["config", "apply", file, "--dry-run"]),
        &["dry run"],
    );
    has(
        &bench.says(&["config", "apply", file]),
        &["128 -> 16", "generation 2"],
    );
    assert_eq!(bench.says(&["config", "diff", file]), "nothing differs\n");

    let restart = text.replace("hugepages: auto", "hugepages: off");
    let child = told(bench.command(&["config", "apply", "-"]), &restart);
    let (said, _) = ended(0, child.wait_with_output().unwrap());
    has(&said, &["hugepages: auto -> off  (needs a restart)"]);
    has(
        &bench.says(&["config", "pending"]),
        &["mempool.hugepages: auto -> off"],
    );

    let bad = bench.write("bad.yaml", "flow:\n  credits: many\n");
    let (_, complaint) = bench.ends(1, &["config", "apply", bad.to_str().unwrap()]);
    has(&complaint, &["bad.yaml:2:12: flow.credits: "]);
    let (_, complaint) = bench.ends(2, &["config", "apply", "/nonexistent.yaml"]);
    has(&complaint, &["/nonexistent.yaml: cannot be read"]);
}

#[test]
fn the_history_is_shown_and_gone_back_in() {
    let bench = Bench::new();
    has(
        &bench.says(&["config", "pending"]),
        &["nothing waits for a restart\n"],
    );
    bench.says(&["config", "set", "flow.credits=64"]);
    let text = bench.says(&["config", "history"]);
    has(&text, &["   2  ", " UTC  patch by token from 127.0.0.1"]);
    has(
        &text,
        &["flow.credits: 128 -> 64", "   1  ", "start by start"],
    );
    let first = bench.says(&["config", "show-generation", "1"]);
    assert_eq!(parse(&first, "first").unwrap().flow.credits, 128);
    assert!(bench.json(&["config", "show-generation", "2"]).is_object());
    let (_, complaint) = bench.ends(1, &["config", "rollback", "9"]);
    has(&complaint, &["404", "generation 9"]);
    has(
        &bench.says(&["config", "rollback", "1", "--dry-run"]),
        &["64 -> 128", "dry run"],
    );
    has(
        &bench.says(&["config", "rollback", "1"]),
        &["64 -> 128", "generation 3"],
    );
    let file = std::fs::read_to_string(bench.file("millraced.yaml")).unwrap();
    bench.write(
        "millraced.yaml",
        &file.replace("credits: 128", "credits: 8"),
    );
    has(
        &bench.says(&["config", "reload", "--dry-run"]),
        &["128 -> 8", "dry run"],
    );
    has(
        &bench.says(&["config", "reload"]),
        &["128 -> 8", "generation 4"],
    );
}

#[test]
fn changes_need_the_token_and_say_so() {
    let bench = Bench::new();
    let set = ["config", "set", "flow.credits=64"];
    let without = bench
        .command(&set)
        .env_remove("MILLRACE_TOKEN_FILE")
        .output();
    let (_, complaint) = ended(1, without.unwrap());
    has(
        &complaint,
        &[
            "the server answers 401",
            "--token-file FILE (or MILLRACE_TOKEN_FILE)",
        ],
    );
    let wrong = bench.write("wrong", "another-token-of-the-tests\n");
    let other = [&set[..], &["--token-file", wrong.to_str().unwrap()]].concat();
    let (_, complaint) = bench.ends(1, &other);
    has(&complaint, &["401"]);
    assert!(!complaint.contains("another-token"), "{complaint}");
    let missing = [&set[..], &["--token-file", "/nonexistent/token"]].concat();
    let (_, complaint) = bench.ends(2, &missing);
    has(&complaint, &["/nonexistent/token: "]);
    // What changes nothing needs none.
    bench.says(&["version", "--token-file", "/nonexistent/token"]);
}

#[test]
fn whoever_is_slower_changes_nothing_and_is_told_how_to_go_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let problem = r#"{"type":"about:blank","title":"Precondition Failed","status":412,"detail":"the configuration has changed meanwhile"}"#;
        let answers = [
            "HTTP/1.1 200 OK\r\nETag: \"1f-1\"\r\nContent-Length: 14\r\n\r\n{\"log\":\"info\"}"
                .to_owned(),
            format!(
                "HTTP/1.1 412 Precondition Failed\r\nContent-Length: {}\r\n\r\n{problem}",
                problem.len()
            ),
        ];
        let mut last = String::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            last = request(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        }
        last
    });
    let output = ctl()
        .args(["--address", &address, "config", "set", "log=debug"])
        .output();
    let (_, complaint) = ended(1, output.unwrap());
    has(
        &complaint,
        &[
            "412: the configuration has changed meanwhile",
            "nothing was changed",
        ],
    );
    has(&complaint, &["config history", "Run the command again"]);
    has(
        &server.join().unwrap(),
        &["if-match: \"1f-1\"\r\n", r#"{"log":"debug"}"#],
    );
}

/// Answers these, one for each connection, and gives the requests.
fn scripted(socket: &Path, answers: Vec<(&'static str, String)>) -> JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        let answer = |(status, body): (&str, String)| {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = request(&mut stream);
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nETag: \"1f-1\"\r\nContent-Length: {length}");
            stream
                .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
                .unwrap();
            asked
        };
        answers.into_iter().map(answer).collect()
    })
}

#[test]
fn what_the_server_may_not_write_is_written_by_who_may() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("millraced.yaml");
    let old = "# Mine.\nflow: { credits: 128 } # usual\n";
    let refusal = |of: &Path| {
        serde_json::json!({
            "type": "urn:millrace:problem:file-denied", "title": "Conflict", "status": 409,
            "detail": format!("{}: Permission denied; and more", of.display()),
        })
        .to_string()
    };
    let report = r#"{"generation":2,"dry_run":false,"persisted":false,"changes":[],"restart_required":[],"notes":[],"reactors":[]}"#;
    let run = |name: &str, answers: Vec<(&'static str, String)>, status: i32| {
        std::fs::write(&file, old).unwrap();
        let socket = folder.path().join(name);
        let server = scripted(&socket, answers);
        let address = format!("unix:{}", socket.display());
        let output = ctl()
            .env("MILLRACE_CONFIG_FILE", &file)
            .args([
                "--address",
                &address,
                "config",
                "set",
                "flow.credits=64",
                "--persist",
            ])
            .output();
        (ended(status, output.unwrap()), server.join().unwrap())
    };
    let now = ("200 OK", r#"{"flow":{"credits":128}}"#.to_owned());
    let answers = vec![
        now.clone(),
        ("409 Conflict", refusal(&file)),
        ("200 OK", report.to_owned()),
        ("200 OK", "flow: { credits: 64 }\n".to_owned()),
        ("200 OK", report.to_owned()),
    ];
    let ((said, _), asked) = run("first", answers, 0);
    has(&said, &["generation 2"]);
    has(&asked[1], &["?persist=true", "if-match: \"1f-1\""]);
    assert!(!asked[2].contains("persist"), "{}", asked[2]);
    has(&asked[2], &[r#"{"flow":{"credits":64}}"#]);
    has(&asked[4], &["POST /api/v1/config/reload "]);
    let kept = std::fs::read_to_string(&file).unwrap();
    assert_eq!(kept, old.replace("128", "64"));
    let backup = folder.path().join("millraced.yaml.bak.1");
    assert_eq!(std::fs::read_to_string(backup).unwrap(), old);

    // Another file than the server's is not touched, whatever the server says.
    let elsewhere = refusal("/etc/elsewhere.yaml".as_ref());
    let ((_, told), _) = run("second", vec![now, ("409 Conflict", elsewhere)], 1);
    has(&told, &["409", "Permission denied"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), old);
}

#[test]
fn what_is_not_in_the_file_is_shown_and_saved() {
    let bench = Bench::new();
    has(
        &bench.says(&["config", "diff"]),
        &["has all of the configuration"],
    );
    bench.says(&["config", "set", "flow.credits=64"]);
    has(
        &bench.says(&["config", "diff"]),
        &["not in ", "a restart loses it", "flow.credits: 128 -> 64"],
    );
    has(
        &bench.says(&["config", "pending"]),
        &["nothing waits for a restart", "flow.credits: 128 -> 64"],
    );
    has(
        &bench.says(&["status"]),
        &["UNSAVED     a restart changes flow.credits"],
    );
    has(
        &bench.says(&["config", "history"]),
        &["patch by token from 127.0.0.1, not in the file"],
    );
    let other = bench
        .write("other.yaml", "flow: { credits: 96 }\n")
        .display()
        .to_string();
    let named = bench.says(&["config", "diff", "--file", &other]);
    has(&named, &["flow.credits: 64 -> 96"]);
    assert_eq!(named, bench.says(&["config", "diff", &other]));
    has(
        &bench.says(&["config", "save"]),
        &["configuration file was written"],
    );
    has(
        &bench.says(&["config", "diff"]),
        &["has all of the configuration"],
    );
    assert!(
        !bench
            .says(&["config", "history"])
            .contains("not in the file")
    );
    assert!(!bench.says(&["status"]).contains("UNSAVED"));
}
