//! Isolation of clients from each other.

use super::*;
use crate::api::Rate;

/// Connects, sends a request, and keeps the connection after the first byte of the response.
fn keep(handle: &AdminHandle) -> TcpStream {
    let mut stream = TcpStream::connect(handle.address()).unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

#[test]
fn requests_beyond_the_rate_are_told_when_to_come_again() {
    let limits = ApiLimits {
        loopback_rate: Rate {
            per_second: 1,
            burst: 3,
        },
        ..ApiLimits::default()
    };
    let (handle, client) = start(&Service::new(), limits);
    // Sent ahead on one connection, they are still answered one after the other.
    let one = "GET /api/v1/version HTTP/1.1\r\nhost: localhost\r\n";
    let request = format!("{one}\r\n").repeat(50) + one + "connection: close\r\n\r\n";
    let answers = raw(&handle, &request);
    let count = |status: &str| answers.matches(&format!("HTTP/1.1 {status}")).count();
    assert!(count("200") >= 3 && count("429") >= 1, "{answers}");
    assert_eq!(count("200") + count("429"), 51, "{answers}");
    assert!(answers.contains("retry-after: 1\r\n"), "{answers}");
    assert!(answers.contains("too many requests"), "{answers}");
    assert_eq!(client.get("/healthz").unwrap().status, 200);
    assert_eq!(client.get("/readyz").unwrap().status, 200);
}

#[test]
fn looks_at_the_health_are_bounded_too() {
    let limits = ApiLimits {
        health_rate: Rate {
            per_second: 1,
            burst: 1,
        },
        ..ApiLimits::default()
    };
    let (handle, client) = start(&Service::new(), limits);
    let one = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n";
    let answers = raw(
        &handle,
        &(format!("{one}\r\n").repeat(50) + one + "connection: close\r\n\r\n"),
    );
    assert!(answers.contains("HTTP/1.1 429 "), "{answers}");
    assert_eq!(client.get("/api/v1/version").unwrap().status, 200);
}

#[test]
fn one_address_has_no_more_than_its_share_of_connections() {
    let limits = ApiLimits {
        connections: 4,
        ..ApiLimits::default()
    };
    let (handle, client) = start(&Service::new(), limits);
    let [mut first, mut second] = [keep(&handle), keep(&handle)];
    assert_eq!(client.get("/api/v1/version").unwrap().status, 200);
    // Only the one that was idle longest was evicted.
    first.read_to_end(&mut Vec::new()).unwrap();
    second.set_nonblocking(true).unwrap();
    let open = loop {
        match second.read(&mut [0; 4096]) {
            Ok(0) => break false,
            Ok(_) => {}
            Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    assert!(open);
}

#[test]
fn bodies_that_come_slowly_or_without_end_are_refused() {
    let limits = ApiLimits {
        body_time: Duration::from_millis(20),
        body_bytes: 8,
        ..ApiLimits::default()
    };
    let (handle, client) = start(&Service::new(), limits);
    let request = "PUT /api/v1/config HTTP/1.1\r\nhost: localhost\r\n";
    for (rest, status, words) in [
        ("content-length: 8\r\n\r\n{", "408", "within 20ms"),
        (
            "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
            "408",
            "within 20ms",
        ),
        (
            "transfer-encoding: chunked\r\n\r\n9\r\n123456789\r\n",
            "413",
            "more than 8 bytes",
        ),
        (
            "transfer-encoding: chunked\r\n\r\nx\r\n",
            "400",
            "not terminated properly",
        ),
    ] {
        let answer = raw(&handle, &format!("{request}{rest}"));
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(answer.contains(words), "{answer}");
    }
    assert_eq!(client.get("/healthz").unwrap().status, 200);
}

#[test]
fn a_client_that_does_not_read_its_answers_is_cut_off() {
    let limits = ApiLimits {
        connections: 1,
        write_time: Duration::from_millis(20),
        loopback_rate: Rate::per_second(u32::MAX),
        ..ApiLimits::default()
    };
    let (handle, client) = start(&Service::new(), limits);
    let mut stream = keep(&handle);
    let path = "x".repeat(15_000);
    let request = format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    // Responses are not read, far more of them than buffers hold.
    while stream.write_all(request.as_bytes()).is_ok() {}
    // The only place is free again although the client keeps its end open.
    assert_eq!(client.get("/healthz").unwrap().status, 200);
    drop(stream);
}

#[test]
fn questions_that_were_given_up_count_until_they_are_done() {
    let limits = ApiLimits {
        questions: 1,
        answer_time: Duration::from_millis(50),
        ..ApiLimits::default()
    };
    let service = Service::new();
    let (_handle, client) = start(&service, limits);
    let (entered, has_entered) = channel();
    let (release, leave) = channel();
    *service.gate.lock().unwrap() = Some((entered, leave));
    assert_eq!(client.get("/api/v1/connections").unwrap().status, 503);
    has_entered.recv().unwrap();
    // The service would answer these, but gets no questions before the first is done.
    for _ in 0..3 {
        assert_eq!(client.get("/api/v1/connections").unwrap().status, 503);
        assert_eq!(client.get("/healthz").unwrap().status, 200);
    }
    drop(release);
    while client.get("/api/v1/connections").unwrap().status == 503 {}
}
