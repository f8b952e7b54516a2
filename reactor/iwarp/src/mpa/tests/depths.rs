//! MPA-IRD: read depths.

use std::time::Instant;

use super::super::frame::HEADER_LENGTH;
use super::*;

fn responding(ird: u16, ord: u16) -> ResponderConfig {
    ResponderConfig {
        ird,
        ord,
        ..ResponderConfig::default()
    }
}

fn reply_data(config: &ResponderConfig, data: ConnectionData) -> (Negotiated, ConnectionData) {
    let (negotiated, reply) = accept(config, &enhanced_request(data));
    (negotiated, reply.connection_data.unwrap())
}

#[test]
fn mpa_ird_01_own_values_appear_on_the_wire() {
    assert_eq!(
        request_frame(exchanging(4, 9)).connection_data,
        Some(client_server(4, 9))
    );
    assert_eq!(
        request_frame(exchanging(0, 0)).connection_data,
        Some(client_server(0, 0))
    );
}

#[test]
fn mpa_ird_02_responder_ord_never_exceeds_initiator_ird() {
    for (offered, wanted, expected) in [(4, 16, 4), (16, 4, 4), (0, 16, 0), (16, 16, 16)] {
        let (negotiated, reply) = reply_data(&responding(16, wanted), client_server(offered, 1));
        assert_eq!((negotiated.ord, reply.ord), (expected, expected));
    }
}

#[test]
fn mpa_ird_03_responder_ird_is_what_is_asked_where_it_can_be_had() {
    for (asked, limit, expected) in [(64, 16, 16), (8, 16, 8), (16, 16, 16), (0, 16, 0)] {
        let (negotiated, reply) = reply_data(&responding(limit, 16), client_server(1, asked));
        assert_eq!((negotiated.ird, reply.ird), (expected, expected));
    }
}

#[test]
fn mpa_ird_03_limits_of_the_accept_replace_those_of_the_listener() {
    let (mut responder, step) = fed(responding(16, 16), &enhanced_request(client_server(64, 64)));
    let request = request_of(step);
    assert_eq!((request.ird, request.ord), (16, 16));
    let parameters = AcceptParameters {
        ird: 40,
        ord: 3,
        private_data: Vec::new(),
    };
    let negotiated = responder.accept(&parameters).unwrap();
    assert_eq!((negotiated.ird, negotiated.ord), (40, 3));
    let reply = parsed(FrameKind::Reply, responder.output());
    assert_eq!(reply.connection_data, Some(client_server(40, 3)));
}

#[test]
fn mpa_ird_04_indication_by_read_raises_the_inbound_depth_to_one() {
    let (negotiated, reply) = reply_data(&responding(16, 16), peer_to_peer(read_only(), 4, 0));
    assert_eq!((negotiated.ird, reply.ird), (1, 1));
    let (negotiated, reply) = reply_data(&responding(16, 16), peer_to_peer(write_only(), 4, 0));
    assert_eq!((negotiated.ird, reply.ird), (0, 0));
    let (negotiated, _) = reply_data(&responding(16, 16), peer_to_peer(read_only(), 4, 7));
    assert_eq!(negotiated.ird, 7);
}

#[test]
fn mpa_ird_04_no_read_is_offered_where_none_can_be_served() {
    let (negotiated, reply) = reply_data(&responding(0, 16), peer_to_peer(RtrKinds::ALL, 4, 4));
    assert_eq!(
        reply.rtr,
        RtrKinds {
            read: false,
            ..RtrKinds::ALL
        }
    );
    assert_eq!(negotiated.ird, 0);

    let only = ResponderConfig {
        rtr: read_only(),
        ..responding(0, 16)
    };
    let error = Responder::new(only, Instant::now()).unwrap_err();
    assert_eq!(error, ConfigError::ReadNeedsIrd);
    let only = ResponderConfig {
        rtr: read_only(),
        ..responding(1, 16)
    };
    let (mut responder, _) = fed(only, &enhanced_request(client_server(1, 1)));
    let parameters = AcceptParameters {
        ird: 0,
        ord: 1,
        private_data: Vec::new(),
    };
    let error = responder.accept(&parameters).unwrap_err();
    assert_eq!(error, DecisionError::Config(ConfigError::ReadNeedsIrd));
}

#[test]
fn mpa_ird_05_too_small_an_initiator_ird_is_rejected_with_the_needed_number() {
    let config = ResponderConfig {
        required_ord: 8,
        ..responding(16, 16)
    };
    for offered in 0..8 {
        let peer = client_server(offered, 5);
        let (responder, step) = fed(config.clone(), &enhanced_request(peer));
        assert_eq!(step, ResponderStep::Refused { peer });
        assert_eq!(responder.state(), ResponderState::Rejected);
        let reply = parsed(FrameKind::Reply, responder.output());
        assert!(reply.reject);
        assert_eq!(reply.connection_data.unwrap().ord, 8);
    }
    for offered in [8, 9, 0x3ffe, DEPTH_BY_APPLICATION] {
        let (_, step) = fed(config.clone(), &enhanced_request(client_server(offered, 5)));
        request_of(step);
    }
    let config = ResponderConfig {
        required_ord: u16::MAX,
        ..responding(16, 16)
    };
    let (_, step) = fed(
        config,
        &enhanced_request(client_server(DEPTH_BY_APPLICATION, 5)),
    );
    request_of(step);
}

#[test]
fn mpa_ird_05_application_may_reject_with_a_number_of_its_own() {
    for (needed, stated) in [(Some(8), 8), (Some(20_000), 0x3ffe), (None, 0x3fff)] {
        let (mut responder, step) = fed(responding(16, 16), &enhanced_request(client_server(2, 2)));
        request_of(step);
        responder.reject(b"more", needed).unwrap();
        let reply = parsed(FrameKind::Reply, responder.output());
        assert!(reply.reject);
        assert_eq!(reply.connection_data, Some(client_server(0x3fff, stated)));
        assert_eq!(reply.private_data, b"more");
    }
}

#[test]
fn mpa_ird_06_initiator_adjusts_to_the_reply() {
    let reply = enhanced_reply(client_server(2, 3));
    let negotiated = established(answered(exchanging(1, 16), &reply));
    assert_eq!(
        negotiated.ord, 2,
        "no more reads open than the responder serves"
    );
    assert_eq!(
        negotiated.ird, 3,
        "as many reads served as the responder opens"
    );
    let reply = enhanced_reply(client_server(100, 3));
    let negotiated = established(answered(exchanging(8, 16), &reply));
    assert_eq!((negotiated.ird, negotiated.ord), (8, 16));
}

#[test]
fn mpa_ird_07_initiator_terminates_if_it_cannot_serve_as_many() {
    for needed in [129, 16_000, 0x3ffe] {
        let step = answered(
            exchanging(16, 16),
            &enhanced_reply(client_server(16, needed)),
        );
        let failure = failure(step);
        assert_eq!(
            failure.error,
            SetupError::InsufficientIrd { needed, limit: 128 }
        );
        assert_eq!(
            failure.disposal,
            Disposal::Terminate(MpaCode::InsufficientIrd)
        );
        assert!(failure.framing.is_some());
    }
    let step = answered(exchanging(16, 16), &enhanced_reply(client_server(16, 128)));
    assert_eq!(established(step).ird, 128);
}

#[test]
fn mpa_ird_07_limit_below_the_offer_is_refused() {
    let config = InitiatorConfig {
        ird_limit: 15,
        ..exchanging(16, 16)
    };
    let error = Initiator::new(config, Instant::now()).unwrap_err();
    assert_eq!(error, ConfigError::IrdLimit { ird: 16, limit: 15 });
}

#[test]
fn mpa_ird_08_raw_values_of_the_peer_reach_the_application() {
    let peer = client_server(16_000, 0x3fff);
    let (mut responder, step) = fed(responding(16, 16), &enhanced_request(peer));
    assert_eq!(request_of(step).peer, Some(peer));
    let parameters = AcceptParameters {
        ird: 16,
        ord: 16,
        private_data: Vec::new(),
    };
    let negotiated = responder.accept(&parameters).unwrap();
    assert_eq!(
        (negotiated.peer_ird(), negotiated.peer_ord()),
        (Some(16_000), Some(0x3fff))
    );

    let peer = client_server(0x3fff, 3);
    let negotiated = established(answered(exchanging(16, 16), &enhanced_reply(peer)));
    assert_eq!(
        (negotiated.peer_ird(), negotiated.peer_ord()),
        (Some(0x3fff), Some(3))
    );

    let peer = client_server(7, 9000);
    let step = answered(exchanging(16, 16), &raw_reply(0x30, 2, &peer.encode()));
    let rejection = Rejection {
        peer: Some(peer),
        private_data: Vec::new(),
    };
    assert_eq!(step, InitiatorStep::Rejected(rejection));
}

#[test]
fn mpa_ird_09_initiator_ord_of_all_ones_leaves_own_ird() {
    let (negotiated, reply) = reply_data(&responding(11, 16), client_server(4, 0x3fff));
    assert_eq!((negotiated.ird, reply.ird), (11, 0x3fff));
    assert_eq!((negotiated.ord, reply.ord), (4, 4));
}

#[test]
fn mpa_ird_10_initiator_ird_of_all_ones_leaves_own_ord() {
    let (negotiated, reply) = reply_data(&responding(16, 11), client_server(0x3fff, 4));
    assert_eq!((negotiated.ord, reply.ord), (11, 0x3fff));
    assert_eq!((negotiated.ird, reply.ird), (4, 4));
}

#[test]
fn mpa_ird_11_reply_of_all_ones_leaves_own_values() {
    let depths = |ird, ord| {
        let reply = enhanced_reply(client_server(ird, ord));
        let negotiated = established(answered(exchanging(5, 6), &reply));
        (negotiated.ird, negotiated.ord)
    };
    assert_eq!(depths(0x3fff, 7), (7, 6));
    assert_eq!(depths(2, 0x3fff), (5, 2));
    assert_eq!(depths(0x3fff, 0x3fff), (5, 6));
}

#[test]
fn mpa_ird_12_real_values_are_stated_as_0x3ffe_at_most() {
    for real in [0x3fff, 20_000, u16::MAX] {
        let config = InitiatorConfig {
            ird_limit: u16::MAX,
            ..exchanging(real, real)
        };
        let request = request_frame(config).connection_data;
        assert_eq!(request, Some(client_server(0x3ffe, 0x3ffe)));
        let (negotiated, reply) =
            reply_data(&responding(real, real), client_server(0x3ffe, 0x3ffe));
        assert_eq!(reply, client_server(0x3ffe, 0x3ffe));
        assert_eq!((negotiated.ird, negotiated.ord), (0x3ffe, 0x3ffe));
        let data = ConnectionData {
            ird: real,
            ..client_server(0, 0)
        };
        let expected = if real == 0x3fff { 0x3fff } else { 0x3ffe };
        assert_eq!(ConnectionData::decode(data.encode()).ird, expected);
    }
}

#[test]
fn mpa_ird_15_zero_is_legal() {
    let (negotiated, reply) = reply_data(&responding(16, 16), client_server(0, 0));
    assert_eq!(reply, client_server(0, 0));
    assert_eq!((negotiated.ird, negotiated.ord), (0, 0));
    let step = answered(exchanging(0, 0), &enhanced_reply(client_server(0, 0)));
    let negotiated = established(step);
    assert_eq!((negotiated.ird, negotiated.ord), (0, 0));
}

#[test]
fn mpa_ird_16_values_from_the_wire_never_exceed_local_limits() {
    let depths = [0, 1, 16, 17, 129, 0x3ffe, 0x3fff];
    for ird in depths {
        for ord in depths {
            let (negotiated, _) = reply_data(&responding(16, 17), client_server(ird, ord));
            assert!(negotiated.ird <= 16 && negotiated.ord <= 17);
            let reply = enhanced_reply(client_server(ird, ord));
            match answered(exchanging(16, 17), &reply) {
                InitiatorStep::Established(negotiated) => {
                    assert!(negotiated.ird <= 128 && negotiated.ord <= 17);
                }
                other => {
                    let error = failure(other).error;
                    assert_eq!(
                        error,
                        SetupError::InsufficientIrd {
                            needed: ord,
                            limit: 128
                        }
                    );
                }
            }
        }
    }
}

#[test]
fn mpa_ird_02_linux_client_gets_reads_served_and_states_no_reads_of_its_own() {
    // Linux siw: revision 2, neither CRC nor markers nor the peer-to-peer model, IRD 128, ORD 0.
    let mut private = client_server(128, 0).encode().to_vec();
    private.extend_from_slice(&hex("f6ab0e18 01010303"));
    let request = raw_request(0x10, 2, &private);
    let config = ResponderConfig {
        crc: false,
        ..responding(32, 64)
    };
    let (negotiated, reply) = accept_with(&config, &request, &hex("f6ab0e18 01000303"));
    assert_eq!(
        (reply.revision, reply.crc, reply.markers),
        (2, false, false)
    );
    assert_eq!(reply.connection_data, Some(client_server(0, 64)));
    assert_eq!(negotiated.private_data, hex("f6ab0e18 01010303"));
    assert_eq!((negotiated.ird, negotiated.ord), (0, 64));
    assert_eq!(reply.encode().unwrap().len(), HEADER_LENGTH + 12);
}
