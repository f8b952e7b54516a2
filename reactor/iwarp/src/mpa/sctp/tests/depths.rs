//! The rules of the read depths, as in the TCP case (RFC 6581 section 9.1).

use super::*;
use crate::mpa::error::SetupError;
use crate::mpa::{ConfigError, DEPTH_BY_APPLICATION};

#[test]
fn mpa_sctp_10_own_values_appear_on_the_wire() {
    for (ird, ord) in [(4, 9), (0, 0)] {
        let mut session = Session::initiate(exchanging(ird, ord), Instant::now()).unwrap();
        let initiate = sent(&mut session);
        assert_eq!(initiate.connection_data, Some(client_server(ird, ord)));
    }
}

#[test]
fn mpa_sctp_10_passive_ord_never_exceeds_active_ird() {
    for (offered, wanted, expected) in [(4, 16, 4), (16, 4, 4), (0, 16, 0), (16, 16, 16)] {
        let (terms, reply) = accepted(&responding(16, wanted), client_server(offered, 1));
        assert_eq!((terms.ord, reply.ord), (expected, expected));
    }
}

#[test]
fn mpa_sctp_10_passive_ird_is_what_is_asked_where_it_can_be_had() {
    for (asked, limit, expected) in [(64, 16, 16), (8, 16, 8), (16, 16, 16), (0, 16, 0)] {
        let (terms, reply) = accepted(&responding(limit, 16), client_server(1, asked));
        assert_eq!((terms.ird, reply.ird), (expected, expected));
    }
}

#[test]
fn mpa_sctp_10_limits_of_the_accept_replace_those_of_the_listener() {
    let mut session = asked(&responding(16, 16), client_server(64, 64));
    let request = request_of(&mut session);
    assert_eq!((request.ird, request.ord), (16, 16));
    let terms = session.accept(&accepting(&responding(40, 3))).unwrap();
    assert_eq!((terms.ird, terms.ord), (40, 3));
    let reply = sent(&mut session).connection_data;
    assert_eq!(reply, Some(client_server(40, 3)));
}

#[test]
fn mpa_sctp_10_a_kind_that_reads_raises_the_inbound_depth_to_one() {
    let read = RtrKinds::only(RtrKind::Read);
    let write = RtrKinds::only(RtrKind::Write);
    let ird = |config: &ResponderConfig, rtr, asked| {
        let (terms, reply) = accepted(config, peer_to_peer(rtr, 4, asked));
        (terms.ird, reply.ird)
    };
    assert_eq!(ird(&responding(16, 16), read, 0), (1, 1));
    assert_eq!(ird(&responding(16, 16), write, 0), (0, 0));
    assert_eq!(ird(&responding(16, 16), read, 7), (7, 7));
    let (_, reply) = accepted(&responding(0, 16), peer_to_peer(RtrKinds::ALL, 4, 4));
    assert!(!reply.rtr.read, "none is offered where none can be served");
    let only = ResponderConfig {
        rtr: read,
        ..responding(0, 16)
    };
    let error = Session::listen(only, Instant::now()).unwrap_err();
    assert_eq!(error, ConfigError::ReadNeedsIrd);
}

#[test]
fn mpa_sctp_10_too_small_an_active_ird_is_rejected_with_the_needed_number() {
    let config = ResponderConfig {
        required_ord: 8,
        ..responding(16, 16)
    };
    for offered in 0..8 {
        let peer = client_server(offered, 5);
        let mut session = asked(&config, peer);
        assert_eq!(
            events(&mut session),
            [SessionEvent::Ended(SessionEnd::RejectedHere { peer })]
        );
        let reject = sent(&mut session);
        assert_eq!(reject.function, Function::EnhancedReject);
        let mut here = active(exchanging(offered, 5));
        give(&mut here, &reject);
        match events(&mut here).as_slice() {
            [SessionEvent::Rejected(rejection)] => {
                assert_eq!(rejection.terms().unwrap().ord, 8);
            }
            other => panic!("{other:?}"),
        }
    }
    for offered in [8, 9, 0x3ffe, DEPTH_BY_APPLICATION] {
        request_of(&mut asked(&config, client_server(offered, 5)));
    }
}

#[test]
fn mpa_sctp_10_active_side_adjusts_to_the_accept() {
    let depths = |own: InitiatorConfig, ird, ord| {
        let (_, events) = answered(own, client_server(ird, ord));
        let terms = established(&events);
        (terms.ird, terms.ord)
    };
    assert_eq!(depths(exchanging(1, 16), 2, 3), (3, 2));
    assert_eq!(depths(exchanging(8, 16), 100, 3), (8, 16));
    assert_eq!(depths(exchanging(16, 16), 16, 128), (128, 16));
    assert_eq!(depths(exchanging(0, 0), 0, 0), (0, 0));
}

#[test]
fn mpa_sctp_10_active_side_terminates_if_it_cannot_serve_as_many() {
    for needed in [129, 16_000, 0x3ffe] {
        let (mut session, events) = answered(exchanging(16, 16), client_server(16, needed));
        let error = SetupError::InsufficientIrd { needed, limit: 128 };
        assert_eq!(
            events,
            [SessionEvent::Ended(SessionEnd::Failed(
                SessionError::Setup(error)
            ))]
        );
        let segment = session.output().unwrap();
        assert_eq!(segment.identifier, SEGMENT_IDENTIFIER);
        let terminate = hex("0001 41470000 00000000 00020000 00010000 00002006 0000");
        assert_eq!(segment.bytes, terminate);
        assert_eq!(sent(&mut session).function, Function::Terminate);
    }
}

#[test]
fn mpa_sctp_10_no_matching_kind_is_the_golden_terminate() {
    let asking = InitiatorConfig {
        peer_to_peer: true,
        rtr: send_only(),
        ..exchanging(4, 4)
    };
    let reply = peer_to_peer(RtrKinds::only(RtrKind::Read), 4, 4);
    let (mut session, events) = answered(asking, reply);
    assert!(matches!(events.as_slice(), [SessionEvent::Ended(_)]));
    let terminate = hex("0001 41470000 00000000 00020000 00010000 00002007 0000");
    assert_eq!(session.output().unwrap().bytes, terminate);
}

#[test]
fn mpa_sctp_10_raw_values_of_the_peer_reach_the_application() {
    let peer = client_server(16_000, 0x3fff);
    let config = responding(16, 16);
    let mut session = asked(&config, peer);
    assert_eq!(request_of(&mut session).peer, Some(peer));
    let terms = session.accept(&accepting(&config)).unwrap();
    assert_eq!(terms.peer, Some(peer));
    let peer = client_server(0x3fff, 3);
    let (_, events) = answered(exchanging(16, 16), peer);
    assert_eq!(established(&events).peer, Some(peer));
}

#[test]
fn mpa_sctp_10_all_ones_leave_the_depth_to_the_application() {
    let (terms, reply) = accepted(&responding(11, 16), client_server(4, 0x3fff));
    assert_eq!((terms.ird, reply.ird), (11, 0x3fff));
    assert_eq!((terms.ord, reply.ord), (4, 4));
    let (terms, reply) = accepted(&responding(16, 11), client_server(0x3fff, 4));
    assert_eq!((terms.ord, reply.ord), (11, 0x3fff));
    assert_eq!((terms.ird, reply.ird), (4, 4));
    for (ird, ord, expected) in [
        (0x3fff, 7, (7, 6)),
        (2, 0x3fff, (5, 2)),
        (0x3fff, 0x3fff, (5, 6)),
    ] {
        let (_, events) = answered(exchanging(5, 6), client_server(ird, ord));
        let terms = established(&events);
        assert_eq!((terms.ird, terms.ord), expected);
    }
}

#[test]
fn mpa_sctp_10_real_values_are_stated_as_0x3ffe_at_most() {
    for real in [0x3fff, 20_000, u16::MAX] {
        let config = InitiatorConfig {
            ird_limit: u16::MAX,
            ..exchanging(real, real)
        };
        let mut session = Session::initiate(config, Instant::now()).unwrap();
        let stated = client_server(0x3ffe, 0x3ffe);
        assert_eq!(sent(&mut session).connection_data, Some(stated));
        let (terms, reply) = accepted(&responding(real, real), stated);
        assert_eq!(reply, stated);
        assert_eq!((terms.ird, terms.ord), (0x3ffe, 0x3ffe));
    }
}
