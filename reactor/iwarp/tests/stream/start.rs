//! Who speaks first, ready-to-receive indications, and the outbound read depth.

use millrace_iwarp::mpa::{Role, RtrKind};
use millrace_iwarp::{Operation, Request};

use crate::support::{completions, end, negotiated, peer_to_peer, raw, send_all, shared};

#[test]
fn mpa_rtr_12_mpa_rtr_13_a_responder_is_silent_until_spoken_to() {
    let first = raw::fpdu(&raw::send(1, b"hello"), false);
    // In two pieces, and in one.
    for cut in [first.len() - 1, 0] {
        let mut responder = end(&negotiated(Role::Responder), 65_000);
        responder.post_receive(vec![0; 100]).unwrap();
        for token in 0..3 {
            let operation = Operation::Send {
                invalidate: None,
                solicited: false,
            };
            let local = shared(vec![token as u8; 10]);
            responder
                .post(Request {
                    token,
                    operation,
                    local,
                    signalled: true,
                })
                .unwrap();
        }
        assert!(!responder.wants_staging() && send_all(&mut responder).is_empty());
        responder.receive(&first[..cut]).unwrap();
        assert!(send_all(&mut responder).is_empty());
        responder.receive(&first[cut..]).unwrap();
        let sent = raw::ulpdus(&send_all(&mut responder));
        assert_eq!(
            sent.iter().map(|ulpdu| ulpdu[18]).collect::<Vec<_>>(),
            [0, 1, 2]
        );
    }
}

#[test]
fn mpa_rtr_14_mpa_rtr_16_mpa_rtr_17_indications_cost_nothing_and_may_name_anything() {
    let indications = [
        (RtrKind::Send, raw::send(1, &[])),
        (RtrKind::Write, raw::write(0xdead_beef, u64::MAX, &[])),
        (
            RtrKind::Read,
            raw::read(1, (5, 6), 0, (0xdead_beef, u64::MAX)),
        ),
    ];
    for (kind, indication) in indications {
        let mut responder = end(&peer_to_peer(Role::Responder, kind), 65_000);
        assert_eq!(responder.receive(&raw::fpdu(&indication, false)), Ok(()));
        assert!(!responder.has_news());
        let answers = raw::ulpdus(&send_all(&mut responder));
        if kind == RtrKind::Read {
            assert_eq!(answers, [raw::response(5, 6, &[])]);
        } else {
            assert!(answers.is_empty());
        }
        // The next Send follows in the sequence and fills the first receive.
        responder.post_receive(vec![0; 100]).unwrap();
        let sequence = if kind == RtrKind::Send { 2 } else { 1 };
        let send = raw::fpdu(&raw::send(sequence, b"first"), false);
        assert_eq!(responder.receive(&send), Ok(()));
        assert_eq!(responder.take_delivery().unwrap().length, 5);
        assert_eq!(responder.counters().indications_unexpected, 0);
    }
}

#[test]
fn mpa_rtr_18_another_kind_of_first_message_is_accepted_and_counted() {
    let mut responder = end(&peer_to_peer(Role::Responder, RtrKind::Read), 65_000);
    assert_eq!(
        responder.receive(&raw::fpdu(&raw::send(1, &[]), false)),
        Ok(())
    );
    assert!(!responder.has_news());
    assert_eq!(responder.counters().indications_unexpected, 1);
}

#[test]
fn mpa_rtr_09_mpa_rtr_15_the_indication_leaves_first_and_takes_no_place() {
    for kind in [RtrKind::Send, RtrKind::Write, RtrKind::Read] {
        let mut initiator = end(&peer_to_peer(Role::Initiator, kind), 65_000);
        for token in 0..64 {
            let operation = Operation::Send {
                invalidate: None,
                solicited: false,
            };
            let local = shared(vec![1; 4]);
            initiator
                .post(Request {
                    token,
                    operation,
                    local,
                    signalled: true,
                })
                .unwrap();
        }
        assert!(!initiator.is_indication_sent());
        let sent = raw::ulpdus(&send_all(&mut initiator));
        assert!(initiator.is_indication_sent());
        assert_eq!(sent.len(), 65);
        let first = &sent[0];
        match kind {
            RtrKind::Send => assert_eq!((first[1], first.len()), (0x43, 18)),
            RtrKind::Write => assert_eq!((first[1], first.len()), (0x40, 14)),
            RtrKind::Read => assert_eq!((first[1], first.len()), (0x41, 46)),
        }
        assert_eq!(completions(&mut initiator).len(), 64);
    }
}

#[test]
fn mpa_ird_13_never_more_reads_open_than_agreed() {
    let mut initiator = end(&negotiated(Role::Initiator), 65_000);
    for token in 0..10 {
        let operation = Operation::Read {
            key: 1,
            offset: 0,
            sink: 100 + token as u32,
        };
        let local = shared(vec![0; 8]);
        initiator
            .post(Request {
                token,
                operation,
                local,
                signalled: true,
            })
            .unwrap();
    }
    assert_eq!(raw::ulpdus(&send_all(&mut initiator)).len(), 4);
    for answered in 0..10 {
        let response = raw::response(100 + answered, 0, &[answered as u8; 8]);
        initiator.receive(&raw::fpdu(&response, false)).unwrap();
        let more = usize::from(answered < 6);
        assert_eq!(raw::ulpdus(&send_all(&mut initiator)).len(), more);
        assert_eq!(completions(&mut initiator)[0].token, u64::from(answered));
    }
}
