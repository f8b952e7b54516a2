//! Connection setup over real sockets with time that the tests pass: MPA-REQ and MPA-INTEROP.

use std::net::TcpListener;
use std::time::Duration;

use millrace_reactor::fabric::iwarp::IwarpConfig;
use millrace_reactor::fabric::{ControlPath, DataPath, Ended, Event};

use crate::stand::{LIMITS, SEND, Stand, parameters, plain};
use crate::support::Peer;
use crate::support::fpdu::Segment;
use crate::support::frames::{self, ENHANCED};

const SECOND: Duration = Duration::from_secs(1);

fn enhanced_request() -> Vec<u8> {
    frames::request(ENHANCED, 2, &frames::data(0, 4, 4))
}

#[test]
fn mpa_req_15_a_request_that_trickles_in_runs_out_of_time() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let mut peer = Peer::connect(address);
    stand.settle();
    for (passed, byte) in enhanced_request().chunks(1).enumerate().take(5) {
        assert!(!peer.is_closed(), "after {passed} seconds");
        peer.send(byte);
        stand.pass(SECOND);
    }
    assert!(peer.is_closed() && peer.inbox().is_empty());
    assert!(stand.events.is_empty(), "the application never knew");
    assert_eq!(stand.count(|c| &c.fabric.setups_failed), 1);
    assert_eq!(stand.connections(), 0);
}

#[test]
fn mpa_req_15_a_reply_that_trickles_in_runs_out_of_time() {
    let mut stand = Stand::new(plain());
    let (mut peer, here, ..) = stand.dial(LIMITS);
    for byte in frames::reply(ENHANCED, 2, &frames::data(0, 4, 4))
        .chunks(1)
        .take(9)
    {
        peer.send(byte);
        stand.pass(SECOND);
        assert_eq!(stand.ended(here), None);
        assert!(!peer.is_closed());
    }
    stand.pass(SECOND);
    assert!(matches!(stand.ended(here), Some(Ended::TimedOut(_))));
    assert!(peer.is_closed());
}

#[test]
fn mpa_req_15_time_for_the_reply_is_known_to_the_reactor() {
    let mut stand = Stand::new(plain());
    let (_peer, here, ..) = stand.dial(LIMITS);
    let deadline = stand.provider.next_deadline().expect("a deadline");
    assert!(deadline <= stand.now + 10 * SECOND);
    stand.now = stand.now.max(deadline) + 10 * SECOND;
    stand.settle();
    assert!(matches!(stand.ended(here), Some(Ended::TimedOut(_))));
    assert_eq!(stand.provider.next_deadline(), None);
}

#[test]
fn mpa_req_16_a_request_may_be_cut_anywhere() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let mut request = enhanced_request();
    request[19] += 3;
    request.extend_from_slice(b"xyz");
    for cut in 1..request.len() {
        let mut peer = Peer::connect(address);
        peer.send(&request[..cut]);
        stand.settle();
        assert!(stand.events.is_empty() && peer.inbox().is_empty());
        peer.send(&request[cut..]);
        let (here, private) = stand.until(|stand| {
            stand.take(|event| match event {
                Event::ConnectRequest {
                    queue_pair,
                    private_data,
                    ..
                } => Some((*queue_pair, private_data.to_vec())),
                _ => None,
            })
        });
        assert_eq!(private, b"xyz");
        stand.accept(&mut peer, here);
        stand.provider.abort(here);
        stand.until(|s| s.ended(here));
    }
}

#[test]
fn mpa_req_16_a_reply_may_be_cut_anywhere_and_followed_at_once() {
    let reply = frames::reply(ENHANCED, 2, &frames::data(0, 4, 4));
    let mut bytes = reply.clone();
    bytes.extend(Segment::send(1, b"first").fpdu(false));
    bytes.extend(Segment::send(2, b"second").fpdu(false));
    for cut in 1..bytes.len() {
        let mut stand = Stand::new(plain());
        let (mut peer, here, ..) = stand.dial(LIMITS);
        stand.post_receives(here, 2);
        peer.send(&bytes[..cut]);
        stand.settle();
        assert_eq!(
            stand.established(here).is_some(),
            cut >= reply.len(),
            "{cut}"
        );
        peer.send(&bytes[cut..]);
        assert_eq!(stand.until(|s| s.received(here)), b"first");
        assert_eq!(stand.until(|s| s.received(here)), b"second");
    }
}

#[test]
fn mpa_req_16_bytes_behind_a_request_end_the_connection() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    // In the same segment.
    let mut peer = Peer::connect(address);
    let mut bytes = enhanced_request();
    bytes.push(0);
    peer.send(&bytes);
    stand.settle();
    assert!(peer.is_closed() && peer.inbox().is_empty());
    assert!(stand.events.is_empty());
    // While the application decides.
    let (mut peer, here) = stand.caller(address, &enhanced_request());
    peer.send(&[0]);
    assert!(matches!(stand.until(|s| s.ended(here)), Ended::Setup(_)));
    assert!(stand.provider.accept(here, parameters(LIMITS)).is_err());
    stand.settle();
    assert!(peer.is_closed() && peer.inbox().is_empty());
}

/// Old responders differ in what they read before they close, so TCP ends in order or by a reset.
#[test]
fn mpa_interop_04_one_plain_attempt_after_a_close_and_no_third() {
    for reads_request in [true, false] {
        let mut stand = Stand::new(IwarpConfig {
            fallback: true,
            ..plain()
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let parameters = parameters(LIMITS);
        let here = stand
            .provider
            .connect(address, parameters, stand.now)
            .unwrap();
        let mut first = Peer::accept(&listener);
        if reads_request {
            let request = stand.until(|_| first.take_frame());
            assert_eq!((request.flags & ENHANCED, request.revision), (ENHANCED, 2));
        } else {
            stand.settle();
        }
        drop(first);
        let mut second = stand.until(|_| Peer::try_accept(&listener));
        let request = stand.until(|_| second.take_frame());
        assert_eq!((request.flags & ENHANCED, request.revision), (0, 1));
        assert!(stand.events.is_empty());
        if reads_request {
            second.send(&frames::reply(0, 1, b""));
            stand.until(|s| s.established(here));
            stand.post(here, 1, SEND, b"plain");
            let first = stand.until(|_| second.take_segment());
            assert_eq!(first, Segment::send(1, b"plain"));
        } else {
            drop(second);
            stand.until(|s| s.ended(here));
        }
        stand.pass(SECOND);
        assert!(Peer::try_accept(&listener).is_none(), "no third connection");
    }
}

#[test]
fn mpa_interop_04_no_second_attempt_unless_allowed() {
    let mut stand = Stand::new(plain());
    let (peer, here, _, listener) = stand.dial(LIMITS);
    drop(peer);
    assert!(matches!(stand.until(|s| s.ended(here)), Ended::Setup(_)));
    stand.pass(SECOND);
    assert!(Peer::try_accept(&listener).is_none());
}

#[test]
fn mpa_interop_10_idle_connections_do_not_keep_a_good_client_out() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let mut idle = Vec::new();
    for _ in 0..10 {
        idle.extend((0..100).map(|_| Peer::connect(address)));
        stand.settle();
    }
    let limit = IwarpConfig::default().half_open_max;
    assert_eq!(stand.connections(), limit as u64);
    let closed = idle
        .iter_mut()
        .filter_map(|peer| peer.is_closed().then_some(()));
    assert_eq!(closed.count(), 1000 - limit);
    let (mut peer, here) = stand.served(address, 4, 4);
    stand.post_receives(here, 1);
    peer.send_segment(&Segment::send(1, b"good"));
    assert_eq!(stand.until(|s| s.received(here)), b"good");
    // Their time is over; that of the good client is not.
    stand.pass(5 * SECOND);
    assert!(idle.iter_mut().all(Peer::is_closed));
    assert_eq!(stand.connections(), 1);
    assert!(!peer.is_closed() && stand.events.is_empty());
}
