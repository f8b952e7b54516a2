//! Sessions of both roles against any chunks, in any order of arrival.
//!
//! First two bytes: role and settings, read depths. Then chunks: one byte for the payload protocol
//! identifier and whether the application decides first, one for the length, and the payload.

#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use millrace_iwarp::mpa::sctp::{
    CONTROL_IDENTIFIER, ControlMessage, RejectCause, SEGMENT_IDENTIFIER, Session, SessionEvent,
    SessionState,
};
use millrace_iwarp::mpa::{AcceptParameters, InitiatorConfig, ResponderConfig, RtrKinds};

fuzz_target!(|input: &[u8]| {
    let Some((&[settings, depths], chunks)) = input.split_first_chunk() else {
        return;
    };
    let (ird, ord) = (u16::from(depths >> 4), u16::from(depths & 15));
    let now = Instant::now();
    let session = if settings & 1 == 0 {
        let config = InitiatorConfig {
            exchange_depths: settings & 2 != 0,
            peer_to_peer: settings & 4 != 0,
            rtr: kinds(settings),
            ird,
            ord,
            ird_limit: 64,
            ..InitiatorConfig::default()
        };
        Session::initiate(config, now)
    } else {
        let config = ResponderConfig {
            enhanced: settings & 2 != 0,
            rtr: kinds(settings),
            ird,
            ord,
            required_ord: u16::from(settings & 4),
            ..ResponderConfig::default()
        };
        Session::listen(config, now)
    };
    if let Ok(session) = session {
        drive(session, settings, (ird, ord), chunks);
    }
});

fn kinds(settings: u8) -> RtrKinds {
    RtrKinds {
        send: settings & 0x20 != 0,
        write: settings & 0x40 != 0,
        read: settings & 0x80 != 0,
    }
}

fn drive(mut session: Session, settings: u8, (ird, ord): (u16, u16), mut chunks: &[u8]) {
    let now = Instant::now();
    let mut over = false;
    while let Some((&[head, length], rest)) = chunks.split_first_chunk() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(length)));
        chunks = rest;
        session.receive(15 + u32::from(head & 3), payload, now);
        while let Some(event) = session.event() {
            assert!(!over, "nothing comes behind the end");
            match event {
                SessionEvent::Established(terms) => assert!(terms.ird <= 64 && terms.ord <= ord),
                SessionEvent::Ended(_) | SessionEvent::Rejected(_) => over = true,
                SessionEvent::Request(_) | SessionEvent::Segment(_) => {}
            }
        }
        if session.state() == SessionState::Deciding && head & 4 != 0 {
            over = decide(&mut session, settings, ird, ord);
        }
        if head & 8 != 0 && session.terminate().is_ok() {
            over = true;
        }
        assert_eq!(over, session.state() == SessionState::Ended);
        session.confirmed();
        while let Some(chunk) = session.output() {
            match chunk.identifier {
                CONTROL_IDENTIFIER => drop(ControlMessage::decode(&chunk.bytes).expect("sound")),
                other => assert_eq!(other, SEGMENT_IDENTIFIER),
            }
            session.confirmed();
        }
    }
    session.lost();
    assert_eq!(session.deadline(), None);
}

/// The application's decision; returns whether the session is over by it.
fn decide(session: &mut Session, settings: u8, ird: u16, ord: u16) -> bool {
    if settings & 16 != 0 {
        let rejected = session.reject(b"no", RejectCause::Enhancements);
        rejected.expect("a request");
        return true;
    }
    let parameters = AcceptParameters {
        ird,
        ord,
        private_data: b"yes".to_vec(),
    };
    let terms = session.accept(&parameters).expect("a request");
    assert!(terms.ird <= ird && terms.ord <= ord);
    session.send(b"first").expect("established");
    false
}
