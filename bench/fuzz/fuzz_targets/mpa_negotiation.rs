//! Connection setup of both roles against any bytes, in any cutting.
//!
//! First three bytes: role and settings, read depths, and length of the pieces.

#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use millrace_iwarp::mpa::{
    AcceptParameters, Initiator, InitiatorConfig, InitiatorStep, Negotiated, Responder,
    ResponderConfig, ResponderStep, Role, RtrKinds, StartGate,
};

fuzz_target!(|input: &[u8]| {
    let Some((&[settings, depths, piece], bytes)) = input.split_first_chunk() else {
        return;
    };
    let pieces = bytes.chunks(1 + usize::from(piece));
    if settings & 1 == 0 {
        initiate(settings, depths, pieces);
    } else {
        respond(settings, depths, pieces);
    }
});

fn kinds(settings: u8) -> RtrKinds {
    RtrKinds {
        send: settings & 0x20 != 0,
        write: settings & 0x40 != 0,
        read: settings & 0x80 != 0,
    }
}

fn initiate<'a>(settings: u8, depths: u8, pieces: impl Iterator<Item = &'a [u8]>) {
    let config = InitiatorConfig {
        exchange_depths: settings & 2 != 0,
        peer_to_peer: settings & 4 != 0,
        crc: settings & 8 != 0,
        rtr: kinds(settings),
        ird: u16::from(depths >> 4),
        ord: u16::from(depths & 15),
        ird_limit: 64,
        ..InitiatorConfig::default()
    };
    let now = Instant::now();
    let Ok(mut initiator) = Initiator::new(config.clone(), now) else {
        return;
    };
    initiator.sent(initiator.output().len());
    for piece in pieces {
        let (taken, step) = initiator.feed(piece, now);
        assert!(taken <= piece.len());
        match step {
            InitiatorStep::Pending => assert_eq!(taken, piece.len()),
            InitiatorStep::Established(negotiated) => {
                assert_eq!(negotiated.enhanced, config.asks_enhanced());
                assert_eq!(negotiated.peer_to_peer, config.peer_to_peer);
                assert!(negotiated.ird <= config.ird_limit && negotiated.ord <= config.ord);
                if let Some(kind) = negotiated.rtr_to_send {
                    assert!(config.rtr.contains(kind));
                }
                return check(&negotiated, Role::Initiator);
            }
            InitiatorStep::Rejected(_) | InitiatorStep::Failed(_) => return over(&mut initiator),
        }
    }
    assert!(!matches!(initiator.peer_closed(), InitiatorStep::Pending));
}

/// Nothing more is taken.
fn over(initiator: &mut Initiator) {
    let (taken, step) = initiator.feed(b"MPA", Instant::now());
    assert!(taken == 0 && matches!(step, InitiatorStep::Failed(_)));
    assert_eq!(initiator.deadline(), None);
}

fn respond<'a>(settings: u8, depths: u8, pieces: impl Iterator<Item = &'a [u8]>) {
    let config = ResponderConfig {
        enhanced: settings & 2 != 0,
        crc: settings & 8 != 0,
        rtr: kinds(settings),
        ird: u16::from(depths >> 4),
        ord: u16::from(depths & 15),
        required_ord: u16::from(settings & 4),
        ..ResponderConfig::default()
    };
    let now = Instant::now();
    let Ok(mut responder) = Responder::new(config.clone(), now) else {
        return;
    };
    for piece in pieces {
        match responder.feed(piece, now) {
            ResponderStep::Pending => assert!(responder.output().is_empty()),
            ResponderStep::Request(_) if settings & 16 != 0 => {
                responder.reject(b"no", Some(3)).expect("a request");
                return assert!(responder.output().starts_with(b"MPA ID Rep Frame"));
            }
            ResponderStep::Request(request) => {
                assert!(request.private_data.len() <= 512);
                let parameters = AcceptParameters {
                    ird: config.ird,
                    ord: config.ord,
                    private_data: request.private_data,
                };
                let negotiated = responder.accept(&parameters).expect("it fits");
                assert!(negotiated.ird <= config.ird && negotiated.ord <= config.ord);
                assert!(responder.output().starts_with(b"MPA ID Rep Frame"));
                return check(&negotiated, Role::Responder);
            }
            ResponderStep::Refused { peer } => {
                return assert!(peer.ird < config.required_ord);
            }
            ResponderStep::Failed(_) => {
                assert!(responder.output().is_empty());
                return assert_eq!(responder.deadline(), None);
            }
        }
    }
    assert!(!matches!(responder.peer_closed(), ResponderStep::Pending));
}

fn check(negotiated: &Negotiated, role: Role) {
    assert_eq!(negotiated.role, role);
    assert!(negotiated.revision >= 1 && negotiated.private_data.len() <= 512);
    let gate = StartGate::new(negotiated);
    assert_eq!(gate.awaits_first(), role == Role::Responder);
}
