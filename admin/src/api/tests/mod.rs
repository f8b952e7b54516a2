//! The API over real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::change::ConfigStore;
use crate::client::{Answer, Client, ClientError};
use crate::config::ConfigProblem;
use crate::config::{Config, parse};
use crate::control::{Applied, ApplyError, CaptureStream, Control, ControlError, Nfs4Control};
use crate::figures::{ItemSamples, ServiceTotals};
use crate::metrics::Metrics;
use crate::status::*;

mod described;
mod limits;
mod secure;

/// A service whose state the tests set.
struct Service {
    readiness: Mutex<Readiness>,
    health: Mutex<Health>,
    /// Taken by `connections`, which then waits for a message through it.
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Service {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            readiness: Mutex::new(Readiness::Ready),
            health: Mutex::default(),
            gate: Mutex::default(),
        })
    }
}

fn connection() -> ConnectionStatus {
    ConnectionStatus {
        id: 7,
        peer: "192.0.2.1:800".to_owned(),
        provider: "iwarp".to_owned(),
        device: None,
        core: Some(3),
        age_seconds: 1.5,
        rpcrdma_version: Some(1),
        inline_send_bytes: Some(4096),
        inline_receive_bytes: Some(4096),
        credits_granted: Some(128),
        credits_requested: Some(128),
        requests_in_flight: 2,
        requests: 99,
        bytes_written: 1 << 40,
        bytes_read: 5,
        exposures: 0,
        latency: None,
    }
}

impl Control for Service {
    fn readiness(&self) -> Readiness {
        *self.readiness.lock().unwrap()
    }

    fn health(&self) -> Health {
        self.health.lock().unwrap().clone()
    }

    fn config(&self) -> Arc<Config> {
        Arc::new(Config::default())
    }

    fn check(&self, _next: &Config) -> Vec<ConfigProblem> {
        Vec::new()
    }

    fn apply(&self, _next: Arc<Config>) -> Result<Applied, ApplyError> {
        Ok(Applied::default())
    }

    fn clients(&self) -> Result<Vec<ClientStatus>, ControlError> {
        Ok(Vec::new())
    }

    fn ban(&self, _: IpAddr, _: Duration) -> Result<(), ControlError> {
        Ok(())
    }

    fn lift_ban(&self, _: IpAddr) -> bool {
        false
    }

    fn bans(&self) -> Vec<Ban> {
        Vec::new()
    }

    fn evict(&self, connection: u64) -> Result<bool, ControlError> {
        Ok(connection == 7)
    }

    fn listeners(&self) -> Result<Vec<ListenerStatus>, ControlError> {
        Ok(Vec::new())
    }

    fn totals(&self) -> ServiceTotals {
        ServiceTotals::default()
    }

    fn item_samples(&self) -> ItemSamples {
        ItemSamples::default()
    }

    fn operations(&self) -> Vec<OperationStatus> {
        Vec::new()
    }

    fn drain(&self, _order: DrainOrder) -> Result<DrainStatus, ControlError> {
        self.drain_status()
    }

    fn drain_status(&self) -> Result<DrainStatus, ControlError> {
        Err(ControlError::Unavailable("not here".to_owned()))
    }

    fn cancel_drain(&self) -> Result<DrainStatus, ControlError> {
        self.drain_status()
    }

    fn capture(
        &self,
        _connection: u64,
        _bounds: &CaptureBounds,
    ) -> Result<Option<Box<dyn CaptureStream>>, ControlError> {
        Ok(None)
    }

    fn nfs4(&self) -> Option<&dyn Nfs4Control> {
        None
    }

    fn connections(&self) -> Result<Vec<ConnectionStatus>, ControlError> {
        let gate = self.gate.lock().unwrap().take();
        if let Some((entered, leave)) = gate {
            entered.send(()).unwrap();
            // Ends with a message or when the other side is dropped.
            let _ = leave.recv();
        }
        Ok(vec![connection()])
    }

    fn reactors(&self) -> Result<Vec<ReactorStatus>, ControlError> {
        Err(ControlError::Unavailable(
            "reactor-3 did not answer".to_owned(),
        ))
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, ControlError> {
        panic!("a bug in the service");
    }

    fn exports(&self) -> Result<Vec<ExportStatus>, ControlError> {
        Ok(Vec::new())
    }
}

fn start(service: &Arc<Service>, limits: ApiLimits) -> (AdminHandle, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config_store =
        ConfigStore::new(Arc::clone(service) as _, Arc::new(Config::default()), None);
    let state = AdminState::new(
        Arc::clone(service) as _,
        Metrics::new(),
        Arc::new(config_store),
    );
    let state = state.with_limits(limits);
    let handle = serve(listener, state).unwrap();
    let client = Client::new(&format!("http://{}/", handle.address())).unwrap();
    (handle, client)
}

fn usual() -> (AdminHandle, Client, Arc<Service>) {
    let service = Service::new();
    let (handle, client) = start(&service, ApiLimits::default());
    (handle, client, service)
}

fn problem_of(answer: &Answer) -> Problem {
    let problem: Problem = serde_json::from_str(&answer.body).unwrap_or_else(|error| {
        panic!("{error} in {answer:?}");
    });
    assert_eq!(problem.status, answer.status);
    problem
}

/// Sends bytes and reads to the end of the connection.
fn raw(handle: &AdminHandle, request: &str) -> String {
    let mut stream = TcpStream::connect(handle.address()).unwrap();
    // The server may respond and close before everything is written.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends bytes and reads the head of the response.
fn head(handle: &AdminHandle, request: &str) -> String {
    let mut stream = TcpStream::connect(handle.address()).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let head = lines.by_ref().take_while(|line| !line.is_empty());
    head.map(|line| line + "\r\n").collect()
}

#[test]
fn the_dashboard_and_all_that_it_links_to_answers() {
    let (_handle, client, _) = usual();
    let page = client.get("/").unwrap();
    assert_eq!(page.status, 200);
    let links = ["href=\"", "src=\""].map(|attribute| page.body.split(attribute).skip(1));
    let mut seen = 0;
    for link in links.into_iter().flatten() {
        let path = link.split('"').next().unwrap();
        if path.starts_with('#') {
            continue;
        }
        let status = client.get(&format!("/{path}")).unwrap().status;
        let expected = match path {
            "api/v1/pools" => 500,
            _ => 200,
        };
        assert_eq!(status, expected, "{path}");
        seen += 1;
    }
    assert!(seen > 10, "{seen} links");
    assert_eq!(client.get("/assets/none.js").unwrap().status, 404);
}

#[test]
fn the_guide_is_served_with_its_parts_and_other_pages_are_not_found() {
    let (handle, client, _) = usual();
    for path in [
        "/docs/",
        "/docs/operations",
        "/docs/metrics",
        "/docs/status",
    ] {
        let page = client.get(path).unwrap();
        assert_eq!(page.status, 200, "{path}");
        let parts = page.body.split(" href=\"../").skip(1);
        let parts: Vec<&str> = parts.map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(parts.contains(&"assets/guide.css"), "{parts:?}");
        for part in parts {
            let status = client.get(&format!("/{part}")).unwrap().status;
            assert_eq!(status, 200, "{path}: {part}");
        }
    }
    let request = "HEAD /docs/operations HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let told = head(&handle, request);
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    for line in [
        "content-type: text/html",
        "content-security-policy: default-src 'none'",
    ] {
        assert!(told.contains(line), "{told}");
    }
    for path in ["/docs/none", "/docs/OPERATIONS.md", "/docs/..%2Foperations"] {
        assert_eq!(client.get(path).unwrap().status, 404, "{path}");
    }
}

#[test]
fn snapshots_come_under_their_own_name() {
    let (_handle, client, _) = usual();
    let answer = client.get("/api/v1/connections").unwrap();
    let list: Connections = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(list.connections, [connection()]);
    assert_eq!(
        client.get("/api/v1/exports").unwrap().body,
        r#"{"exports":[],"next":null}"#
    );
    let version: Version =
        serde_json::from_str(&client.get("/api/v1/version").unwrap().body).unwrap();
    assert_eq!(version, Version::current());
    let metrics = client.get("/metrics").unwrap().body;
    assert!(
        metrics.contains("# TYPE millrace_build_info gauge"),
        "{metrics}"
    );
}

#[test]
fn health_names_the_reactors_that_are_stalled() {
    let (_handle, client, service) = usual();
    assert_eq!(
        client.get("/healthz").unwrap(),
        Answer {
            tag: None,
            status: 200,
            body: r#"{"stalled":[]}"#.to_owned()
        }
    );
    let stalled = StalledReactor {
        name: "reactor-1".to_owned(),
        core: Some(1),
        activity: "polling iwarp".to_owned(),
        seconds: 2.5,
    };
    service.health.lock().unwrap().stalled.push(stalled);
    let answer = client.get("/healthz").unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("reactor-1") && answer.body.contains("polling iwarp"));
}

#[test]
fn readiness_follows_the_service() {
    let (_handle, client, service) = usual();
    for (readiness, status, word) in [
        (Readiness::Starting, 503, "starting"),
        (Readiness::Ready, 200, "ready"),
        (Readiness::Draining, 503, "draining"),
        (Readiness::NoListener, 503, "no_listener"),
    ] {
        *service.readiness.lock().unwrap() = readiness;
        let body = format!(r#"{{"readiness":"{word}"}}"#);
        assert_eq!(
            client.get("/readyz").unwrap(),
            Answer {
                status,
                body,
                tag: None
            }
        );
    }
}

#[test]
fn the_configuration_comes_as_json_and_as_yaml_that_parses() {
    let (_handle, client, _) = usual();
    let yaml = client.get("/api/v1/config?format=yaml").unwrap().body;
    assert_eq!(parse(&yaml, "answer"), Ok(Config::default()), "{yaml}");
    let json = client.get("/api/v1/config").unwrap().body;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["mempool"]["size"], "256MiB", "{json}");
    assert_eq!(value["fabric"][0]["listen"], "127.0.0.1:20049", "{json}");
    for (wrong, words) in [
        ("/api/v1/config?format=xml", "format=yaml"),
        ("/api/v1/config?form=yaml", "`form`; it may have format"),
    ] {
        let answer = client.get(wrong).unwrap();
        assert_eq!(answer.status, 400);
        assert!(problem_of(&answer).detail.contains(words), "{answer:?}");
    }
}

#[test]
fn what_fails_is_told_as_a_problem() {
    let (handle, client, _) = usual();
    for (path, status, words) in [
        ("/nothing", 404, "/nothing"),
        ("/api/v1/nothing", 404, "/api/v1/nothing"),
        ("/api/v1/reactors", 503, "reactor-3 did not answer"),
        ("/api/v1/pools", 500, "see the log"),
    ] {
        let answer = client.get(path).unwrap();
        assert_eq!(answer.status, status, "{path}");
        assert!(problem_of(&answer).detail.contains(words), "{answer:?}");
    }
    for path in ["/metrics", "/api/v1/config/history", "/api/v1/exports"] {
        let request =
            format!("PUT {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = raw(&handle, &request);
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
        assert!(answer.contains("does not have the method PUT"), "{answer}");
        assert!(answer.contains("allow: GET,HEAD"), "{answer}");
    }
    let answer = raw(
        &handle,
        "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    assert!(
        answer.contains("x-content-type-options: nosniff"),
        "{answer}"
    );
}

#[test]
fn broken_and_oversized_requests_end_with_an_answer() {
    let (handle, client, _) = usual();
    let headers: String = (0..100).map(|n| format!("x-{n}: 1\r\n")).collect();
    let long = "x".repeat(100_000);
    for (request, status) in [
        ("\0\0\0\0\r\n\r\n".to_owned(), "400"),
        ("GET\r\n\r\n".to_owned(), "400"),
        (
            format!("GET / HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"),
            "431",
        ),
        (
            format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"),
            "431",
        ),
        (
            format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            "4",
        ),
        (
            "GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1048577\r\n\r\n".to_owned(),
            "413",
        ),
    ] {
        let answer = raw(&handle, &request);
        let shown: String = request.chars().take(60).collect();
        // A reset may overtake the response if much is left unread.
        assert!(
            answer.is_empty() && request.len() > 50_000
                || answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{shown:?}: {answer}"
        );
    }
    assert_eq!(client.get("/healthz").unwrap().status, 200);
}

#[test]
fn a_client_that_sends_no_request_is_cut_off() {
    let limits = ApiLimits {
        header_time: Duration::from_millis(20),
        ..ApiLimits::default()
    };
    let (handle, _client) = start(&Service::new(), limits);
    for beginning in ["", "GET / HTTP/1.1\r\nhost:"] {
        // Ends only because the server closes the connection.
        raw(&handle, beginning);
    }
    let idle = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert!(raw(&handle, idle).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_connection_ends_at_its_age() {
    let limits = ApiLimits {
        connection_time: Duration::from_millis(20),
        ..ApiLimits::default()
    };
    let (handle, _client) = start(&Service::new(), limits);
    assert!(
        raw(&handle, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .starts_with("HTTP/1.1 200 ")
    );
}

#[test]
fn a_service_that_does_not_answer_is_given_up() {
    let service = Service::new();
    let limits = ApiLimits {
        answer_time: Duration::from_millis(20),
        ..ApiLimits::default()
    };
    let (_handle, client) = start(&service, limits);
    let (entered, _has_entered) = channel();
    let (release, leave) = channel();
    *service.gate.lock().unwrap() = Some((entered, leave));
    let answer = client.get("/api/v1/connections").unwrap();
    drop(release);
    assert_eq!(answer.status, 503);
    assert!(
        problem_of(&answer)
            .detail
            .contains("did not answer within 20ms"),
        "{answer:?}"
    );
}

#[test]
fn shutdown_finishes_answers_under_way_and_closes_the_port() {
    let service = Service::new();
    let (handle, client) = start(&service, ApiLimits::default());
    let address = handle.address();
    let (entered, has_entered) = channel();
    let (release, leave) = channel();
    *service.gate.lock().unwrap() = Some((entered, leave));
    let asking = std::thread::spawn({
        let client = client.clone();
        move || client.get("/api/v1/connections")
    });
    has_entered.recv().unwrap();
    let ending = std::thread::spawn(move || handle.shutdown());
    release.send(()).unwrap();
    let answer = asking.join().unwrap().unwrap();
    assert_eq!(answer.status, 200);
    ending.join().unwrap();
    assert!(matches!(
        client.get("/healthz"),
        Err(ClientError::Connect { .. })
    ));
    TcpListener::bind(address).unwrap();
}

#[test]
fn addresses_are_read_and_refused() {
    for good in [
        "http://127.0.0.1:9620",
        "localhost:1/",
        "http://[::1]:9620/",
    ] {
        assert!(Client::new(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "127.0.0.1",
        "http://a:1/b",
        "http://a:99999",
        ":1",
        "a\r\n:1",
    ] {
        assert!(
            matches!(Client::new(bad), Err(ClientError::Address(_))),
            "{bad}"
        );
    }
}
