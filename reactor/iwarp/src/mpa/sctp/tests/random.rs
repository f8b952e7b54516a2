//! Random settings, orders of arrival and bytes.

use proptest::prelude::*;

use super::*;

fn kinds() -> impl Strategy<Value = RtrKinds> {
    (1..8u8).prop_map(|bits| RtrKinds {
        send: bits & 4 != 0,
        write: bits & 2 != 0,
        read: bits & 1 != 0,
    })
}

fn depth() -> impl Strategy<Value = u16> {
    prop_oneof![0..20u16, 0x3ffd..0x4002u16, any::<u16>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mpa_sctp_10_any_two_sides_agree_or_part_in_order(
        [exchange_depths, peer_to_peer] in any::<[bool; 2]>(),
        (own, theirs) in (kinds(), kinds()),
        (ird, more, ord) in (depth(), depth(), depth()),
        (their_ird, their_ord, required_ord) in (1..u16::MAX, depth(), prop_oneof![Just(0), depth()]),
        private_data in prop::collection::vec(any::<u8>(), 0..509),
    ) {
        let now = Instant::now();
        let asks = InitiatorConfig {
            exchange_depths,
            peer_to_peer,
            rtr: own,
            ird,
            ird_limit: ird.saturating_add(more),
            ord,
            private_data: private_data.clone(),
            ..InitiatorConfig::default()
        };
        let offers = ResponderConfig {
            rtr: theirs,
            required_ord,
            ..responding(their_ird, their_ord)
        };
        let mut here = Session::initiate(asks.clone(), now).unwrap();
        let mut there = Session::listen(offers.clone(), now).unwrap();
        let initiate = here.output().unwrap();
        there.receive(initiate.identifier, &initiate.bytes, now);
        match there.event() {
            Some(SessionEvent::Request(request)) => {
                prop_assert_eq!(&request.private_data, &private_data);
                let at_passive = there.accept(&accepting(&offers)).unwrap();
                prop_assert_eq!((request.ird, request.ord), (at_passive.ird, at_passive.ord));
                let accept = there.output().unwrap();
                here.receive(accept.identifier, &accept.bytes, now);
                match here.event() {
                    Some(SessionEvent::Established(at_active)) => {
                        prop_assert_eq!(at_active.enhanced, at_passive.enhanced);
                        prop_assert_eq!(at_active.peer_to_peer, at_passive.peer_to_peer);
                        prop_assert!(at_active.ird <= asks.ird_limit && at_active.ord <= asks.ord);
                        if exchange_depths {
                            prop_assert!(at_active.ord <= at_passive.ird);
                            prop_assert!(at_passive.ord <= at_active.ird);
                        }
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            Some(SessionEvent::Ended(SessionEnd::RejectedHere { peer })) => {
                let unmatched = peer_to_peer && own.common(theirs).is_empty();
                prop_assert!(unmatched || (exchange_depths && peer.ird < required_ord));
                let reject = there.output().unwrap();
                here.receive(reject.identifier, &reject.bytes, now);
                prop_assert!(matches!(here.event(), Some(SessionEvent::Rejected(_))));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn mpa_sctp_08_the_order_of_arrival_changes_nothing(
        order in Just((0..24u16).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut session = active(exchanging(4, 4));
        for number in order {
            if number == 0 {
                let data = Some(client_server(4, 4));
                give(&mut session, &message(0, Function::EnhancedAccept, data));
            } else if number == 23 {
                give(&mut session, &message(23, Function::Terminate, None));
            } else {
                let [high, low] = number.to_be_bytes();
                let bytes = [high, low, low];
                session.receive(SEGMENT_IDENTIFIER, &bytes, Instant::now());
            }
        }
        let events = events(&mut session);
        prop_assert_eq!(events.len(), 24);
        prop_assert!(matches!(events[0], SessionEvent::Established(_)));
        for number in 1..23u8 {
            let segment = SessionEvent::Segment(vec![number]);
            prop_assert_eq!(&events[usize::from(number)], &segment);
        }
        prop_assert_eq!(&events[23], &SessionEvent::Ended(SessionEnd::Terminated));
    }

    #[test]
    fn mpa_sctp_04_whatever_decodes_encodes_again(
        bytes in prop::collection::vec(any::<u8>(), 0..530),
        code in 0..10u8,
    ) {
        let mut bytes = bytes;
        if bytes.len() > 3 {
            bytes[2..4].copy_from_slice(&[0, code]);
        }
        if let Ok(message) = ControlMessage::decode(&bytes) {
            let again = control(&message);
            prop_assert_eq!(ControlMessage::decode(&again), Ok(message));
            prop_assert_eq!(again.len(), bytes.len());
        }
    }

    #[test]
    fn mpa_sctp_08_random_chunks_end_a_session_once_or_not_at_all(
        chunks in prop::collection::vec(
            (15..19u32, 0..6u16, 0..9u16, prop::collection::vec(any::<u8>(), 0..12)),
            0..20,
        ),
    ) {
        for mut session in [
            active(exchanging(4, 4)),
            active(InitiatorConfig::default()),
            Session::listen(responding(4, 4), Instant::now()).unwrap(),
        ] {
            let mut ends = 0;
            for (identifier, sequence, code, rest) in &chunks {
                let mut bytes = sequence.to_be_bytes().to_vec();
                bytes.extend_from_slice(&code.to_be_bytes());
                bytes.extend_from_slice(rest);
                session.receive(*identifier, &bytes, Instant::now());
                for event in events(&mut session) {
                    prop_assert_eq!(ends, 0, "nothing comes behind the end");
                    if matches!(event, SessionEvent::Ended(_) | SessionEvent::Rejected(_)) {
                        ends += 1;
                    }
                }
                prop_assert_eq!(ends > 0, session.state() == SessionState::Ended);
            }
        }
    }
}
