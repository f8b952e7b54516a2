//! The requester against servers with and without TLS.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::Duration;

use millrace_admin::client::*;
use millrace_admin::config::Config;
use millrace_admin::status::Version;
use support::Service;
use support::raw::request;
use support::tls::{Authority, front};

mod support;

/// A requester for a server at a loopback address that goes by `name`.
fn secure(name: &str, address: SocketAddr, files: &TlsFiles) -> Client {
    Client::new(&format!("https://{name}:{}", address.port()))
        .unwrap()
        .with_tls(files.load().unwrap())
}

fn trusting(authority: &Authority, folder: &Path) -> TlsFiles {
    TlsFiles {
        authority: authority.write(folder),
        identity: None,
    }
}

fn tls_failure(client: &Client) -> TlsFailure {
    match client.get("/api/v1/version") {
        Err(ClientError::Tls { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tls_reaches_the_server_that_the_authority_vouches_for() {
    let folder = tempfile::tempdir().unwrap();
    let handle = Service::new(Config::default()).serve();
    let authority = Authority::new();
    let identity = authority.issue("127.0.0.1", |_| {});
    let address = front(handle.address(), &identity, None);
    let files = trusting(&authority, folder.path());
    let client = secure("127.0.0.1", address, &files);
    let version: Version = client.get("/api/v1/version").unwrap().value().unwrap();
    assert_eq!(version, Version::current());

    // The same on one connection, again and again.
    let mut session = Session::new(client).unwrap();
    for _ in 0..3 {
        assert_eq!(session.get("/readyz").unwrap().status, 200);
    }
}

#[test]
fn tls_that_fails_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let handle = Service::new(Config::default()).serve();
    let authority = Authority::new();
    let files = trusting(&authority, folder.path());
    let good = authority.issue("127.0.0.1", |_| {});

    let address = front(handle.address(), &good, None);
    let stranger = trusting(&Authority::new(), other.path());
    let client = secure("127.0.0.1", address, &stranger);
    assert_eq!(tls_failure(&client), TlsFailure::UnknownAuthority);

    let client = secure("localhost", address, &files);
    assert_eq!(tls_failure(&client), TlsFailure::OtherName);

    let old = authority.issue("127.0.0.1", |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let client = secure("127.0.0.1", front(handle.address(), &old, None), &files);
    assert_eq!(tls_failure(&client), TlsFailure::OutOfTime);

    let client = secure("127.0.0.1", handle.address(), &files);
    assert_eq!(tls_failure(&client), TlsFailure::Plain);

    let untrusting = Client::new(&format!("https://{address}")).unwrap();
    let refused = untrusting.get("/readyz").unwrap_err();
    assert!(matches!(refused, ClientError::NoTrust { .. }), "{refused}");

    let plain = Client::new(&format!("http://{address}")).unwrap();
    let refused = plain.get("/readyz").unwrap_err();
    assert!(refused.to_string().contains("https://"), "{refused}");
}

#[test]
fn a_client_certificate_is_shown_where_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let handle = Service::new(Config::default()).serve();
    let authority = Authority::new();
    let server = authority.issue("127.0.0.1", |_| {});
    let address = front(handle.address(), &server, Some(&authority));
    let mut files = trusting(&authority, folder.path());
    let client = secure("127.0.0.1", address, &files);
    assert_eq!(tls_failure(&client), TlsFailure::CertificateWanted);

    files.identity = Some(authority.issue("operator", |_| {}).write(folder.path()));
    let client = secure("127.0.0.1", address, &files);
    assert_eq!(client.get("/readyz").unwrap().status, 200);

    let stranger = Authority::new().issue("operator", |_| {});
    files.identity = Some(stranger.write(folder.path()));
    let failure = tls_failure(&secure("127.0.0.1", address, &files));
    assert!(
        matches!(failure, TlsFailure::CertificateRefused(_)),
        "{failure}"
    );

    let (certificate, _) = authority.issue("a", |_| {}).write(folder.path());
    let other = tempfile::tempdir().unwrap();
    let (_, key) = authority.issue("b", |_| {}).write(other.path());
    files.identity = Some((certificate, key));
    let refused = files.load().unwrap_err().to_string();
    assert!(refused.contains("cert.pem: "), "{refused}");
}

/// Answers each connection with the next of these, as they are, and gives what was asked.
fn scripted(answers: Vec<&'static [u8]>) -> (Client, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let server = thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            asked.push(request(&mut stream));
            stream.write_all(answer).unwrap();
        }
        asked
    });
    (client, server)
}

#[test]
fn an_order_carries_its_headers_and_the_answer_its_tag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nETag: \"1f-2\"\r\nContent-Length: 2\r\n\r\n{}";
    let (client, server) = scripted(vec![answer, answer]);
    let client = client.with_token(ClientToken::read(&file).unwrap());
    let got = client.get("/api/v1/config").unwrap();
    assert_eq!(got.tag.as_deref(), Some("\"1f-2\""));
    let order = Order::new(Method::Patch, "/api/v1/config")
        .with_query("dry_run", "true")
        .with_body("application/merge-patch+json", r#"{"log":"info"}"#)
        .if_match(got.tag.unwrap());
    client.send(&order).unwrap();
    let asked = server.join().unwrap();
    assert!(!asked[0].contains("s3cret"), "{}", asked[0]);
    for line in [
        "PATCH /api/v1/config?dry_run=true HTTP/1.1\r\n",
        "authorization: Bearer s3cret\r\n",
        "if-match: \"1f-2\"\r\n",
        "content-type: application/merge-patch+json\r\n",
        "\r\n\r\n{\"log\":\"info\"}",
    ] {
        assert!(asked[1].contains(line), "no {line} in {}", asked[1]);
    }
}

/// Keeps what is written, and fails when it is full.
struct Bounded(Vec<u8>, usize);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > self.1 {
            return Err(io::Error::from_raw_os_error(28));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_is_written_on_and_bounded() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        4\r\nabcd\r\n3\r\nefg\r\n0\r\n\r\n";
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabcd";
    let refusal = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}";
    let (client, server) = scripted(vec![chunked, chunked, chunked, cut, refusal]);
    let order = Order::new(Method::Post, "/capture");
    let longest = Duration::from_secs(60);
    let stream = |most: u64, room: usize| {
        let mut out = Bounded(Vec::new(), room);
        let end = client.stream(&order, longest, most, &mut out);
        (end, out.0)
    };
    let (end, written) = stream(7, 100);
    assert_eq!(end.unwrap().1, 7);
    assert_eq!(written, b"abcdefg");
    let (end, _) = stream(6, 100);
    assert!(end.unwrap_err().to_string().contains("more than 6 bytes"));
    let (end, _) = stream(7, 2);
    assert!(matches!(end, Err(ClientError::Output { .. })));
    let (end, written) = stream(1000, 1000);
    assert!(matches!(end, Err(ClientError::Protocol { .. })));
    assert_eq!(written, b"abcd");
    let (end, written) = stream(1000, 1000);
    assert_eq!(end.unwrap().0.status, 409);
    assert!(written.is_empty());
    server.join().unwrap();
}

#[test]
fn a_server_that_never_answers_costs_the_time_allowed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let client = client.with_timeout(Duration::from_millis(20));
    let refused = client.get("/readyz").unwrap_err();
    assert!(matches!(refused, ClientError::Time { .. }), "{refused}");
    let mut session = Session::new(client).unwrap();
    let refused = session.get("/readyz").unwrap_err();
    assert!(matches!(refused, ClientError::Time { .. }), "{refused}");
}

#[test]
fn a_session_outlives_the_server_it_asks() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    // The scripted server closes after each answer, without a word.
    let (client, server) = scripted(vec![answer, answer]);
    let mut session = Session::new(client).unwrap();
    assert_eq!(session.get("/a").unwrap().body, "{}");
    assert_eq!(session.get("/b").unwrap().body, "{}");
    server.join().unwrap();
    let refused = session.get("/c").unwrap_err();
    assert!(matches!(refused, ClientError::Connect { .. }), "{refused}");
}
