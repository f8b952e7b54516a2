//! How sessions are refused, ended, and left alone.

use std::time::Duration;

use super::*;
use crate::mpa::error::{SetupError, Wait};

#[test]
fn mpa_sctp_03_an_enhanced_reject_names_the_enhancements_as_the_reason() {
    let data = client_server(4, 4);
    for (cause, function) in [
        (RejectCause::Enhancements, Function::EnhancedReject),
        (RejectCause::Session, Function::Reject),
    ] {
        let mut session = asked(&responding(4, 4), data);
        request_of(&mut session);
        session.reject(b"because", cause).unwrap();
        let reject = sent(&mut session);
        assert_eq!(reject.function, function);
        assert_eq!(reject.connection_data, None);
        assert_eq!(reject.private_data, b"because");
        assert_eq!(session.state(), SessionState::Ended);
    }
}

#[test]
fn mpa_sctp_03_an_ordinary_initiate_gets_an_ordinary_reject() {
    let mut session = Session::listen(responding(4, 4), Instant::now()).unwrap();
    give(&mut session, &message(0, Function::Initiate, None));
    assert_eq!(request_of(&mut session).peer, None);
    session.reject(b"", RejectCause::Enhancements).unwrap();
    assert_eq!(sent(&mut session).function, Function::Reject);
}

#[test]
fn mpa_sctp_06_no_common_kind_is_rejected_with_the_kinds_that_there_are() {
    let config = ResponderConfig {
        rtr: send_only(),
        ..responding(4, 4)
    };
    let data = peer_to_peer(RtrKinds::only(RtrKind::Write), 4, 4);
    let mut session = asked(&config, data);
    assert_eq!(
        events(&mut session),
        [SessionEvent::Ended(SessionEnd::RejectedHere { peer: data })]
    );
    let reject = sent(&mut session);
    assert_eq!(reject.function, Function::EnhancedReject);

    let asking = InitiatorConfig {
        peer_to_peer: true,
        rtr: RtrKinds::only(RtrKind::Write),
        ..exchanging(4, 4)
    };
    let mut here = active(asking);
    give(&mut here, &reject);
    match events(&mut here).as_slice() {
        [SessionEvent::Rejected(rejection)] => {
            assert_eq!(rejection.terms().unwrap().rtr, send_only());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn mpa_sctp_06_one_common_kind_is_enough() {
    let config = ResponderConfig {
        rtr: send_only(),
        ..responding(4, 4)
    };
    let (terms, reply) = accepted(&config, peer_to_peer(RtrKinds::ALL, 4, 4));
    assert_eq!(reply.rtr, send_only());
    assert!(terms.peer_to_peer);
}

#[test]
fn mpa_sctp_07_an_enhanced_session_ends_with_the_ordinary_terminate() {
    let config = responding(4, 4);
    let mut there = asked(&config, client_server(4, 4));
    request_of(&mut there);
    there.accept(&accepting(&config)).unwrap();
    let accept = sent(&mut there);
    there.send(b"last").unwrap();
    there.terminate().unwrap();
    assert_eq!(there.output().unwrap().bytes, b"\0\x01last");
    assert_eq!(
        there.output(),
        None,
        "not before the Accept is known to have come"
    );
    there.confirmed();
    assert_eq!(there.output().unwrap().bytes, hex("00020004"));
    assert_eq!(there.state(), SessionState::Ended);

    let mut here = active(exchanging(4, 4));
    give(&mut here, &accept);
    here.receive(SEGMENT_IDENTIFIER, b"\0\x01last", Instant::now());
    here.receive(CONTROL_IDENTIFIER, &hex("00020004"), Instant::now());
    assert!(matches!(
        events(&mut here).as_slice(),
        [
            SessionEvent::Established(_),
            SessionEvent::Segment(segment),
            SessionEvent::Ended(SessionEnd::Terminated)
        ] if segment == b"last"
    ));
    assert_eq!(here.terminate(), Err(UseError::State(SessionState::Ended)));
}

#[test]
fn mpa_sctp_08_a_session_is_refused_by_a_terminate_without_asking() {
    let mut there = asked(&responding(4, 4), client_server(4, 4));
    request_of(&mut there);
    there.terminate().unwrap();
    let terminate = sent(&mut there);
    assert_eq!(
        (terminate.sequence, terminate.function),
        (0, Function::Terminate)
    );
    let mut here = active(exchanging(4, 4));
    give(&mut here, &terminate);
    assert_eq!(
        events(&mut here),
        [SessionEvent::Ended(SessionEnd::Refused)]
    );
    assert_eq!(here.output(), None, "a Terminate is not answered");
}

#[test]
fn mpa_sctp_08_enhancements_switched_off_refuse_an_enhanced_initiate() {
    let config = ResponderConfig {
        enhanced: false,
        ..responding(4, 4)
    };
    let mut session = asked(&config, client_server(4, 4));
    let error = SessionError::Setup(SetupError::EnhancedOff);
    assert_eq!(
        events(&mut session),
        [SessionEvent::Ended(SessionEnd::Failed(error))]
    );
    assert_eq!(sent(&mut session).function, Function::Terminate);
}

#[test]
fn mpa_sctp_08_every_wait_ends() {
    let now = Instant::now();
    let past = |session: &Session| session.deadline().unwrap();
    let timed_out = |session: &mut Session, wait| {
        let error = SessionError::Setup(SetupError::TimedOut(wait));
        assert_eq!(
            events(session),
            [SessionEvent::Ended(SessionEnd::Failed(error))]
        );
        assert_eq!(session.deadline(), None);
        session.confirmed();
        session.output().map(|chunk| chunk.bytes)
    };
    let mut session = Session::listen(responding(4, 4), now).unwrap();
    session.expire(past(&session) - Duration::from_nanos(1));
    assert_eq!(session.state(), SessionState::AwaitingInitiate);
    session.expire(past(&session));
    assert_eq!(timed_out(&mut session, Wait::Request), None);

    let mut session = asked(&responding(4, 4), client_server(1, 1));
    request_of(&mut session);
    session.expire(past(&session));
    assert_eq!(
        timed_out(&mut session, Wait::Decision),
        Some(hex("00000004"))
    );

    let mut session = active(exchanging(4, 4));
    session.receive(CONTROL_IDENTIFIER, b"", past(&session));
    assert_eq!(timed_out(&mut session, Wait::Reply), Some(hex("00010004")));

    let mut session = active(exchanging(4, 4));
    session.lost();
    let error = SessionError::Setup(SetupError::Closed);
    assert_eq!(
        events(&mut session),
        [SessionEvent::Ended(SessionEnd::Failed(error))]
    );
    assert_eq!(session.output(), None);
}

#[test]
fn mpa_sctp_09_either_side_sends_first() {
    let config = responding(4, 4);
    let mut there = asked(&config, peer_to_peer(RtrKinds::ALL, 4, 4));
    request_of(&mut there);
    assert!(there.send(b"early").is_err(), "not before the Accept");
    there.accept(&accepting(&config)).unwrap();
    let accept = sent(&mut there);
    there.send(b"from the passive side").unwrap();
    let first = there.output().unwrap();
    assert_eq!(first.identifier, SEGMENT_IDENTIFIER);

    let asking = InitiatorConfig {
        peer_to_peer: true,
        ..exchanging(4, 4)
    };
    let mut here = active(asking);
    // Unordered chunks: the segment overtakes the Accept.
    here.receive(first.identifier, &first.bytes, Instant::now());
    assert_eq!(events(&mut here), []);
    give(&mut here, &accept);
    assert_eq!(here.output(), None, "no indication is due");
    assert!(matches!(
        events(&mut here).as_slice(),
        [SessionEvent::Established(terms), SessionEvent::Segment(_)] if terms.peer_to_peer
    ));

    here.send(b"from the active side").unwrap();
    let first = here.output().unwrap();
    there.receive(first.identifier, &first.bytes, Instant::now());
    assert_eq!(
        events(&mut there),
        [SessionEvent::Segment(b"from the active side".to_vec())]
    );
}
