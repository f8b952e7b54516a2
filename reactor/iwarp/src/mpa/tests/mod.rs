//! Tests of the connection setup, one or more for each rule, named by the rule.

mod arrival;
mod depths;
mod errors;
mod interop;
mod random;
mod ready;
mod request;

use std::time::Instant;

use super::*;

/// Connection data word without the peer-to-peer model.
fn client_server(ird: u16, ord: u16) -> ConnectionData {
    ConnectionData {
        peer_to_peer: false,
        rtr: RtrKinds::NONE,
        ird,
        ord,
    }
}

/// Connection data word with the peer-to-peer model.
fn peer_to_peer(rtr: RtrKinds, ird: u16, ord: u16) -> ConnectionData {
    ConnectionData {
        peer_to_peer: true,
        rtr,
        ird,
        ord,
    }
}

fn send_only() -> RtrKinds {
    RtrKinds::only(RtrKind::Send)
}

fn write_only() -> RtrKinds {
    RtrKinds::only(RtrKind::Write)
}

fn read_only() -> RtrKinds {
    RtrKinds::only(RtrKind::Read)
}

/// All eight sets of kinds.
fn all_sets() -> impl Iterator<Item = RtrKinds> {
    (0..8u8).map(|bits| RtrKinds {
        send: bits & 4 != 0,
        write: bits & 2 != 0,
        read: bits & 1 != 0,
    })
}

/// Bytes from hexadecimal digits, blanks ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

/// A frame written by hand, so that it may be wrong in any way.
fn raw(key: &[u8; 16], flags: u8, revision: u8, length: u16, private: &[u8]) -> Vec<u8> {
    let mut bytes = key.to_vec();
    bytes.extend_from_slice(&[flags, revision]);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(private);
    bytes
}

fn raw_request(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let length = u16::try_from(private.len()).unwrap();
    raw(b"MPA ID Req Frame", flags, revision, length, private)
}

fn raw_reply(flags: u8, revision: u8, private: &[u8]) -> Vec<u8> {
    let length = u16::try_from(private.len()).unwrap();
    raw(b"MPA ID Rep Frame", flags, revision, length, private)
}

/// An enhanced request of revision 2 without CRC.
fn enhanced_request(data: ConnectionData) -> Vec<u8> {
    raw_request(0x10, 2, &data.encode())
}

/// An enhanced accepting reply of revision 2 without CRC.
fn enhanced_reply(data: ConnectionData) -> Vec<u8> {
    raw_reply(0x10, 2, &data.encode())
}

/// A responder that was fed these bytes at once.
fn fed(config: ResponderConfig, bytes: &[u8]) -> (Responder, ResponderStep) {
    let now = Instant::now();
    let mut responder = Responder::new(config, now).unwrap();
    let step = responder.feed(bytes, now);
    (responder, step)
}

/// Accepts with the listener's limits.
fn accept(config: &ResponderConfig, bytes: &[u8]) -> (Negotiated, Frame) {
    accept_with(config, bytes, b"")
}

fn accept_with(config: &ResponderConfig, bytes: &[u8], private: &[u8]) -> (Negotiated, Frame) {
    let (mut responder, step) = fed(config.clone(), bytes);
    assert!(matches!(step, ResponderStep::Request(_)), "{step:?}");
    let parameters = AcceptParameters {
        ird: config.ird,
        ord: config.ord,
        private_data: private.to_vec(),
    };
    let negotiated = responder.accept(&parameters).unwrap();
    (negotiated, parsed(FrameKind::Reply, responder.output()))
}

fn request_of(step: ResponderStep) -> MpaRequest {
    match step {
        ResponderStep::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

fn responder_error(step: ResponderStep) -> SetupError {
    match step {
        ResponderStep::Failed(failure) => {
            assert_eq!(failure.framing, None);
            assert_eq!(failure.disposal, Disposal::Close);
            failure.error
        }
        other => panic!("{other:?}"),
    }
}

/// The one frame that these bytes are.
fn parsed(kind: FrameKind, bytes: &[u8]) -> Frame {
    let (taken, frame) = FrameParser::new(kind).feed(bytes).unwrap();
    assert_eq!(taken, bytes.len());
    frame.unwrap()
}

/// The request of an initiator.
fn request_frame(config: InitiatorConfig) -> Frame {
    let initiator = Initiator::new(config, Instant::now()).unwrap();
    parsed(FrameKind::Request, initiator.output())
}

/// An initiator whose request is out.
fn waiting(config: InitiatorConfig, now: Instant) -> Initiator {
    let mut initiator = Initiator::new(config, now).unwrap();
    initiator.sent(initiator.output().len());
    assert!(initiator.output().is_empty());
    initiator
}

/// What an initiator makes of a reply that comes at once.
fn answered(config: InitiatorConfig, reply: &[u8]) -> InitiatorStep {
    let now = Instant::now();
    waiting(config, now).feed(reply, now).1
}

fn established(step: InitiatorStep) -> Negotiated {
    match step {
        InitiatorStep::Established(negotiated) => negotiated,
        other => panic!("{other:?}"),
    }
}

fn failure(step: InitiatorStep) -> Failure {
    match step {
        InitiatorStep::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

/// Settings that ask for the exchange of read depths.
fn exchanging(ird: u16, ord: u16) -> InitiatorConfig {
    InitiatorConfig {
        exchange_depths: true,
        ird,
        ord,
        ..InitiatorConfig::default()
    }
}

/// Settings that ask for an indication, too.
fn indicating(rtr: RtrKinds) -> InitiatorConfig {
    InitiatorConfig {
        peer_to_peer: true,
        rtr,
        ..exchanging(16, 16)
    }
}
