//! MPA-RTR: the peer-to-peer model and ready-to-receive indications.

use std::time::Instant;

use super::*;

const KINDS: [RtrKind; 3] = [RtrKind::Send, RtrKind::Write, RtrKind::Read];

fn understanding(rtr: RtrKinds) -> ResponderConfig {
    ResponderConfig {
        rtr,
        ..ResponderConfig::default()
    }
}

fn reply_to(rtr: RtrKinds, asked: RtrKinds) -> ConnectionData {
    let request = enhanced_request(peer_to_peer(asked, 4, 4));
    accept(&understanding(rtr), &request)
        .1
        .connection_data
        .unwrap()
}

fn fpdu(operation: FirstOperation, length: u64) -> FirstFpdu {
    FirstFpdu {
        operation,
        length,
        last: true,
    }
}

fn indication(kind: RtrKind) -> FirstFpdu {
    let operation = match kind {
        RtrKind::Send => FirstOperation::Send,
        RtrKind::Write => FirstOperation::Write,
        RtrKind::Read => FirstOperation::ReadRequest,
    };
    fpdu(operation, 0)
}

/// The gate of a responder that was asked for this.
fn responder_gate(rtr: RtrKinds, data: ConnectionData) -> StartGate {
    StartGate::new(&accept(&understanding(rtr), &enhanced_request(data)).0)
}

/// The gate of an initiator that asks for these kinds and is answered these.
fn initiator_gate(asked: RtrKinds, answer: RtrKinds) -> StartGate {
    let reply = enhanced_reply(peer_to_peer(answer, 4, 4));
    StartGate::new(&established(answered(indicating(asked), &reply)))
}

#[test]
fn mpa_rtr_01_initiator_names_every_kind_that_it_supports() {
    for rtr in all_sets().filter(|rtr| !rtr.is_empty()) {
        let data = request_frame(indicating(rtr)).connection_data.unwrap();
        assert_eq!(data, peer_to_peer(rtr, 16, 16));
    }
}

#[test]
fn mpa_rtr_02_responder_returns_the_connection_model() {
    for rtr in all_sets() {
        assert!(reply_to(RtrKinds::ALL, rtr).peer_to_peer);
    }
    let (_, reply) = accept(
        &ResponderConfig::default(),
        &enhanced_request(client_server(4, 4)),
    );
    assert!(!reply.connection_data.unwrap().peer_to_peer);
    for data in [client_server(4, 4), peer_to_peer(send_only(), 4, 4)] {
        let (mut responder, _) = fed(ResponderConfig::default(), &enhanced_request(data));
        responder.reject(b"", None).unwrap();
        let reply = parsed(FrameKind::Reply, responder.output())
            .connection_data
            .unwrap();
        assert_eq!(reply.peer_to_peer, data.peer_to_peer);
    }
}

#[test]
fn mpa_rtr_02_a_reply_of_the_other_model_terminates() {
    for (config, reply) in [
        (exchanging(4, 4), peer_to_peer(RtrKinds::ALL, 4, 4)),
        (indicating(RtrKinds::ALL), client_server(4, 4)),
    ] {
        let failure = failure(answered(config, &enhanced_reply(reply)));
        assert_eq!(failure.error, SetupError::NoMatchingRtr);
        assert_eq!(
            failure.disposal,
            Disposal::Terminate(MpaCode::NoMatchingRtr)
        );
    }
}

#[test]
fn mpa_rtr_03_kinds_without_the_model_are_not_sent_and_ignored() {
    let careless = ConnectionData {
        rtr: RtrKinds::ALL,
        ..client_server(4, 4)
    };
    assert_eq!(careless.encode(), client_server(4, 4).encode());
    let bits = 0x4004_c004_u32.to_be_bytes();
    let (negotiated, reply) = accept(&ResponderConfig::default(), &raw_request(0x10, 2, &bits));
    assert_eq!(reply.connection_data, Some(client_server(4, 4)));
    assert!(!negotiated.peer_to_peer);
    assert!(negotiated.rtr_expected.is_empty());
    let negotiated = established(answered(exchanging(4, 4), &raw_reply(0x10, 2, &bits)));
    assert_eq!(
        (negotiated.peer_to_peer, negotiated.rtr_to_send),
        (false, None)
    );
}

#[test]
fn mpa_rtr_04_reply_sets_what_was_asked_and_is_supported() {
    for asked in all_sets().filter(|asked| !asked.is_empty()) {
        assert_eq!(reply_to(RtrKinds::ALL, asked).rtr, asked);
    }
}

#[test]
fn mpa_rtr_05_a_common_kind_is_set_if_there_is_one() {
    for asked in all_sets() {
        for supported in all_sets().filter(|supported| !supported.is_empty()) {
            let common = supported.common(asked);
            if !common.is_empty() {
                assert_eq!(reply_to(supported, asked).rtr, common);
            }
        }
    }
}

#[test]
fn mpa_rtr_06_kinds_beyond_those_asked_do_not_confuse_the_initiator() {
    for kind in KINDS {
        let gate = initiator_gate(RtrKinds::only(kind), RtrKinds::ALL);
        assert_eq!(gate.to_send(), Some(kind));
    }
}

#[test]
fn mpa_rtr_07_without_a_common_kind_the_supported_ones_are_set() {
    assert_eq!(reply_to(send_only(), write_only()).rtr, send_only());
    for asked in all_sets() {
        for supported in all_sets().filter(|supported| !supported.is_empty()) {
            let reply = reply_to(supported, asked).rtr;
            assert!(!reply.is_empty());
            assert_eq!(reply.common(supported), reply, "only supported kinds");
        }
    }
}

#[test]
fn mpa_rtr_08_enhanced_support_without_a_kind_is_refused() {
    let error = Responder::new(understanding(RtrKinds::NONE), Instant::now()).unwrap_err();
    assert_eq!(error, ConfigError::NoRtrKind);
    let config = InitiatorConfig {
        rtr: RtrKinds::NONE,
        ..InitiatorConfig::default()
    };
    assert_eq!(
        Initiator::new(config, Instant::now()).unwrap_err(),
        ConfigError::NoRtrKind
    );
    let off = ResponderConfig {
        enhanced: false,
        ..understanding(RtrKinds::NONE)
    };
    assert!(Responder::new(off, Instant::now()).is_ok());
}

#[test]
fn mpa_rtr_09_initiator_sends_one_of_the_common_kinds() {
    for asked in all_sets().filter(|asked| !asked.is_empty()) {
        for answer in all_sets() {
            let common = asked.common(answer);
            if common.is_empty() {
                continue;
            }
            let kind = initiator_gate(asked, answer).to_send().unwrap();
            assert!(common.contains(kind));
        }
    }
}

#[test]
fn mpa_rtr_09_a_read_is_the_last_choice_where_the_responder_serves_none() {
    let choice = |answer: RtrKinds, ird| {
        let reply = enhanced_reply(peer_to_peer(answer, ird, 4));
        established(answered(indicating(RtrKinds::ALL), &reply)).rtr_to_send
    };
    let no_write = RtrKinds {
        write: false,
        ..RtrKinds::ALL
    };
    assert_eq!(choice(no_write, 1), Some(RtrKind::Read));
    assert_eq!(choice(no_write, 0), Some(RtrKind::Send));
    assert_eq!(choice(read_only(), 0), Some(RtrKind::Read));
}

#[test]
fn mpa_rtr_10_no_common_kind_terminates_with_code_seven() {
    let step = answered(
        InitiatorConfig {
            crc: false,
            ..indicating(send_only())
        },
        &raw_reply(0xd0, 2, &peer_to_peer(read_only(), 4, 4).encode()),
    );
    let failure = failure(step);
    assert_eq!(failure.error, SetupError::NoMatchingRtr);
    assert_eq!(
        failure.disposal,
        Disposal::Terminate(MpaCode::NoMatchingRtr)
    );
    assert_eq!(
        failure.framing,
        Some(Framing {
            crc: true,
            send_markers: true
        })
    );
    for asked in all_sets().filter(|asked| !asked.is_empty()) {
        let reply = enhanced_reply(peer_to_peer(RtrKinds::NONE, 4, 4));
        let step = answered(indicating(asked), &reply);
        assert!(matches!(step, InitiatorStep::Failed(_)));
    }
}

#[test]
fn mpa_rtr_11_gate_of_the_initiator_opens_with_the_indication() {
    for kind in KINDS {
        let mut gate = initiator_gate(RtrKinds::only(kind), RtrKinds::only(kind));
        assert!(!gate.is_open());
        assert_eq!(gate.to_send(), Some(kind));
        gate.indication_sent();
        assert!(gate.is_open());
        assert_eq!(gate.to_send(), None);
    }
}

#[test]
fn mpa_rtr_11_client_server_initiator_may_send_at_once() {
    let reply = enhanced_reply(client_server(4, 4));
    let gate = StartGate::new(&established(answered(exchanging(4, 4), &reply)));
    assert!(gate.is_open());
    assert_eq!(gate.to_send(), None);
    let step = answered(InitiatorConfig::default(), &raw_reply(0, 1, b""));
    assert!(StartGate::new(&established(step)).is_open());
}

#[test]
fn mpa_rtr_12_gate_of_the_responder_opens_with_the_first_fpdu() {
    let plain = accept(&ResponderConfig::default(), &raw_request(0, 1, b"")).0;
    let gates = [
        StartGate::new(&plain),
        responder_gate(RtrKinds::ALL, client_server(4, 4)),
        responder_gate(RtrKinds::ALL, peer_to_peer(RtrKinds::ALL, 4, 4)),
    ];
    for mut gate in gates {
        assert!(!gate.is_open() && gate.awaits_first());
        gate.indication_sent();
        assert!(!gate.is_open(), "only the initiator's FPDU opens it");
        gate.first(fpdu(FirstOperation::Send, 100));
        assert!(gate.is_open() && !gate.awaits_first());
    }
}

#[test]
fn mpa_rtr_14_indication_is_the_streams_own() {
    for kind in KINDS {
        let rtr = RtrKinds::only(kind);
        let mut gate = responder_gate(rtr, peer_to_peer(rtr, 4, 4));
        assert_eq!(gate.first(indication(kind)), Arrival::Indication(kind));
        assert!(!gate.was_unexpected());
        assert_eq!(
            gate.first(indication(kind)),
            Arrival::Ordinary,
            "only the first is one"
        );
    }
}

#[test]
fn mpa_rtr_14_empty_send_of_a_client_is_a_message() {
    let mut gate = responder_gate(RtrKinds::ALL, client_server(4, 4));
    assert_eq!(gate.first(indication(RtrKind::Send)), Arrival::Ordinary);
    assert!(gate.is_open() && !gate.was_unexpected());
}

#[test]
fn mpa_rtr_17_indication_by_read_finds_a_place() {
    for ord in [0, 1, 0x3fff] {
        let request = enhanced_request(peer_to_peer(read_only(), 0, ord));
        let (negotiated, reply) = accept(&ResponderConfig::default(), &request);
        assert!(reply.connection_data.unwrap().rtr.read);
        assert!(negotiated.ird >= 1);
    }
}

#[test]
fn mpa_rtr_18_another_kind_is_accepted_and_noted() {
    for agreed in KINDS {
        for sent in KINDS.into_iter().filter(|sent| *sent != agreed) {
            let rtr = RtrKinds::only(agreed);
            let mut gate = responder_gate(rtr, peer_to_peer(rtr, 4, 4));
            assert_eq!(gate.first(indication(sent)), Arrival::Indication(sent));
            assert!(gate.is_open() && gate.was_unexpected());
        }
    }
}

#[test]
fn mpa_rtr_18_a_message_with_content_belongs_to_the_application() {
    let part = FirstFpdu {
        operation: FirstOperation::Send,
        length: 0,
        last: false,
    };
    for first in [
        fpdu(FirstOperation::Send, 1),
        fpdu(FirstOperation::Write, 4096),
        fpdu(FirstOperation::ReadRequest, u64::from(u32::MAX)),
        fpdu(FirstOperation::Other, 0),
        part,
    ] {
        let mut gate = responder_gate(RtrKinds::ALL, peer_to_peer(RtrKinds::ALL, 4, 4));
        assert_eq!(gate.first(first), Arrival::Ordinary);
        assert!(gate.is_open() && gate.was_unexpected());
    }
}

#[test]
fn mpa_rtr_19_request_reply_adjustment_indication() {
    let now = Instant::now();
    let config = InitiatorConfig {
        ird: 3,
        ord: 40,
        ..indicating(write_only())
    };
    let mut initiator = Initiator::new(config, now).unwrap();
    let request = initiator.output().to_vec();
    assert_eq!(
        parsed(FrameKind::Request, &request).connection_data,
        Some(peer_to_peer(write_only(), 3, 40))
    );
    initiator.sent(request.len());
    let (mut responder, step) = fed(ResponderConfig::default(), &request);
    request_of(step);
    let parameters = AcceptParameters {
        ird: 16,
        ord: 16,
        private_data: Vec::new(),
    };
    let there = responder.accept(&parameters).unwrap();
    let reply = responder.output().to_vec();
    assert_eq!(
        parsed(FrameKind::Reply, &reply).connection_data,
        Some(peer_to_peer(write_only(), 16, 3))
    );
    let here = established(initiator.feed(&reply, now).1);
    assert_eq!((here.ird, here.ord, there.ird, there.ord), (3, 16, 16, 3));
    let mut here = StartGate::new(&here);
    let mut there = StartGate::new(&there);
    assert!(!here.is_open() && !there.is_open());
    let kind = here.to_send().unwrap();
    here.indication_sent();
    assert_eq!(
        there.first(indication(kind)),
        Arrival::Indication(RtrKind::Write)
    );
    assert!(here.is_open() && there.is_open() && !there.was_unexpected());
}

/// A responder may offer fewer reads than are wished for, and open more than were offered.
#[test]
fn mpa_rtr_19_both_depths_of_the_initiator_follow_the_reply() {
    let config = InitiatorConfig {
        ird: 3,
        ord: 40,
        ..indicating(write_only())
    };
    let reply = enhanced_reply(peer_to_peer(write_only(), 5, 9));
    let here = established(answered(config, &reply));
    assert_eq!((here.ird, here.ord), (9, 5));
}

#[test]
fn mpa_rtr_20_after_code_seven_a_client_server_connect_is_possible() {
    let mut fallback = Fallback::new(true);
    let config = indicating(send_only());
    let responder = understanding(read_only());
    let now = Instant::now();
    let request = Initiator::new(config.clone(), now)
        .unwrap()
        .output()
        .to_vec();
    let (_, reply) = accept(&responder, &request);
    let error = failure(answered(config.clone(), &reply.encode().unwrap())).error;
    assert_eq!(error, SetupError::NoMatchingRtr);
    assert_eq!(
        fallback.retry(&config, error),
        None,
        "that is the application's to decide"
    );

    let config = InitiatorConfig {
        peer_to_peer: false,
        ..config
    };
    let request = Initiator::new(config.clone(), now)
        .unwrap()
        .output()
        .to_vec();
    let (_, reply) = accept(&responder, &request);
    let negotiated = established(answered(config, &reply.encode().unwrap()));
    assert!(negotiated.enhanced && !negotiated.peer_to_peer);
}
