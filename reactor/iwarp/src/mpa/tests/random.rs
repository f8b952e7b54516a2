//! Random settings, cuttings and bytes.

use std::time::Instant;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

fn kinds() -> impl Strategy<Value = RtrKinds> {
    any::<[bool; 3]>().prop_map(|[send, write, read]| RtrKinds { send, write, read })
}

fn depth() -> impl Strategy<Value = u16> {
    prop_oneof![0..20u16, 0x3ffd..0x4002u16, any::<u16>()]
}

fn initiator_config() -> impl Strategy<Value = InitiatorConfig> {
    let flags = any::<[bool; 3]>();
    let bytes = prop::collection::vec(any::<u8>(), 0..509);
    (flags, kinds(), depth(), depth(), depth(), bytes).prop_map(
        |([exchange_depths, peer_to_peer, crc], rtr, ird, more, ord, private_data)| {
            InitiatorConfig {
                exchange_depths,
                peer_to_peer,
                rtr: if rtr.is_empty() { RtrKinds::ALL } else { rtr },
                crc,
                ird,
                ird_limit: ird.saturating_add(more),
                ord,
                private_data,
                ..InitiatorConfig::default()
            }
        },
    )
}

fn responder_config() -> impl Strategy<Value = ResponderConfig> {
    let required = prop_oneof![4 => Just(0), 1 => depth()];
    (any::<bool>(), kinds(), depth(), depth(), required)
        .prop_map(|(crc, rtr, ird, ord, required_ord)| ResponderConfig {
            rtr,
            crc,
            ird,
            ord,
            required_ord,
            ..ResponderConfig::default()
        })
        .prop_filter("settings that hold", |config| config.validate().is_ok())
}

/// Cuts bytes in pieces at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    places.push(bytes.len());
    let mut start = 0;
    places
        .into_iter()
        .map(|end| {
            let piece = &bytes[start..end];
            start = end;
            piece
        })
        .collect()
}

/// Feeds an initiator piece by piece; returns its last word and the bytes that were not its.
fn feed_initiator(initiator: &mut Initiator, parts: &[&[u8]]) -> (InitiatorStep, Vec<u8>) {
    let now = Instant::now();
    let mut last = InitiatorStep::Pending;
    let mut rest = Vec::new();
    for part in parts {
        if last == InitiatorStep::Pending {
            let (taken, step) = initiator.feed(part, now);
            rest.extend_from_slice(&part[taken..]);
            last = step;
        } else {
            rest.extend_from_slice(part);
        }
    }
    (last, rest)
}

fn feed_responder(responder: &mut Responder, parts: &[&[u8]]) -> ResponderStep {
    let now = Instant::now();
    let mut last = ResponderStep::Pending;
    for part in parts {
        if last == ResponderStep::Pending {
            last = responder.feed(part, now);
        }
    }
    last
}

/// What must hold between two sides that both believe to be connected.
fn check_pair(here: &Negotiated, there: &Negotiated, asked: &InitiatorConfig) {
    assert_eq!((here.role, there.role), (Role::Initiator, Role::Responder));
    assert_eq!(here.enhanced, there.enhanced);
    assert_eq!(here.enhanced, asked.asks_enhanced());
    assert_eq!(here.crc, there.crc);
    assert_eq!(here.peer_to_peer, there.peer_to_peer);
    assert_eq!(here.peer_to_peer, asked.peer_to_peer);
    assert_eq!(here.rtr_to_send.is_some(), here.peer_to_peer);
    assert!(!here.send_markers && !there.send_markers);
    assert!(here.ird <= asked.ird_limit && here.ord <= asked.ord);
    if let Some(kind) = here.rtr_to_send {
        assert!(asked.rtr.contains(kind) && there.rtr_expected.contains(kind));
        assert!(kind != RtrKind::Read || there.ird >= 1);
    }
    if asked.exchange_depths {
        assert!(
            here.ord <= there.ird,
            "never more reads open than are served"
        );
        assert!(
            there.ord <= here.ird,
            "never more reads open than are served"
        );
        assert!(there.ord <= there.peer_ird().unwrap());
        assert_eq!(here.peer_ird(), Some(there.ird));
        assert_eq!(here.peer_ord(), Some(there.ord));
    } else {
        assert_eq!((here.ird, here.ord), (asked.ird, asked.ord));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mpa_ird_16_any_two_sides_agree_or_part_in_order(
        asked in initiator_config(),
        offered in responder_config(),
        request_cuts in prop::collection::vec(any::<Index>(), 0..6),
        reply_cuts in prop::collection::vec(any::<Index>(), 0..6),
        answer in prop::collection::vec(any::<u8>(), 0..509),
        behind in prop::collection::vec(any::<u8>(), 0..40),
        rejects in prop::bool::weighted(0.2),
    ) {
        let now = Instant::now();
        let mut initiator = Initiator::new(asked.clone(), now).unwrap();
        let request = initiator.output().to_vec();
        initiator.sent(request.len());
        let mut responder = Responder::new(offered.clone(), now).unwrap();
        let step = feed_responder(&mut responder, &pieces(&request, &request_cuts));
        let mut there = None;
        match step {
            ResponderStep::Request(shown) => {
                prop_assert_eq!(&shown.private_data, &asked.private_data);
                if rejects {
                    responder.reject(&answer, Some(offered.ord)).unwrap();
                } else {
                    let parameters = AcceptParameters {
                        ird: offered.ird,
                        ord: offered.ord,
                        private_data: answer.clone(),
                    };
                    let negotiated = responder.accept(&parameters).unwrap();
                    prop_assert_eq!((shown.ird, shown.ord), (negotiated.ird, negotiated.ord));
                    there = Some(negotiated);
                }
            }
            ResponderStep::Refused { peer } => {
                prop_assert!(asked.exchange_depths && peer.ird < offered.required_ord);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        let mut reply = responder.output().to_vec();
        reply.extend_from_slice(&behind);
        let (step, rest) = feed_initiator(&mut initiator, &pieces(&reply, &reply_cuts));
        prop_assert_eq!(rest, behind);
        match (step, there) {
            (InitiatorStep::Established(here), Some(there)) => {
                check_pair(&here, &there, &asked);
                prop_assert_eq!(here.private_data, answer);
            }
            (InitiatorStep::Rejected(rejection), None) => {
                prop_assert_eq!(rejection.peer.is_some(), asked.asks_enhanced());
            }
            (InitiatorStep::Failed(failure), Some(there)) => {
                let common = asked.rtr.common(there.rtr_expected);
                prop_assert_eq!(failure.error, SetupError::NoMatchingRtr);
                prop_assert!(asked.peer_to_peer && common.is_empty());
            }
            (step, there) => prop_assert!(false, "{:?} against {:?}", step, there),
        }
    }

    #[test]
    fn mpa_req_16_cutting_changes_nothing(
        flags in any::<u8>(),
        revision in 0..4u8,
        private in prop::collection::vec(any::<u8>(), 0..513),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let request = raw_request(flags, revision, &private);
        let (_, whole) = fed(ResponderConfig::default(), &request);
        let mut responder = Responder::new(ResponderConfig::default(), Instant::now()).unwrap();
        let cut = feed_responder(&mut responder, &pieces(&request, &cuts));
        prop_assert_eq!(whole, cut);

        let reply = raw_reply(flags, revision, &private);
        let whole = answered(exchanging(8, 8), &reply);
        let mut initiator = waiting(exchanging(8, 8), Instant::now());
        let (cut, _) = feed_initiator(&mut initiator, &pieces(&reply, &cuts));
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn mpa_req_16_random_bytes_end_in_an_error_or_wait(
        noise in prop::collection::vec(any::<u8>(), 0..700),
        good in 0..21usize,
        cuts in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        for mut bytes in [raw_request(0x10, 2, b""), raw_reply(0x10, 2, b"")] {
            bytes.truncate(good);
            bytes.extend_from_slice(&noise);
            let parts = pieces(&bytes, &cuts);
            let mut responder =
                Responder::new(ResponderConfig::default(), Instant::now()).unwrap();
            let step = feed_responder(&mut responder, &parts);
            if let ResponderStep::Request(request) = &step {
                prop_assert!(request.private_data.len() <= 512);
            }
            if matches!(step, ResponderStep::Failed(_)) {
                prop_assert!(responder.output().is_empty());
            }
            for config in [exchanging(8, 8), InitiatorConfig::default()] {
                let mut initiator = waiting(config, Instant::now());
                let (step, rest) = feed_initiator(&mut initiator, &parts);
                prop_assert!(rest.len() <= bytes.len());
                let pending = initiator.state() == InitiatorState::Waiting;
                prop_assert_eq!(step == InitiatorStep::Pending, pending);
            }
        }
    }
}
