//! Captures of a connection, of a running service and over software iWARP.

mod serving;

use std::time::{Duration, Instant};

use millrace_admin::control::{CaptureStream, Control, ControlError};
use millrace_admin::status::CaptureBounds;
use millrace_wire::rpc::{self, MessageType};
use millrace_wire::rpcrdma::{Body, Header, Rules};
use serving::{TEST_TIMEOUT, client, connections, exchange, session, start};

/// What stands in the file before the first packet.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// IPv4 and TCP.
const HEADERS: usize = 40;
/// Before and behind the message of an FPDU: lengths, DDP and RDMAP, and the check value.
const FPDU: (usize, usize) = (20, 4);

/// Everything until the capture ends.
fn rest(stream: &mut dyn CaptureStream) -> Vec<u8> {
    let start = Instant::now();
    let mut file = Vec::new();
    while let Some(piece) = stream.next(Duration::from_millis(10)).expect("goes on") {
        file.extend(piece);
        assert!(start.elapsed() < TEST_TIMEOUT, "the capture does not end");
    }
    file
}

/// A message in a capture.
struct Seen {
    /// The port of who sent it.
    port: u16,
    seconds: u64,
    bytes: Vec<u8>,
}

/// The messages of a file, each of one FPDU.
fn messages(file: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut rest = &file[FILE_HEADER..];
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four"));
        let (seconds, length) = (u64::from(word(0)), word(8) as usize);
        let packet = &rest[PACKET_HEADER..PACKET_HEADER + length];
        let payload = &packet[HEADERS..];
        if !payload.is_empty() && !payload.starts_with(b"MPA ID") {
            let ulpdu = usize::from(u16::from_be_bytes([payload[0], payload[1]]));
            assert_eq!(payload.len(), (2 + ulpdu).next_multiple_of(4) + FPDU.1);
            seen.push(Seen {
                port: u16::from_be_bytes([packet[20], packet[21]]),
                seconds,
                bytes: payload[FPDU.0..2 + ulpdu].to_vec(),
            });
        }
        rest = &rest[PACKET_HEADER + length..];
    }
    seen
}

fn since_epoch() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.expect("after the epoch").as_secs()
}

#[test]
fn calls_and_replies_are_captured_as_they_were() {
    let service = start("");
    let control = &*service.control();
    let client = client(&service, "127.0.0.1");
    let mut session = session(&client);
    session.null().expect("an answer");
    let before = since_epoch();
    let one = connections(control, 1).remove(0);
    let mut stream = control
        .capture(one.id, &CaptureBounds::default())
        .expect("may be captured")
        .expect("there");
    exchange(&client, &mut session);
    drop(session);
    // The connection ends, and the capture with it.
    let file = rest(&mut *stream);
    drop(stream);
    service.drain(Duration::ZERO);

    let seen = messages(&file);
    let port = client.target().expect("known").port();
    let (replies, calls): (Vec<_>, Vec<_>) = seen.iter().partition(|one| one.port == port);
    // CREATE, LOOKUP, WRITE and READ.
    assert_eq!((calls.len(), replies.len()), (4, 4));
    let parse = |seen: &Seen| {
        let header = Header::parse_call(&seen.bytes, &Rules::default()).expect("a header");
        let Body::Message { message, .. } = header.body else {
            panic!("{header:?}");
        };
        assert_eq!(rpc::peek(message).expect("RPC").1, kind(seen.port == port));
        header.words.xid
    };
    for (call, reply) in calls.iter().zip(&replies) {
        assert!(parse(call) == parse(reply), "one call at a time");
        assert!((before..=since_epoch()).contains(&call.seconds));
    }
    let from = one.peer.rsplit_once(':').expect("a port").1;
    assert!(calls.iter().all(|call| call.port.to_string() == from));
}

fn kind(is_reply: bool) -> MessageType {
    if is_reply {
        MessageType::Reply
    } else {
        MessageType::Call
    }
}

#[test]
fn captures_keep_to_their_bounds() {
    let service = start("");
    let control = &*service.control();
    let client = client(&service, "127.0.0.1");
    let mut session = session(&client);
    let id = connections(control, 1)[0].id;
    let mut captured = |bounds: CaptureBounds| {
        let stream = control.capture(id, &bounds).expect("free again");
        let mut stream = stream.expect("there");
        for _ in 0..20 {
            session.null().expect("an answer");
        }
        rest(&mut *stream)
    };
    let some = CaptureBounds {
        messages: 7,
        ..CaptureBounds::default()
    };
    assert_eq!(messages(&captured(some)).len(), 7);
    let short = CaptureBounds {
        bytes: 1024,
        ..CaptureBounds::default()
    };
    let file = captured(short);
    assert!((900..=1024).contains(&file.len()), "{}", file.len());
    assert!(!messages(&file).is_empty());
    let brief = CaptureBounds {
        seconds: 0.0,
        ..CaptureBounds::default()
    };
    assert!(messages(&captured(brief)).is_empty());
    drop(session);
    service.drain(Duration::ZERO);
}

#[test]
fn captures_are_few_and_each_of_one_connection() {
    let service = start("");
    let control = &*service.control();
    let client = client(&service, "127.0.0.1");
    let mut sessions: Vec<_> = (0..5).map(|_| session(&client)).collect();
    let address = service.addresses().rpc.expect("served");
    let tcp = std::net::TcpStream::connect(address).expect("connects");
    let list = connections(control, 6);
    let bounds = CaptureBounds::default();
    let capture = |id: u64| control.capture(id, &bounds);
    let conflict = |id: u64| match capture(id) {
        Err(ControlError::Conflict(reason)) => reason,
        Err(other) => panic!("{other}"),
        Ok(stream) => panic!("{}", stream.is_some()),
    };
    let (records, rdma): (Vec<_>, Vec<_>) = list.iter().partition(|one| one.provider == "tcp");
    assert!(conflict(records[0].id).contains("TCP"));
    let unknown = list.iter().map(|one| one.id).max().unwrap_or_default() + 1;
    assert!(capture(unknown).expect("answered").is_none());

    let streams = rdma[..3].iter().map(|one| capture(one.id).expect("free"));
    let mut streams: Vec<_> = streams.map(|stream| stream.expect("there")).collect();
    assert!(conflict(rdma[0].id).contains("captured already"));
    let fourth = capture(rdma[3].id).expect("free").expect("there");
    assert!(conflict(rdma[4].id).contains("4 captures"));
    // Whoever drops a stream ends the capture, also where nothing is sent any more.
    drop(fourth);
    assert!(capture(rdma[3].id).expect("free again").is_some());
    streams.clear();
    assert!(capture(rdma[0].id).expect("free again").is_some());
    for session in &mut sessions {
        session.null().expect("an answer");
    }
    drop((sessions, tcp));
    service.drain(Duration::ZERO);
}
