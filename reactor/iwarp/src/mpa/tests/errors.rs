//! MPA-ERR: error reporting.

use std::time::Instant;

use super::*;

const STAGES: [Stage; 5] = [
    Stage::AwaitingReply,
    Stage::AwaitingRequest,
    Stage::AwaitingDecision,
    Stage::AwaitingFirst,
    Stage::Flowing,
];

#[test]
fn mpa_err_01_layer_type_and_codes() {
    assert_eq!((MpaCode::LAYER, MpaCode::KIND), (2, 0));
    assert_eq!(MpaCode::LocalCatastrophic.value(), 5);
    assert_eq!(MpaCode::InsufficientIrd.value(), 6);
    assert_eq!(MpaCode::NoMatchingRtr.value(), 7);
}

#[test]
fn mpa_err_02_local_errors_without_a_code_send_code_five() {
    let code = MpaCode::LocalCatastrophic;
    assert_eq!(disposal(Stage::Flowing, code), Disposal::Terminate(code));
    // An accepting responder may not send before the initiator's first FPDU.
    assert_eq!(
        disposal(Stage::AwaitingFirst, code),
        Disposal::TerminateAfterFirst(code)
    );
    assert_eq!(SetupError::OutOfOrder.code(), code);
}

#[test]
fn mpa_err_02_misuse_after_the_accept_is_a_local_error() {
    let (mut responder, _) = fed(ResponderConfig::default(), &raw_request(0, 1, b""));
    let parameters = AcceptParameters {
        ird: 1,
        ord: 1,
        private_data: Vec::new(),
    };
    responder.accept(&parameters).unwrap();
    assert_eq!(
        responder.accept(&parameters).map(drop),
        Err(DecisionError::NoRequest)
    );
    match responder.feed(b"FPDU", Instant::now()) {
        ResponderStep::Failed(failure) => {
            assert_eq!(failure.error, SetupError::OutOfOrder);
            let code = MpaCode::LocalCatastrophic;
            assert_eq!(failure.disposal, Disposal::TerminateAfterFirst(code));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(responder.state(), ResponderState::Accepted);
}

#[test]
fn mpa_err_03_codes_of_plain_mpa_stay() {
    assert_eq!(MpaCode::ConnectionLost.value(), 1);
    assert_eq!(MpaCode::Crc.value(), 2);
    assert_eq!(MpaCode::Marker.value(), 3);
    assert_eq!(MpaCode::StartupFrame.value(), 4);
    for stage in STAGES {
        assert_eq!(disposal(stage, MpaCode::StartupFrame), Disposal::Close);
        assert_eq!(disposal(stage, MpaCode::ConnectionLost), Disposal::Close);
    }
    let crc = MpaCode::Crc;
    assert_eq!(disposal(Stage::Flowing, crc), Disposal::Terminate(crc));
}

#[test]
fn mpa_err_03_malformed_frames_are_code_four_and_close_without_a_word() {
    for bytes in [
        raw_reply(0, 0, b""),
        raw_request(0, 1, b""),
        raw(b"MPA ID Rep Frame", 0, 1, 513, b""),
        raw_reply(0x10, 2, b"abc"),
        raw_reply(0x10, 2, &client_server(1, 1).encode()),
    ] {
        let failure = failure(answered(InitiatorConfig::default(), &bytes));
        assert_eq!(
            failure.error.code(),
            MpaCode::StartupFrame,
            "{}",
            failure.error
        );
        assert_eq!((failure.disposal, failure.framing), (Disposal::Close, None));
    }
}

#[test]
fn mpa_err_04_before_the_reply_there_is_no_terminate() {
    for code in [
        MpaCode::LocalCatastrophic,
        MpaCode::InsufficientIrd,
        MpaCode::NoMatchingRtr,
    ] {
        assert_eq!(disposal(Stage::AwaitingReply, code), Disposal::Close);
        assert_eq!(disposal(Stage::AwaitingRequest, code), Disposal::Close);
        assert_eq!(disposal(Stage::AwaitingDecision, code), Disposal::Reject);
        assert_eq!(disposal(Stage::Flowing, code), Disposal::Terminate(code));
    }
}

#[test]
fn mpa_err_04_a_rejecting_reply_is_the_whole_answer() {
    let config = ResponderConfig {
        required_ord: 8,
        ..ResponderConfig::default()
    };
    let (mut responder, _) = fed(config, &enhanced_request(client_server(2, 2)));
    assert_eq!(responder.output().len(), 24, "one frame, no FPDU behind it");
    responder.sent(24);
    assert!(responder.output().is_empty());
    let step = answered(
        exchanging(1, 1),
        &raw_reply(0x30, 2, &client_server(4, 9000).encode()),
    );
    assert!(
        matches!(step, InitiatorStep::Rejected(_)),
        "no Terminate for a depth that a rejection asks for"
    );
}

#[test]
fn mpa_err_04_states_change_only_as_declared() {
    use InitiatorState as I;
    use ResponderState as R;
    for (from, _) in INITIATOR_TRANSITIONS {
        assert!(!matches!(from, I::Established | I::Rejected | I::Failed));
    }
    for (from, _) in RESPONDER_TRANSITIONS {
        assert!(!matches!(from, R::Accepted | R::Rejected | R::Failed));
    }
    let now = Instant::now();
    for reply in [
        raw_reply(0, 1, b""),
        raw_reply(0x20, 1, b""),
        raw_reply(0, 0, b""),
    ] {
        let mut initiator = waiting(InitiatorConfig::default(), now);
        initiator.feed(&reply, now);
        let state = initiator.state();
        assert!(INITIATOR_TRANSITIONS.contains(&(I::Waiting, state)));
        assert_eq!(
            failure(initiator.feed(&reply, now).1).error,
            SetupError::OutOfOrder
        );
        assert_eq!(
            failure(initiator.peer_closed()).error,
            SetupError::OutOfOrder
        );
        assert_eq!(
            initiator.expire(now + config::REPLY_WAIT),
            InitiatorStep::Pending
        );
        assert_eq!(initiator.state(), state);
    }
}
