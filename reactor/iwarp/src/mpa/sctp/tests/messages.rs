//! The messages on the wire.

use super::*;
use crate::mpa::config::ConfigError;

#[test]
fn mpa_sctp_01_golden_vectors_of_every_function() {
    let data = client_server(4, 4);
    let vectors = [
        ("00000001 6869", 0, Function::Initiate, None, "hi"),
        ("00000002", 0, Function::Accept, None, ""),
        ("00000003 6e6f", 0, Function::Reject, None, "no"),
        ("ffff0004", 0xffff, Function::Terminate, None, ""),
        (
            "00000005 00040004",
            0,
            Function::EnhancedInitiate,
            Some(data),
            "",
        ),
        (
            "00000006 00040004 6869",
            0,
            Function::EnhancedAccept,
            Some(data),
            "hi",
        ),
        ("00010007 6e6f", 1, Function::EnhancedReject, None, "no"),
    ];
    for (text, sequence, function, connection_data, private) in vectors {
        let message = ControlMessage {
            sequence,
            function,
            connection_data,
            private_data: private.as_bytes().to_vec(),
        };
        assert_eq!(control(&message), hex(text));
        assert_eq!(ControlMessage::decode(&hex(text)), Ok(message));
    }
    assert_eq!((SEGMENT_IDENTIFIER, CONTROL_IDENTIFIER), (16, 17));
}

#[test]
fn mpa_sctp_01_other_functions_are_no_messages() {
    for code in (0..=u16::MAX).filter(|code| !(1..=7).contains(code)) {
        let [high, low] = code.to_be_bytes();
        let error = ControlMessage::decode(&[0, 0, high, low]).unwrap_err();
        assert_eq!(error, MessageError::Function(code));
    }
    for length in 0..CONTROL_HEADER_LENGTH {
        let error = ControlMessage::decode(&[0, 0, 0, 1][..length]).unwrap_err();
        assert_eq!(error, MessageError::Short(length));
    }
}

#[test]
fn mpa_sctp_01_a_session_opens_with_the_golden_initiate() {
    let mut session = Session::initiate(exchanging(4, 4), Instant::now()).unwrap();
    let chunk = session.output().unwrap();
    assert_eq!(chunk.bytes, hex("00000005 00040004"));
    let plain = InitiatorConfig {
        private_data: b"hi".to_vec(),
        ..InitiatorConfig::default()
    };
    let mut session = Session::initiate(plain, Instant::now()).unwrap();
    assert_eq!(session.output().unwrap().bytes, hex("00000001 6869"));
}

#[test]
fn mpa_sctp_02_connection_data_begins_initiate_and_accept() {
    let asking = InitiatorConfig {
        peer_to_peer: true,
        private_data: b"hello".to_vec(),
        ..exchanging(16, 8)
    };
    let mut here = Session::initiate(asking, Instant::now()).unwrap();
    let initiate = here.output().unwrap();
    assert_eq!(initiate.bytes, hex("00000005 c010c008 68656c6c6f"));

    let mut there = Session::listen(responding(8, 8), Instant::now()).unwrap();
    there.receive(initiate.identifier, &initiate.bytes, Instant::now());
    let request = request_of(&mut there);
    assert_eq!(request.private_data, b"hello");
    assert_eq!(request.peer, Some(peer_to_peer(RtrKinds::ALL, 16, 8)));
    let parameters = AcceptParameters {
        private_data: b"ok".to_vec(),
        ..accepting(&responding(8, 8))
    };
    there.accept(&parameters).unwrap();
    let accept = there.output().unwrap();
    assert_eq!(accept.bytes, hex("00000006 c008c008 6f6b"));

    here.receive(accept.identifier, &accept.bytes, Instant::now());
    let terms = established(&events(&mut here));
    assert_eq!(terms.private_data, b"ok");
    assert_eq!(terms.peer, Some(peer_to_peer(RtrKinds::ALL, 8, 8)));
}

#[test]
fn mpa_sctp_02_an_enhanced_message_without_its_four_bytes_ends_the_session() {
    for function in [Function::EnhancedInitiate, Function::EnhancedAccept] {
        for length in 0..4 {
            let mut bytes = vec![0, 0, 0, function.code() as u8];
            bytes.resize(4 + length, 0);
            let error = MessageError::ConnectionDataMissing(length);
            assert_eq!(ControlMessage::decode(&bytes), Err(error));
            let mut session = active(exchanging(1, 1));
            session.receive(CONTROL_IDENTIFIER, &bytes, Instant::now());
            let end = SessionEnd::Failed(SessionError::Message(error));
            assert_eq!(events(&mut session), [SessionEvent::Ended(end)]);
        }
    }
}

#[test]
fn mpa_sctp_04_private_data_is_limited() {
    for function in Function::ALL {
        let limit = match function {
            Function::Terminate => 0,
            Function::EnhancedInitiate | Function::EnhancedAccept => 508,
            _ => 512,
        };
        let mut message = message(0, function, None);
        message.private_data = vec![7; limit];
        let mut bytes = control(&message);
        let longest = if limit == 0 { 4 } else { 516 };
        assert_eq!(bytes.len(), longest);
        assert_eq!(
            ControlMessage::decode(&bytes).unwrap().private_data.len(),
            limit
        );
        message.private_data.push(7);
        assert_eq!(
            message.encode(),
            Err(ConfigError::PrivateDataLength {
                length: limit + 1,
                limit
            })
        );
        bytes.push(7);
        let error = if function == Function::Terminate {
            MessageError::TerminateWithData(1)
        } else {
            MessageError::PrivateDataLength(513)
        };
        assert_eq!(ControlMessage::decode(&bytes), Err(error));
    }
}

#[test]
fn mpa_sctp_04_sessions_refuse_to_send_more() {
    let config = responding(4, 4);
    let mut session = asked(&config, client_server(4, 4));
    request_of(&mut session);
    let parameters = AcceptParameters {
        private_data: vec![0; 509],
        ..accepting(&config)
    };
    let error = ConfigError::PrivateDataLength {
        length: 509,
        limit: 508,
    };
    assert_eq!(session.accept(&parameters), Err(UseError::Config(error)));
    assert!(session.reject(&[0; 513], RejectCause::Session).is_err());
    assert_eq!(session.state(), SessionState::Deciding);
    assert_eq!(session.output(), None);
    session
        .reject(&[0; 512], RejectCause::Enhancements)
        .unwrap();
    let reject = sent(&mut session);
    assert_eq!((reject.sequence, reject.private_data.len()), (0, 512));
}

#[test]
fn mpa_sctp_05_all_private_data_reaches_the_application() {
    let all: Vec<u8> = (0..=255).chain(0..=251).collect();
    let config = responding(4, 4);
    let mut session = Session::listen(config, Instant::now()).unwrap();
    let mut initiate = message(0, Function::EnhancedInitiate, Some(client_server(1, 2)));
    initiate.private_data.clone_from(&all);
    give(&mut session, &initiate);
    assert_eq!(request_of(&mut session).private_data, all);

    let mut session = active(exchanging(4, 4));
    let mut accept = message(0, Function::EnhancedAccept, Some(client_server(1, 2)));
    accept.private_data.clone_from(&all);
    give(&mut session, &accept);
    assert_eq!(established(&events(&mut session)).private_data, all);

    let mut session = active(exchanging(4, 4));
    let mut reject = message(0, Function::EnhancedReject, None);
    reject.private_data.clone_from(&all);
    give(&mut session, &reject);
    let rejection = SessionRejection {
        enhanced: true,
        private_data: all,
    };
    assert_eq!(
        events(&mut session),
        [SessionEvent::Rejected(rejection.clone())]
    );
    assert_eq!(rejection.terms(), None);
}
