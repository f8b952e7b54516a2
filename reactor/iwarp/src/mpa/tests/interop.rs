//! MPA-INTEROP: old and new peers.

use std::time::Instant;

use super::*;

#[test]
fn mpa_interop_01_enhanced_request_gets_enhanced_reply() {
    let request = enhanced_request(client_server(4, 4));
    let (_, reply) = accept(&ResponderConfig::default(), &request);
    assert_eq!((reply.revision, reply.connection_data.is_some()), (2, true));
    let (mut responder, _) = fed(ResponderConfig::default(), &request);
    responder.reject(b"", None).unwrap();
    let reply = parsed(FrameKind::Reply, responder.output());
    assert_eq!((reply.revision, reply.connection_data.is_some()), (2, true));
}

#[test]
fn mpa_interop_02_plain_request_gets_plain_reply_byte_by_byte() {
    let config = ResponderConfig {
        crc: false,
        ..ResponderConfig::default()
    };
    let (_, reply) = accept_with(&config, &raw_request(0, 1, b"q"), b"a");
    let text = "4d504120 49442052 65702046 72616d65 00010001 61";
    assert_eq!(reply.encode().unwrap(), hex(text));
    let (_, reply) = accept_with(&config, &raw_request(0x40, 2, b"q"), b"");
    let text = "4d504120 49442052 65702046 72616d65 40020000";
    assert_eq!(reply.encode().unwrap(), hex(text));
    let (mut responder, _) = fed(config, &raw_request(0, 1, b"q"));
    responder.reject(b"no", Some(8)).unwrap();
    let text = "4d504120 49442052 65702046 72616d65 20010002 6e6f";
    assert_eq!(responder.output(), hex(text));
}

#[test]
fn mpa_interop_03_enhanced_request_is_malformed_with_support_switched_off() {
    let config = ResponderConfig {
        enhanced: false,
        ..ResponderConfig::default()
    };
    let (responder, step) = fed(config.clone(), &enhanced_request(client_server(4, 4)));
    let error = responder_error(step);
    assert_eq!(
        (error, error.code()),
        (SetupError::EnhancedOff, MpaCode::StartupFrame)
    );
    assert!(responder.output().is_empty());
    let (_, step) = fed(config, &raw_request(0, 2, b""));
    request_of(step);
}

#[test]
fn mpa_interop_04_one_plain_attempt_after_a_silent_close() {
    let config = InitiatorConfig {
        private_data: b"same".to_vec(),
        ..indicating(RtrKinds::ALL)
    };
    let mut fallback = Fallback::new(true);
    let error = failure(waiting(config.clone(), Instant::now()).peer_closed()).error;
    let second = fallback.retry(&config, error).unwrap();
    let frame = request_frame(second.clone());
    assert_eq!((frame.revision, frame.connection_data), (1, None));
    assert_eq!(frame.private_data, b"same");
    let negotiated = established(answered(second.clone(), &raw_reply(0, 1, b"")));
    assert_eq!((negotiated.ird, negotiated.ord), (config.ird, config.ord));
    assert_eq!(
        fallback.retry(&second, error),
        None,
        "the second was plain already"
    );
    assert_eq!(
        fallback.retry(&config, error),
        None,
        "never a third attempt"
    );
}

#[test]
fn mpa_interop_04_no_second_attempt_unless_allowed_and_of_use() {
    let config = exchanging(4, 4);
    assert_eq!(
        Fallback::new(false).retry(&config, SetupError::ClosedUnanswered),
        None
    );
    let plain = InitiatorConfig::default();
    assert_eq!(
        Fallback::new(true).retry(&plain, SetupError::ClosedUnanswered),
        None
    );
    for error in [
        SetupError::Closed,
        SetupError::Key,
        SetupError::TimedOut(Wait::Reply),
        SetupError::ReplyNotEnhanced,
        SetupError::NoMatchingRtr,
    ] {
        let mut fallback = Fallback::new(true);
        assert_eq!(fallback.retry(&config, error), None);
        assert!(
            fallback
                .retry(&config, SetupError::ClosedUnanswered)
                .is_some()
        );
    }
}

#[test]
fn mpa_interop_05_both_sides_report_the_close() {
    let now = Instant::now();
    let failed = failure(waiting(exchanging(1, 1), now).peer_closed());
    assert_eq!(failed.error, SetupError::ClosedUnanswered);
    assert_eq!(failed.error.code(), MpaCode::ConnectionLost);
    assert_eq!(failed.disposal, Disposal::Close);
    let mut initiator = waiting(exchanging(1, 1), now);
    initiator.feed(b"MPA", now);
    assert_eq!(failure(initiator.peer_closed()).error, SetupError::Closed);

    let mut responder = Responder::new(ResponderConfig::default(), now).unwrap();
    assert_eq!(
        responder_error(responder.peer_closed()),
        SetupError::ClosedUnanswered
    );
    let (mut responder, step) = fed(ResponderConfig::default(), &raw_request(0, 1, b""));
    request_of(step);
    assert_eq!(responder_error(responder.peer_closed()), SetupError::Closed);
    assert_eq!(responder.reject(b"", None), Err(DecisionError::NoRequest));
}

#[test]
fn mpa_interop_06_plain_reply_to_an_enhanced_request_fails() {
    for reply in [
        raw_reply(0, 2, b"\x00\x04\x00\x04"),
        raw_reply(0, 1, b""),
        raw_reply(0x10, 1, b"\x00\x04\x00\x04"),
        raw_reply(0x20, 2, b""),
    ] {
        let failure = failure(answered(indicating(RtrKinds::ALL), &reply));
        assert_eq!(failure.error, SetupError::ReplyNotEnhanced);
        assert_eq!((failure.disposal, failure.framing), (Disposal::Close, None));
    }
}

#[test]
fn mpa_interop_06_enhanced_reply_to_a_plain_request_fails() {
    let reply = enhanced_reply(client_server(4, 4));
    let failure = failure(answered(InitiatorConfig::default(), &reply));
    assert_eq!(failure.error, SetupError::ReplyEnhanced);
}

#[test]
fn mpa_interop_07_old_initiators_get_the_local_depths() {
    let config = ResponderConfig {
        ird: 7,
        ord: 9,
        required_ord: 8,
        ..ResponderConfig::default()
    };
    let (negotiated, _) = accept(&config, &raw_request(0x40, 1, b""));
    assert_eq!((negotiated.ird, negotiated.ord), (7, 9));
    assert_eq!((negotiated.peer_ird(), negotiated.peer_ord()), (None, None));
}

#[test]
fn mpa_interop_08_private_message_comes_through_at_any_offset() {
    let message = hex("f6ab0e18 01010303");
    for lead in [0, 1, 3, 5] {
        let mut private = vec![0xee; lead];
        private.extend_from_slice(&message);
        let (_, step) = fed(ResponderConfig::default(), &raw_request(0, 1, &private));
        assert_eq!(request_of(step).private_data, private);
        let mut with_data = client_server(128, 0).encode().to_vec();
        with_data.extend_from_slice(&private);
        let (_, step) = fed(
            ResponderConfig::default(),
            &raw_request(0x10, 2, &with_data),
        );
        assert_eq!(request_of(step).private_data, private);
    }
}

#[test]
fn mpa_interop_09_other_reserved_bits_are_ignored() {
    for reserved in 0..16u8 {
        let (plain, _) = accept(&ResponderConfig::default(), &raw_request(reserved, 1, b""));
        assert!(!plain.enhanced && !plain.send_markers);
        let reply = raw_reply(reserved, 1, b"");
        assert!(!established(answered(InitiatorConfig::default(), &reply)).enhanced);
    }
}
