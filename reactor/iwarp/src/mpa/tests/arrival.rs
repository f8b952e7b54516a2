//! MPA-REQ: how frames arrive: in pieces, late, wrong, or with bytes behind them.

use std::time::{Duration, Instant};

use super::super::frame::HEADER_LENGTH;
use super::*;

#[test]
fn mpa_req_13_setup_speaks_in_frames_and_outcomes_only() {
    let now = Instant::now();
    let mut initiator = Initiator::new(exchanging(4, 4), now).unwrap();
    let request = initiator.output().to_vec();
    initiator.sent(request.len());
    let (mut responder, step) = fed(ResponderConfig::default(), &request);
    request_of(step);
    assert!(responder.output().is_empty(), "no byte before the decision");
    let parameters = AcceptParameters {
        ird: 4,
        ord: 4,
        private_data: Vec::new(),
    };
    responder.accept(&parameters).unwrap();
    let reply = responder.output().to_vec();
    assert_eq!(reply.len(), HEADER_LENGTH + 4);
    responder.sent(reply.len());
    established(initiator.feed(&reply, now).1);
    assert!(initiator.output().is_empty() && responder.output().is_empty());
    assert_eq!((initiator.deadline(), responder.deadline()), (None, None));
}

#[test]
fn mpa_req_14_wrong_key_closes_at_the_first_wrong_byte() {
    let request = raw_request(0, 1, b"");
    for wrong in 0..16 {
        let mut bytes = request[..=wrong].to_vec();
        bytes[wrong] ^= 0x20;
        let (_, step) = fed(ResponderConfig::default(), &bytes);
        assert_eq!(responder_error(step), SetupError::Key);
    }
}

#[test]
fn mpa_req_14_two_initiators_or_two_responders_close() {
    let failure = failure(answered(
        InitiatorConfig::default(),
        &raw_request(0, 1, b""),
    ));
    assert_eq!(
        (failure.error, failure.disposal),
        (SetupError::Key, Disposal::Close)
    );
    let (_, step) = fed(ResponderConfig::default(), &raw_reply(0, 1, b""));
    assert_eq!(responder_error(step), SetupError::Key);
}

#[test]
fn mpa_req_14_nothing_is_taken_up_after_an_error() {
    let (mut responder, _) = fed(ResponderConfig::default(), b"GET / HTTP/1.1\r\n");
    assert_eq!(responder.state(), ResponderState::Failed);
    let step = responder.feed(&raw_request(0, 1, b""), Instant::now());
    assert_eq!(responder_error_local(step), SetupError::OutOfOrder);
    let parameters = AcceptParameters {
        ird: 1,
        ord: 1,
        private_data: Vec::new(),
    };
    assert_eq!(
        responder.accept(&parameters).map(drop),
        Err(DecisionError::NoRequest)
    );
    assert_eq!(responder.reject(b"", None), Err(DecisionError::NoRequest));
    assert!(responder.output().is_empty());
}

fn responder_error_local(step: ResponderStep) -> SetupError {
    match step {
        ResponderStep::Failed(failure) => failure.error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mpa_req_15_trickling_request_runs_out_of_time() {
    let start = Instant::now();
    let mut responder = Responder::new(ResponderConfig::default(), start).unwrap();
    let deadline = start + Duration::from_secs(5);
    let request = raw_request(0, 1, b"");
    for (second, byte) in (0..5u64).zip(&request) {
        let now = start + Duration::from_secs(second);
        assert_eq!(responder.feed(&[*byte], now), ResponderStep::Pending);
        assert_eq!(responder.deadline(), Some(deadline));
        assert_eq!(responder.expire(now), ResponderStep::Pending);
    }
    let step = responder.expire(deadline);
    assert_eq!(responder_error(step), SetupError::TimedOut(Wait::Request));
    assert_eq!(responder.deadline(), None);
}

#[test]
fn mpa_req_15_bytes_after_the_deadline_do_not_help() {
    let start = Instant::now();
    let mut responder = Responder::new(ResponderConfig::default(), start).unwrap();
    let step = responder.feed(&raw_request(0, 1, b""), start + Duration::from_secs(5));
    assert_eq!(responder_error(step), SetupError::TimedOut(Wait::Request));

    let mut initiator = waiting(InitiatorConfig::default(), start);
    let (_, step) = initiator.feed(&raw_reply(0, 1, b""), start + Duration::from_secs(10));
    assert_eq!(failure(step).error, SetupError::TimedOut(Wait::Reply));
}

#[test]
fn mpa_req_15_trickling_reply_runs_out_of_time() {
    let start = Instant::now();
    let mut initiator = waiting(InitiatorConfig::default(), start);
    let deadline = start + Duration::from_secs(10);
    for (second, byte) in (0..10u64).zip(raw_reply(0, 1, b"")) {
        let now = start + Duration::from_secs(second);
        assert_eq!(initiator.feed(&[byte], now), (1, InitiatorStep::Pending));
        assert_eq!(initiator.deadline(), Some(deadline));
        assert_eq!(initiator.expire(now), InitiatorStep::Pending);
    }
    let failure = failure(initiator.expire(deadline));
    assert_eq!(failure.error, SetupError::TimedOut(Wait::Reply));
    assert_eq!(failure.disposal, Disposal::Close);
    assert_eq!(initiator.deadline(), None);
}

#[test]
fn mpa_req_15_decision_has_a_deadline_of_its_own() {
    let start = Instant::now();
    let mut responder = Responder::new(ResponderConfig::default(), start).unwrap();
    let came = start + Duration::from_secs(4);
    request_of(responder.feed(&raw_request(0, 1, b""), came));
    assert_eq!(responder.deadline(), Some(came + Duration::from_secs(5)));
    assert_eq!(
        responder.expire(start + Duration::from_secs(8)),
        ResponderStep::Pending
    );
    let step = responder.expire(start + Duration::from_secs(9));
    assert_eq!(responder_error(step), SetupError::TimedOut(Wait::Decision));
}

#[test]
fn mpa_req_16_frames_may_be_split_at_each_byte() {
    let now = Instant::now();
    let request = raw_request(0x50, 2, b"\x00\x04\x00\x04private");
    let reply = raw_reply(0x50, 2, b"\x00\x04\x00\x04private");
    for split in 0..=request.len() {
        let (first, second) = request.split_at(split);
        let mut responder = Responder::new(ResponderConfig::default(), now).unwrap();
        let mut steps = vec![responder.feed(first, now)];
        if !second.is_empty() {
            assert_eq!(steps, [ResponderStep::Pending]);
            steps = vec![responder.feed(second, now)];
        }
        assert_eq!(request_of(steps.remove(0)).private_data, b"private");

        let (first, second) = reply.split_at(split);
        let mut initiator = waiting(exchanging(4, 4), now);
        let (mut taken, mut step) = initiator.feed(first, now);
        assert_eq!(taken, first.len());
        if !second.is_empty() {
            assert_eq!(step, InitiatorStep::Pending);
            (taken, step) = initiator.feed(second, now);
            assert_eq!(taken, second.len());
        }
        assert_eq!(established(step).private_data, b"private");
    }
}

#[test]
fn mpa_req_16_bytes_behind_the_reply_stay_with_the_caller() {
    let now = Instant::now();
    let reply = enhanced_reply(client_server(4, 4));
    for split in 0..reply.len() {
        let mut initiator = waiting(exchanging(4, 4), now);
        let mut bytes = reply.clone();
        bytes.extend_from_slice(b"start of FPDU mode");
        assert_eq!(
            initiator.feed(&bytes[..split], now),
            (split, InitiatorStep::Pending)
        );
        let (taken, step) = initiator.feed(&bytes[split..], now);
        established(step);
        assert_eq!(&bytes[split + taken..], b"start of FPDU mode");
    }
}

#[test]
fn mpa_req_16_bytes_behind_the_request_end_the_connection() {
    let mut together = raw_request(0, 1, b"abc");
    together.push(0);
    let (responder, step) = fed(ResponderConfig::default(), &together);
    assert_eq!(responder_error(step), SetupError::BytesBehindRequest);
    assert!(responder.output().is_empty());

    let (mut responder, step) = fed(ResponderConfig::default(), &raw_request(0, 1, b"abc"));
    request_of(step);
    let step = responder.feed(&[0], Instant::now());
    assert_eq!(responder_error(step), SetupError::BytesBehindRequest);
    let parameters = AcceptParameters {
        ird: 1,
        ord: 1,
        private_data: Vec::new(),
    };
    assert_eq!(
        responder.accept(&parameters).map(drop),
        Err(DecisionError::NoRequest)
    );
}

#[test]
fn mpa_req_16_a_reply_cannot_come_before_the_request_is_out() {
    let now = Instant::now();
    let mut initiator = Initiator::new(InitiatorConfig::default(), now).unwrap();
    initiator.sent(19);
    assert_eq!(initiator.output(), [0]);
    let (taken, step) = initiator.feed(&raw_reply(0, 1, b""), now);
    assert_eq!(
        (taken, failure(step).error),
        (0, SetupError::PrematureReply)
    );
}
