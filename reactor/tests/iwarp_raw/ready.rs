//! Ready-to-receive on a live stream: MPA-RTR (RFC 6581 sections 4, 5 and 9.2).

use millrace_iwarp::mpa::{RtrKind, RtrKinds};
use millrace_reactor::fabric::iwarp::IwarpConfig;
use millrace_reactor::fabric::{DataPath, Key, Operation, QueuePairLimits, RemoteAddress};

use crate::stand::{LIMITS, SEND, Stand, plain};
use crate::support::Peer;
use crate::support::fpdu::Segment;
use crate::support::frames::{self, ENHANCED, model};

/// Every kind, its flag, and the FPDU that it is.
fn kinds() -> [(RtrKind, u32, Segment); 3] {
    [
        (RtrKind::Send, model::B, Segment::send(1, b"")),
        (RtrKind::Write, model::C, Segment::write(0, 0, b"")),
        (
            RtrKind::Read,
            model::D,
            Segment::read_request(1, (0, 0), 0, (0, 0)),
        ),
    ]
}

fn asking(kind: RtrKind) -> IwarpConfig {
    IwarpConfig {
        peer_to_peer: true,
        indications: RtrKinds::only(kind),
        ..plain()
    }
}

/// A peer-to-peer request with these kinds.
fn request(flags: u32, ird: u32, ord: u32) -> Vec<u8> {
    frames::request(ENHANCED, 2, &frames::data(model::A | flags, ird, ord))
}

#[test]
fn mpa_rtr_09_the_first_fpdu_is_of_the_agreed_kind() {
    for (kind, flag, expected) in kinds() {
        let mut stand = Stand::new(asking(kind));
        let (mut peer, here, request, _listener) = stand.dial(LIMITS);
        assert_eq!(request.data() & !0x3fff_3fff, model::A | flag);
        let data = frames::data(model::A | model::B | model::C | model::D, 4, 4);
        peer.send(&frames::reply(ENHANCED, 2, &data));
        stand.until(|s| s.established(here));
        assert_eq!(stand.until(|_| peer.take_segment()), expected);
        stand.settle();
        assert!(peer.inbox().is_empty());
    }
}

#[test]
fn mpa_rtr_11_nothing_leaves_before_the_indication() {
    for (kind, flag, indication) in kinds() {
        let mut stand = Stand::new(asking(kind));
        let (mut peer, here, ..) = stand.dial(LIMITS);
        stand.post(here, 1, SEND, b"early");
        stand.settle();
        assert!(peer.inbox().is_empty());
        peer.send(&frames::reply(
            ENHANCED,
            2,
            &frames::data(model::A | flag, 4, 4),
        ));
        // The reply is taken in, and nothing is sent yet: the application is told nothing.
        for _ in 0..100 {
            stand.poll();
        }
        assert_eq!(stand.established(here), None);
        assert!(peer.inbox().is_empty());
        stand.until(|s| s.established(here));
        assert_eq!(stand.until(|_| peer.take_segment()), indication);
        let sequence = if kind == RtrKind::Send { 2 } else { 1 };
        let early = stand.until(|_| peer.take_segment());
        assert_eq!(early, Segment::send(sequence, b"early"));
    }
}

#[test]
fn mpa_rtr_12_a_responder_is_silent_before_the_first_fpdu() {
    let openers = [
        (frames::request(0, 1, b""), Segment::send(1, b"call")),
        (request(model::C, 4, 4), Segment::write(0, 0, b"")),
    ];
    for (request, opener) in openers {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let (mut peer, here) = stand.caller(address, &request);
        stand.post_receives(here, 1);
        stand.post(here, 1, SEND, b"before");
        stand.accept(&mut peer, here);
        stand.post(here, 2, SEND, b"after");
        stand.settle();
        assert!(peer.inbox().is_empty(), "not one byte");
        assert_eq!(stand.completed(here), None);
        peer.send_segment(&opener);
        assert_eq!(
            stand.until(|_| peer.take_segment()),
            Segment::send(1, b"before")
        );
        assert_eq!(
            stand.until(|_| peer.take_segment()),
            Segment::send(2, b"after")
        );
    }
}

#[test]
fn mpa_rtr_13_work_posted_early_leaves_in_order() {
    for (_, flag, opener) in kinds() {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let (mut peer, here) = stand.caller(address, &request(flag, 4, 4));
        let remote = RemoteAddress {
            key: Key(7),
            offset: 1000,
        };
        stand.post(here, 1, SEND, b"one");
        stand.accept(&mut peer, here);
        stand.post(here, 2, Operation::Write(remote), b"two");
        stand.post(here, 3, Operation::Read(remote), &[0; 5]);
        stand.post(here, 4, SEND, b"four");
        stand.settle();
        assert!(peer.inbox().is_empty());
        peer.send_segment(&opener);
        stand.settle();
        if flag == model::D {
            let response = peer.take_segment().unwrap();
            assert_eq!(response, Segment::read_response(0, 0, b""));
        }
        assert_eq!(peer.take_segment(), Some(Segment::send(1, b"one")));
        assert_eq!(peer.take_segment(), Some(Segment::write(7, 1000, b"two")));
        let ((key, _), length, source) = peer.take_segment().unwrap().read_of().unwrap();
        assert_eq!((length, source), (5, (7, 1000)));
        assert_eq!(peer.take_segment(), Some(Segment::send(2, b"four")));
        peer.send_segment(&Segment::read_response(key, 0, b"three"));
        stand.settle();
        let done: Vec<_> = std::iter::from_fn(|| stand.completed(here)).collect();
        assert_eq!(done, [(1, true), (2, true), (3, true), (4, true)]);
    }
}

#[test]
fn mpa_rtr_14_an_indication_uses_no_receive_and_gives_no_completion() {
    for (kind, flag, opener) in kinds() {
        for posted in [0, 1] {
            let mut stand = Stand::new(plain());
            let address = stand.listen();
            let (mut peer, here) = stand.caller(address, &request(flag, 4, 4));
            stand.post_receives(here, posted);
            stand.accept(&mut peer, here);
            peer.send_segment(&opener);
            stand.settle();
            assert!(stand.events.is_empty(), "{:?}", stand.events);
            stand.post_receives(here, 1 - posted);
            let sequence = if kind == RtrKind::Send { 2 } else { 1 };
            peer.send_segment(&Segment::send(sequence, b"the message"));
            let message = stand.until(|s| s.received(here));
            assert_eq!(message, b"the message");
            assert_eq!(stand.count(|c| &c.indications_unexpected), 0);
        }
    }
}

#[test]
fn mpa_rtr_14_only_the_first_empty_send_is_an_indication() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let (mut peer, here) = stand.caller(address, &request(model::B, 4, 4));
    stand.post_receives(here, 1);
    stand.accept(&mut peer, here);
    peer.send_segment(&Segment::send(1, b""));
    peer.send_segment(&Segment::send(2, b""));
    assert_eq!(stand.until(|s| s.received(here)), b"");
    stand.settle();
    assert!(stand.events.is_empty(), "{:?}", stand.events);
}

#[test]
fn mpa_rtr_15_sending_the_indication_takes_no_place_in_the_queues() {
    for (kind, flag, indication) in kinds() {
        let mut stand = Stand::new(asking(kind));
        let limits = QueuePairLimits {
            send_depth: 1,
            receive_depth: 1,
            ord: 1,
            ..LIMITS
        };
        let (mut peer, here, ..) = stand.dial(limits);
        assert_eq!(stand.provider.send_room(here), 1);
        stand.post(here, 1, SEND, b"only");
        assert_eq!(stand.provider.send_room(here), 0);
        peer.send(&frames::reply(
            ENHANCED,
            2,
            &frames::data(model::A | flag, 1, 0),
        ));
        stand.until(|s| s.established(here));
        assert_eq!(stand.until(|_| peer.take_segment()), indication);
        stand.until(|_| peer.take_segment());
        assert_eq!(stand.until(|s| s.completed(here)), (1, true));
        if kind == RtrKind::Read {
            // The indication is a Read that is open: the application's own waits for its answer.
            let remote = RemoteAddress {
                key: Key(7),
                offset: 0,
            };
            stand.post(here, 2, Operation::Read(remote), &[0; 3]);
            stand.settle();
            assert!(peer.inbox().is_empty());
            peer.send_segment(&Segment::read_response(0, 0, b""));
            let request = stand.until(|_| peer.take_segment());
            let ((key, offset), ..) = request.read_of().unwrap();
            peer.send_segment(&Segment::read_response(key, offset, b"abc"));
            assert_eq!(stand.until(|s| s.completed(here)), (2, true));
        }
        stand.settle();
        assert!(stand.events.is_empty(), "{:?}", stand.events);
    }
}

#[test]
fn mpa_rtr_16_empty_writes_and_reads_touch_nothing_whatever_they_name() {
    let names = [
        (0, 0),
        (0, u64::MAX),
        (0xffff_ffff, 1),
        (0x1234_5678, 1 << 40),
    ];
    for name in names {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let (mut peer, here) = stand.caller(address, &request(model::C | model::D, 4, 4));
        stand.accept(&mut peer, here);
        peer.send_segment(&Segment::write(name.0, name.1, b""));
        peer.send_segment(&Segment::read_request(1, name, 0, name));
        let response = stand.until(|_| peer.take_segment());
        assert_eq!(response, Segment::read_response(name.0, name.1, b""));
        // Not only as an indication.
        peer.send_segment(&Segment::write(name.0, name.1, b""));
        peer.send_segment(&Segment::read_request(2, name, 0, name));
        stand.until(|_| peer.take_segment());
        stand.settle();
        assert!(stand.events.is_empty(), "{:?}", stand.events);
    }
}

#[test]
fn mpa_rtr_17_an_indication_by_read_is_answered_and_finds_a_place() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let (mut peer, here) = stand.caller(address, &request(model::D, 4, 0));
    let reply = stand.accept(&mut peer, here);
    assert_eq!(reply.data() >> 16 & 0x3fff, 1, "inbound depth of the reply");
    stand.settle();
    assert!(peer.inbox().is_empty());
    peer.send_segment(&Segment::read_request(1, (3, 4), 0, (5, 6)));
    let response = stand.until(|_| peer.take_segment());
    assert_eq!(response, Segment::read_response(3, 4, b""));
    stand.settle();
    assert!(peer.inbox().is_empty() && stand.events.is_empty());
}

#[test]
fn mpa_rtr_18_another_kind_than_agreed_is_accepted_and_counted() {
    for (kind, flag, _) in kinds() {
        for (other, _, opener) in kinds() {
            if kind == other {
                continue;
            }
            let mut stand = Stand::new(plain());
            let address = stand.listen();
            let (mut peer, here) = stand.caller(address, &request(flag, 4, 4));
            stand.accept(&mut peer, here);
            assert_eq!(stand.count(|c| &c.indications_unexpected), 0);
            peer.send_segment(&opener);
            stand.settle();
            assert_eq!(stand.count(|c| &c.indications_unexpected), 1);
            stand.post(here, 1, SEND, b"ready");
            proves_ready(&mut stand, &mut peer);
            assert_eq!(stand.count(|c| &c.indications_unexpected), 1);
        }
    }
}

fn proves_ready(stand: &mut Stand, peer: &mut Peer) {
    let sent = Segment::send(1, b"ready");
    stand.until(|_| (peer.take_segment()? == sent).then_some(()));
}

#[test]
fn mpa_rtr_18_a_first_message_with_content_is_the_applications() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let (mut peer, here) = stand.caller(address, &request(model::C, 4, 4));
    stand.post_receives(here, 1);
    stand.accept(&mut peer, here);
    stand.post(here, 1, SEND, b"ready");
    peer.send_segment(&Segment::send(1, b"content"));
    assert_eq!(stand.until(|s| s.received(here)), b"content");
    proves_ready(&mut stand, &mut peer);
    assert_eq!(stand.count(|c| &c.indications_unexpected), 1);
}
