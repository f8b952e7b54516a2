//! MPA-REQ: request and reply frames.

use std::time::Instant;

use super::super::frame::{HEADER_LENGTH, PRIVATE_DATA_MAX};
use super::*;

#[test]
fn mpa_req_01_golden_frames_encode_and_decode() {
    let frames = [
        (
            "4d504120 49442052 65712046 72616d65 50020006 c0104008 6869",
            Frame {
                kind: FrameKind::Request,
                markers: false,
                crc: true,
                reject: false,
                revision: 2,
                connection_data: Some(peer_to_peer(
                    RtrKinds {
                        send: true,
                        write: false,
                        read: true,
                    },
                    16,
                    8,
                )),
                private_data: b"hi".to_vec(),
            },
        ),
        (
            "4d504120 49442052 65702046 72616d65 70020004 3fff0008",
            Frame {
                kind: FrameKind::Reply,
                markers: false,
                crc: true,
                reject: true,
                revision: 2,
                connection_data: Some(client_server(0x3fff, 8)),
                private_data: Vec::new(),
            },
        ),
        (
            "4d504120 49442052 65712046 72616d65 40010000",
            Frame {
                kind: FrameKind::Request,
                markers: false,
                crc: true,
                reject: false,
                revision: 1,
                connection_data: None,
                private_data: Vec::new(),
            },
        ),
    ];
    for (text, frame) in frames {
        assert_eq!(frame.encode().unwrap(), hex(text));
        assert_eq!(parsed(frame.kind, &hex(text)), frame);
    }
}

#[test]
fn mpa_req_01_machines_make_the_golden_frames() {
    let now = Instant::now();
    let initiator = Initiator::new(
        InitiatorConfig {
            rtr: RtrKinds {
                send: true,
                write: false,
                read: true,
            },
            ord: 8,
            private_data: b"hi".to_vec(),
            ..indicating(RtrKinds::ALL)
        },
        now,
    )
    .unwrap();
    let text = "4d504120 49442052 65712046 72616d65 50020006 c0104008 6869";
    assert_eq!(initiator.output(), hex(text));

    let config = ResponderConfig {
        required_ord: 8,
        ..ResponderConfig::default()
    };
    let (responder, step) = fed(config, &enhanced_request(client_server(2, 0)));
    assert_eq!(
        step,
        ResponderStep::Refused {
            peer: client_server(2, 0)
        }
    );
    let text = "4d504120 49442052 65702046 72616d65 70020004 3fff0008";
    assert_eq!(responder.output(), hex(text));

    let initiator = Initiator::new(InitiatorConfig::default(), now).unwrap();
    assert_eq!(
        initiator.output(),
        hex("4d504120 49442052 65712046 72616d65 40010000")
    );
}

#[test]
fn mpa_req_02_reserved_bits_are_sent_as_zero_and_not_checked() {
    let config = ResponderConfig::default();
    let data = client_server(128, 0);
    let (_, plain) = accept(&config, &enhanced_request(data));
    let (_, reserved) = accept(&config, &raw_request(0x1f, 2, &data.encode()));
    assert_eq!(plain, reserved);

    let reply = |flags| answered(exchanging(16, 16), &raw_reply(flags, 2, &data.encode()));
    assert_eq!(established(reply(0x10)), established(reply(0x1f)));

    let now = Instant::now();
    for flags in 0..=255u8 {
        let (mut responder, step) = fed(config.clone(), &raw_request(flags, 2, &data.encode()));
        request_of(step);
        responder.reject(b"", None).unwrap();
        assert_eq!(responder.output()[16] & 0x0f, 0);
    }
    let initiator = Initiator::new(indicating(RtrKinds::ALL), now).unwrap();
    assert_eq!(initiator.output()[16] & 0x0f, 0);
}

#[test]
fn mpa_req_03_enhanced_flag_stands_for_connection_data() {
    for (exchange_depths, asks_rtr) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let config = InitiatorConfig {
            exchange_depths,
            peer_to_peer: asks_rtr,
            ..InitiatorConfig::default()
        };
        let initiator = Initiator::new(config, Instant::now()).unwrap();
        let request = initiator.output().to_vec();
        let enhanced = request[16] & 0x10 != 0;
        assert_eq!(enhanced, exchange_depths || asks_rtr);
        assert_eq!(request.len() - HEADER_LENGTH, if enhanced { 4 } else { 0 });
        let (mut responder, _) = fed(ResponderConfig::default(), &request);
        responder.reject(b"", None).unwrap();
        let reply = responder.output();
        assert_eq!(reply[16] & 0x10 != 0, enhanced);
        assert_eq!(reply.len() - HEADER_LENGTH, if enhanced { 4 } else { 0 });
    }
}

#[test]
fn mpa_req_04_revision_is_two_if_enhanced_and_one_otherwise() {
    assert_eq!(request_frame(exchanging(1, 1)).revision, 2);
    assert_eq!(request_frame(indicating(send_only())).revision, 2);
    assert_eq!(request_frame(InitiatorConfig::default()).revision, 1);
}

#[test]
fn mpa_req_05_defaults_ask_for_nothing_enhanced() {
    let plain = InitiatorConfig::default();
    assert!(plain.enhanced);
    // Whatever else is set: that alone is no wish for the exchange.
    let set = InitiatorConfig {
        ird: 7,
        ord: 9,
        rtr: send_only(),
        private_data: b"private".to_vec(),
        ..plain.clone()
    };
    for config in [plain, set] {
        let frame = request_frame(config);
        assert_eq!(frame.revision, 1);
        assert_eq!(frame.connection_data, None);
    }
    // With a wish it is another frame, so that the above is no accident.
    for config in [exchanging(7, 9), indicating(send_only())] {
        assert!(request_frame(config).connection_data.is_some());
    }
}

#[test]
fn mpa_req_05_asking_with_support_switched_off_is_refused() {
    for config in [exchanging(1, 1), indicating(RtrKinds::ALL)] {
        let config = InitiatorConfig {
            enhanced: false,
            ..config
        };
        let error = Initiator::new(config, Instant::now()).unwrap_err();
        assert_eq!(error, ConfigError::EnhancedOff);
    }
}

#[test]
fn mpa_req_06_revision_one_is_accepted_always() {
    for enhanced in [true, false] {
        let config = ResponderConfig {
            enhanced,
            ..ResponderConfig::default()
        };
        let (negotiated, reply) = accept(&config, &raw_request(0, 1, b"abc"));
        assert_eq!(negotiated.private_data, b"abc");
        assert!(!negotiated.enhanced);
        assert_eq!((reply.revision, reply.connection_data), (1, None));
    }
}

#[test]
fn mpa_req_07_own_private_data_is_bounded_before_sending() {
    let now = Instant::now();
    let with = |config: InitiatorConfig, length| {
        let config = InitiatorConfig {
            private_data: vec![7; length],
            ..config
        };
        Initiator::new(config, now).map(|initiator| initiator.output().len())
    };
    let too_long = |length, limit| Err(ConfigError::PrivateDataLength { length, limit });
    assert_eq!(with(exchanging(1, 1), 508), Ok(532));
    assert_eq!(with(exchanging(1, 1), 509), too_long(509, 508));
    assert_eq!(with(InitiatorConfig::default(), 512), Ok(532));
    assert_eq!(with(InitiatorConfig::default(), 513), too_long(513, 512));
}

#[test]
fn mpa_req_07_a_reply_that_is_too_long_leaves_the_request_open() {
    for (request, limit) in [
        (enhanced_request(client_server(1, 1)), 508),
        (raw_request(0, 1, b""), 512),
    ] {
        let (mut responder, _) = fed(ResponderConfig::default(), &request);
        let long = vec![0; limit + 1];
        let error = Err(DecisionError::Config(ConfigError::PrivateDataLength {
            length: limit + 1,
            limit,
        }));
        assert_eq!(responder.reject(&long, None), error);
        let parameters = AcceptParameters {
            ird: 1,
            ord: 1,
            private_data: long,
        };
        assert_eq!(responder.accept(&parameters).map(drop), error);
        assert!(responder.output().is_empty());
        let parameters = AcceptParameters {
            private_data: vec![0; limit],
            ..parameters
        };
        responder.accept(&parameters).unwrap();
        assert_eq!(responder.output().len(), HEADER_LENGTH + PRIVATE_DATA_MAX);
    }
}

#[test]
fn mpa_req_07_length_above_512_closes() {
    for length in [513, 514, 0x0fff, u16::MAX] {
        for (flags, revision) in [(0, 1), (0, 2), (0x10, 2)] {
            let bytes = raw(b"MPA ID Req Frame", flags, revision, length, b"");
            let (_, step) = fed(ResponderConfig::default(), &bytes);
            assert_eq!(responder_error(step), SetupError::PrivateDataLength(length));
            let bytes = raw(b"MPA ID Rep Frame", flags, revision, length, b"");
            let step = answered(exchanging(1, 1), &bytes);
            assert_eq!(failure(step).error, SetupError::PrivateDataLength(length));
        }
    }
}

#[test]
fn mpa_req_08_enhanced_frame_without_room_for_connection_data_closes() {
    for length in 0..4u16 {
        let private = vec![0; usize::from(length)];
        let (_, step) = fed(ResponderConfig::default(), &raw_request(0x10, 2, &private));
        assert_eq!(
            responder_error(step),
            SetupError::ConnectionDataMissing(length)
        );
        let step = answered(exchanging(1, 1), &raw_reply(0x10, 2, &private));
        assert_eq!(
            failure(step).error,
            SetupError::ConnectionDataMissing(length)
        );
    }
}

#[test]
fn mpa_req_09_application_gets_its_private_data_without_connection_data() {
    for length in [0, 1, 508] {
        let there: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let back: Vec<u8> = there.iter().rev().copied().collect();
        let now = Instant::now();
        let config = InitiatorConfig {
            private_data: there.clone(),
            ..exchanging(4, 4)
        };
        let mut initiator = Initiator::new(config, now).unwrap();
        let (mut responder, step) = fed(ResponderConfig::default(), initiator.output());
        assert_eq!(request_of(step).private_data, there);
        let parameters = AcceptParameters {
            ird: 4,
            ord: 4,
            private_data: back.clone(),
        };
        assert_eq!(responder.accept(&parameters).unwrap().private_data, there);
        initiator.sent(initiator.output().len());
        let (taken, step) = initiator.feed(responder.output(), now);
        assert_eq!(taken, responder.output().len());
        assert_eq!(established(step).private_data, back);
    }
}

#[test]
fn mpa_req_10_connection_data_layout() {
    let word = |data: ConnectionData| u32::from_be_bytes(data.encode());
    assert_eq!(word(peer_to_peer(RtrKinds::NONE, 0, 0)), 1 << 31);
    assert_eq!(word(peer_to_peer(send_only(), 0, 0)), 1 << 31 | 1 << 30);
    assert_eq!(word(peer_to_peer(write_only(), 0, 0)), 1 << 31 | 1 << 15);
    assert_eq!(word(peer_to_peer(read_only(), 0, 0)), 1 << 31 | 1 << 14);
    assert_eq!(word(client_server(1, 0)), 1 << 16);
    assert_eq!(word(client_server(0, 1)), 1);
    assert_eq!(word(client_server(0x3fff, 0)), 0x3fff << 16);
    assert_eq!(word(client_server(0, 0x3fff)), 0x3fff);
}

#[test]
fn mpa_req_10_connection_data_round_trip() {
    let depths = [
        0, 1, 2, 3, 127, 128, 255, 256, 0x1fff, 0x2000, 0x3ffd, 0x3ffe, 0x3fff,
    ];
    for ird in depths {
        for ord in depths {
            let data = client_server(ird, ord);
            assert_eq!(ConnectionData::decode(data.encode()), data);
            for rtr in all_sets() {
                let data = peer_to_peer(rtr, ird, ord);
                assert_eq!(ConnectionData::decode(data.encode()), data);
            }
        }
    }
}

#[test]
fn mpa_req_11_markers_and_crc_in_all_combinations() {
    for bits in 0..16u8 {
        let [peer_markers, peer_crc, own_crc, reply_markers] =
            [bits & 8 != 0, bits & 4 != 0, bits & 2 != 0, bits & 1 != 0];
        let flags = |markers: bool, crc: bool| {
            0x10 | if markers { 0x80 } else { 0 } | if crc { 0x40 } else { 0 }
        };
        let data = client_server(4, 4).encode();

        let config = ResponderConfig {
            crc: own_crc,
            ..ResponderConfig::default()
        };
        let request = raw_request(flags(peer_markers, peer_crc), 2, &data);
        let (negotiated, reply) = accept(&config, &request);
        assert_eq!(negotiated.crc, own_crc || peer_crc);
        assert_eq!(negotiated.send_markers, peer_markers);
        assert_eq!(reply.crc, negotiated.crc);
        assert!(!reply.markers, "markers are never asked for");

        let config = InitiatorConfig {
            crc: own_crc,
            ..exchanging(4, 4)
        };
        let request = request_frame(config.clone());
        assert_eq!((request.markers, request.crc), (false, own_crc));
        let reply = raw_reply(flags(reply_markers, peer_crc), 2, &data);
        let negotiated = established(answered(config, &reply));
        assert_eq!(negotiated.crc, own_crc || peer_crc);
        assert_eq!(negotiated.send_markers, reply_markers);
    }
}

#[test]
fn mpa_req_12_reject_flag_counts_in_replies_only() {
    let step = answered(InitiatorConfig::default(), &raw_reply(0x20, 1, b"why"));
    let rejection = Rejection {
        peer: None,
        private_data: b"why".to_vec(),
    };
    assert_eq!(step, InitiatorStep::Rejected(rejection));

    for config in [InitiatorConfig::default(), exchanging(2, 2)] {
        let initiator = Initiator::new(config, Instant::now()).unwrap();
        assert_eq!(initiator.output()[16] & 0x20, 0);
    }
    assert!(!parsed(FrameKind::Request, &raw_request(0x20, 1, b"")).reject);
    let (negotiated, reply) = accept(&ResponderConfig::default(), &raw_request(0x20, 1, b"hello"));
    assert_eq!(negotiated.private_data, b"hello");
    assert!(!reply.reject);

    let (mut responder, _) = fed(ResponderConfig::default(), &raw_request(0, 1, b""));
    responder.reject(b"no", None).unwrap();
    let reply = parsed(FrameKind::Reply, responder.output());
    assert!(reply.reject);
    assert_eq!(reply.private_data, b"no");
    assert_eq!(responder.state(), ResponderState::Rejected);
}

#[test]
fn mpa_req_17_revision_zero_closes() {
    for flags in [0, 0x10] {
        let (_, step) = fed(ResponderConfig::default(), &raw_request(flags, 0, &[0; 4]));
        assert_eq!(responder_error(step), SetupError::Revision(0));
        let step = answered(exchanging(1, 1), &raw_reply(flags, 0, &[0; 4]));
        assert_eq!(failure(step).error, SetupError::Revision(0));
    }
}

#[test]
fn mpa_req_17_later_revisions_count_as_two() {
    for revision in [3, 255] {
        let data = client_server(4, 4);
        let request = raw_request(0x10, revision, &data.encode());
        let (negotiated, reply) = accept(&ResponderConfig::default(), &request);
        assert!(negotiated.enhanced);
        assert_eq!((negotiated.revision, reply.revision), (2, 2));
        assert_eq!(reply.connection_data, Some(data));
        let reply = raw_reply(0x10, revision, &data.encode());
        assert!(established(answered(exchanging(4, 4), &reply)).enhanced);
    }
}

#[test]
fn mpa_req_18_enhanced_bit_of_revision_one_is_a_reserved_bit() {
    for enhanced in [true, false] {
        let config = ResponderConfig {
            enhanced,
            ..ResponderConfig::default()
        };
        for private in [&b""[..], b"abc", b"\x80\x04\x00\x04xyz"] {
            let (negotiated, reply) = accept(&config, &raw_request(0x10, 1, private));
            assert!(!negotiated.enhanced);
            assert_eq!(negotiated.private_data, private);
            assert_eq!((reply.revision, reply.connection_data), (1, None));
        }
    }
}

#[test]
fn mpa_req_19_revision_two_without_connection_data_gets_none() {
    let config = ResponderConfig::default();
    let (negotiated, reply) = accept(&config, &raw_request(0, 2, b"abc"));
    assert_eq!((reply.revision, reply.connection_data), (2, None));
    assert_eq!(negotiated.private_data, b"abc");
    assert_eq!((negotiated.ird, negotiated.ord), (config.ird, config.ord));
}

#[test]
fn mpa_req_20_explicit_indication_is_asked_for_per_connection() {
    assert!(!InitiatorConfig::default().peer_to_peer);
    let asked = InitiatorConfig {
        peer_to_peer: true,
        ..InitiatorConfig::default()
    };
    let data = request_frame(asked).connection_data.unwrap();
    assert!(data.peer_to_peer);
    assert_eq!(
        (data.ird, data.ord),
        (DEPTH_BY_APPLICATION, DEPTH_BY_APPLICATION)
    );
    let not = request_frame(exchanging(3, 5)).connection_data.unwrap();
    assert_eq!(not, client_server(3, 5));
}
