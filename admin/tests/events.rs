//! Events, over real sockets, against a service without reactors.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use millrace_admin::api::{AdminHandle, ApiLimits};
use millrace_admin::status::*;
use serde_json::json;
use support::Service;
use support::ctl::{Bench, ended, has};

mod support;

/// A stream of events.
struct Follower(BufReader<TcpStream>);

impl Follower {
    /// Follows from now on, or after an event. Returns when the service is observed.
    fn new(admin: &AdminHandle, last: Option<&str>) -> Self {
        let header = last.map(|id| format!("last-event-id: {id}\r\n"));
        Self::admitted(admin, &header.unwrap_or_default())
    }

    fn admitted(admin: &AdminHandle, header: &str) -> Self {
        let mut follower = Self::asking(admin, header);
        let head = follower.lines_to("");
        assert_eq!(head[0], "HTTP/1.1 200 OK", "{head:?}");
        let kind = "content-type: text/event-stream".to_owned();
        assert!(head.contains(&kind), "{head:?}");
        follower
    }

    /// Asks with one more header.
    fn asking(admin: &AdminHandle, header: &str) -> Self {
        let mut stream = TcpStream::connect(admin.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// The lines to the next one with this text, or to the end.
    fn lines_to(&mut self, end: &str) -> Vec<String> {
        let lines = self.0.by_ref().lines().map(Result::unwrap);
        lines.take_while(|line| line != end).collect()
    }

    /// The next event. Its kind and identifier stand beside it as well.
    fn next(&mut self) -> ServiceEvent {
        let (mut fields, mut comments) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "{fields:?}");
            let line = line.trim_end().to_owned();
            comments += usize::from(line.starts_with(':'));
            assert!(comments < 3, "nothing happens: {fields:?}");
            let field = |name: &str| -> Option<String> {
                let lines = fields.iter().rev();
                let mut found = lines.filter_map(|line: &String| line.strip_prefix(name));
                found.next().map(str::to_owned)
            };
            if line.is_empty()
                && let Some(data) = field("data: ")
            {
                let event: ServiceEvent = serde_json::from_str(&data).unwrap();
                assert_eq!(field("id: ").as_deref(), Some(event.id.as_str()));
                assert_eq!(field("event: ").as_deref(), Some(event.what.kind()));
                return event;
            }
            fields.push(line);
        }
    }

    fn what(&mut self) -> Occurrence {
        self.next().what
    }
}

fn served(limits: ApiLimits) -> (Arc<Service>, AdminHandle) {
    let service = Service::new(millrace_admin::config::Config::default());
    let admin = service.serve_within(None, limits);
    (service, admin)
}

fn often() -> ApiLimits {
    ApiLimits {
        observation_interval: Duration::from_millis(5),
        ..ApiLimits::default()
    }
}

#[test]
fn what_comes_and_goes_is_told_to_every_follower() {
    let (service, admin) = served(often());
    let mut followers = [(); 2].map(|()| Follower::new(&admin, None));
    let mut expect = |what: Occurrence| {
        for follower in &mut followers {
            assert_eq!(follower.what(), what);
        }
    };
    let address = "192.0.2.9".to_owned();
    service.addresses.lock().unwrap().push(address.clone());
    expect(Occurrence::ClientConnected {
        address: address.clone(),
        connections: 1,
    });
    service.addresses.lock().unwrap().pop();
    expect(Occurrence::ClientGone {
        address: address.clone(),
    });
    service.bans.lock().unwrap().push(Ban {
        address: address.clone(),
        seconds: 9,
    });
    expect(Occurrence::BanBegun {
        address: address.clone(),
        seconds: 9,
    });
    service.bans.lock().unwrap().clear();
    expect(Occurrence::BanEnded { address });
    *service.drain.lock().unwrap() = DrainPhase::Drained;
    expect(Occurrence::Drain {
        phase: DrainPhase::Drained,
    });
    expect(Occurrence::ListenerClosed {
        address: "127.0.0.1:20049".to_owned(),
        provider: "iwarp".to_owned(),
    });
    *service.readiness.lock().unwrap() = Readiness::NoListener;
    expect(Occurrence::Readiness {
        readiness: Readiness::NoListener,
    });
    service.stalled.lock().unwrap().push(StalledReactor {
        name: "reactor-1".to_owned(),
        core: None,
        activity: "polling".to_owned(),
        seconds: 3.0,
    });
    expect(Occurrence::ReactorStalled {
        name: "reactor-1".to_owned(),
        activity: "polling".to_owned(),
    });
    service.stalled.lock().unwrap().clear();
    expect(Occurrence::ReactorRecovered {
        name: "reactor-1".to_owned(),
    });
}

#[test]
fn changes_and_orders_are_told_with_their_author() {
    let bench = Bench::new();
    let mut follower = Follower::new(&bench.admin, None);
    bench.says(&["config", "set", "flow.credits=64", "--dry-run"]);
    bench.says(&["config", "set", "flow.credits=64"]);
    let first = follower.next();
    let (author, address) = ("token".to_owned(), Some("127.0.0.1".to_owned()));
    assert_eq!(
        first.what,
        Occurrence::Configuration {
            author: author.clone(),
            address: address.clone(),
            action: "patch".to_owned(),
            outcome: "applied".to_owned(),
            generation: 2,
            keys: vec!["flow.credits".to_owned()],
        }
    );
    bench.says(&["clients", "ban", "192.0.2.77", "--for", "1m"]);
    let ban = follower.next();
    assert_eq!(
        ban.what,
        Occurrence::Action {
            author,
            address,
            action: "ban 192.0.2.77 for 60 s".to_owned(),
            outcome: "done".to_owned(),
        }
    );
    // One that was away gets what it has missed.
    assert_eq!(Follower::new(&bench.admin, Some(&first.id)).next(), ban);
    let other = Follower::new(&bench.admin, Some("another-run")).what();
    assert_eq!(other, Occurrence::Lost { count: None });
}

#[test]
fn the_number_of_followers_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-of-an-operator").unwrap();
    let mut config = millrace_admin::config::Config::default();
    config.admin.token_file = Some(file);
    let limits = ApiLimits {
        event_streams: 2,
        ..often()
    };
    let admin = Service::new(config).serve_within(None, limits);
    let refused = |header: &str, told: &str| {
        let header = format!("connection: close\r\n{header}");
        let mut refused = Follower::asking(&admin, &header);
        assert_eq!(refused.lines_to("")[0], "HTTP/1.1 503 Service Unavailable");
        let mut body = String::new();
        refused.0.read_line(&mut body).unwrap_or_default();
        has(&body, &[told, ProblemType::Unavailable.uri()]);
    };
    let _strangers = [(); 2].map(|()| Follower::new(&admin, None));
    refused("", "2 clients follow events");
    // As many more are for operators.
    let operator = "authorization: Bearer a-token-of-an-operator\r\n";
    let _operators = [(); 2].map(|()| Follower::admitted(&admin, operator));
    refused(operator, "4 clients follow events");
}

#[test]
fn the_end_of_the_server_ends_streams() {
    let (_service, admin) = served(ApiLimits {
        drain_time: Duration::from_millis(50),
        ..often()
    });
    let mut follower = Follower::new(&admin, None);
    let ending = std::thread::spawn(move || admin.shutdown());
    // The last chunk, which has no bytes: the stream was not cut off.
    let rest = follower.lines_to("0");
    ending.join().unwrap();
    assert_eq!(rest, Vec::<String>::new());
    assert_eq!(follower.lines_to("-"), [""]);
}

#[test]
fn the_command_line_follows_in_words_and_in_json() {
    let bench = Bench::new();
    let follow = |arguments: &[&str]| {
        let mut command = bench.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines.map(Result::unwrap))
    };
    // Something to begin after.
    bench.says(&["config", "set", "flow.credits=64"]);
    let (words, mut said) = follow(&["events", "--after", "-"]);
    has(&said.next().unwrap(), &["lost", "has been restarted"]);
    has(
        &said.next().unwrap(),
        &[
            "configuration",
            "generation 2, patch applied by token from 127.0.0.1: flow.credits",
        ],
    );
    bench.says(&["clients", "ban", "192.0.2.77", "--for", "1m"]);
    has(
        &said.next().unwrap(),
        &["action", "ban 192.0.2.77 for 60 s: done"],
    );
    let (mut json, mut objects) = follow(&["events", "--after", "-", "--json"]);
    let kinds = [(); 3].map(|()| -> serde_json::Value {
        let event: serde_json::Value = serde_json::from_str(&objects.next().unwrap()).unwrap();
        event["event"].clone()
    });
    assert_eq!(
        kinds,
        [json!("lost"), json!("configuration"), json!("action")]
    );
    // The pipe closes, and the next event ends the program.
    drop(objects);
    bench.says(&["clients", "unban", "192.0.2.77"]);
    assert!(json.wait().unwrap().success());
    bench.admin.shutdown();
    let output = words.wait_with_output().unwrap();
    has(&ended(1, output).1, &["the server has ended the stream"]);
}
