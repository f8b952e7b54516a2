//! Sessions as their home makes and ends them (RFC 8881 sections 18.36 and 18.37).

use super::*;

const FINGERPRINT: RequestFingerprint = RequestFingerprint {
    caller: 1,
    checksum: 2,
};

#[test]
fn v4_sess_21_an_unknown_client_id_is_stale() {
    let mut bed = TestBed::new();
    let unknown = ClientId(12345);
    assert_eq!(bed.create(unknown, 1), Err(StateError::StaleClientid));
}

#[test]
fn v4_sess_22_a_retry_gets_what_the_original_got() {
    let mut bed = TestBed::new();
    let exchanged = bed.exchange(b"a", 1).unwrap();
    let id = exchanged.client_id;
    let grant = bed.create(id, 1).unwrap();
    assert_eq!(bed.create(id, 1), Ok(grant));
    assert_eq!(bed.home.free_sessions.len(), 5, "one session");
    let fault = StateError::Inval;
    let request = SessionRequest {
        fault: Some(&fault),
        ..session_request(id, 2)
    };
    let refused = bed.home.create_session(&request, bed.now);
    assert_eq!(refused, Err(StateError::Inval));
    let again = bed.home.create_session(&request, bed.now);
    assert_eq!(again, Err(StateError::Inval), "also an error");
    let next = bed.create(id, 3).unwrap();
    assert_ne!(next.session, grant.session);
}

#[test]
fn v4_sess_22_and_34_a_number_whose_request_failed_may_be_used_again() {
    let mut bed = TestBed::new();
    let id = bed.exchange(b"a", 1).unwrap().client_id;
    let back = ChannelLimits {
        operations: 1,
        ..session_request(id, 1).back
    };
    for _ in 0..100 {
        let request = SessionRequest {
            back,
            ..session_request(id, 1)
        };
        let refused = bed.home.create_session(&request, bed.now);
        assert_eq!(refused, Err(StateError::TooSmall));
    }
    assert_eq!(bed.create(id, 3), Err(StateError::SeqMisordered));
    let made = bed.create(id, 1).unwrap();
    assert_eq!(bed.create(id, 1), Ok(made));
    assert_eq!(bed.create(id, 0), Err(StateError::SeqMisordered));
}

#[test]
fn v4_sess_23_before_the_first_success_the_kept_result_is_misordered() {
    let mut bed = TestBed::new();
    let id = bed.exchange(b"a", 1).unwrap().client_id;
    for sequence in [0, 2, u32::MAX] {
        assert_eq!(bed.create(id, sequence), Err(StateError::SeqMisordered));
    }
    assert!(bed.create(id, 1).is_ok());
}

#[test]
fn v4_sess_24_sequence_numbers_follow_each_other_across_the_wrap() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    for sequence in [0, 3, 1 << 31, u32::MAX] {
        assert_eq!(
            bed.create(client.id, sequence),
            Err(StateError::SeqMisordered)
        );
    }
    let index = bed.home.clients.find(client.id).unwrap();
    bed.home.clients.get_mut(index).unwrap().sequence = u32::MAX;
    assert_eq!(bed.create(client.id, 1), Err(StateError::SeqMisordered));
    let grant = bed.create(client.id, 0).unwrap();
    assert_eq!(grant.sequence, 0);
    assert_eq!(bed.create(client.id, 0), Ok(grant));
}

#[test]
fn v4_sess_25_only_the_same_principal_confirms_a_client() {
    let mut bed = TestBed::new();
    let id = bed.exchange(b"a", 1).unwrap().client_id;
    let by_other = |sequence| SessionRequest {
        principal: b"x",
        ..session_request(id, sequence)
    };
    let refused = bed.home.create_session(&by_other(1), bed.now);
    assert_eq!(refused, Err(StateError::ClidInuse));
    assert!(bed.create(id, 1).is_ok(), "nothing changed");
    let later = bed.home.create_session(&by_other(2), bed.now);
    assert!(later.is_ok(), "the client is confirmed");
}

#[test]
fn v4_sess_26_a_failed_creation_leaves_both_records() {
    let mut bed = TestBed::new();
    let old = bed.client(b"a");
    let open = bed.open_both(&old, b"o", file(1));
    let new = bed.exchange(b"a", 2).unwrap();
    let too_small = SessionRequest {
        fore: ChannelLimits {
            request_size: 20,
            ..LINUX
        },
        ..session_request(new.client_id, 1)
    };
    let refused = bed.home.create_session(&too_small, bed.now);
    assert_eq!(refused, Err(StateError::TooSmall));
    assert!(bed.find(old.session.id()).is_ok());
    assert!(bed.io(&old, file(1), open, IoKind::Read).is_ok());
    assert!(!bed.exchange(b"a", 3).unwrap().confirmed);
    assert!(bed.exchange(b"a", 1).unwrap().confirmed);
}

#[test]
fn v4_sess_26_no_room_for_a_session_leaves_both_records() {
    let mut bed = TestBed::new();
    let old = bed.confirmed(b"a");
    let now = bed.now;
    let session = old.session.id();
    bed.home.destroy_session(session, None, now).unwrap();
    for owner in [b"b", b"c"] {
        let client = bed.confirmed(owner);
        bed.create(client.id, 2).unwrap();
        bed.create(client.id, 3).unwrap();
    }
    let new = bed.exchange(b"a", 2).unwrap();
    assert_eq!(bed.create(new.client_id, 1), Err(StateError::NoSpc));
    assert!(bed.exchange(b"a", 1).unwrap().confirmed);
}

#[test]
fn v4_sess_20_a_replaced_client_makes_room_for_the_session_that_replaces_it() {
    let mut bed = TestBed::new();
    for owner in [b"a", b"b"] {
        let client = bed.confirmed(owner);
        bed.create(client.id, 2).unwrap();
        bed.create(client.id, 3).unwrap();
    }
    let new = bed.exchange(b"a", 2).unwrap();
    assert!(bed.create(new.client_id, 1).is_ok());
    assert_eq!(bed.home.free_sessions.len(), 2);
}

#[test]
fn v4_sess_30_limits_only_fall() {
    let mut bed = TestBed::new();
    let id = bed.confirmed(b"a").id;
    let huge = ChannelLimits {
        request_size: u32::MAX,
        response_size: u32::MAX,
        cached_size: u32::MAX,
        operations: u32::MAX,
        requests: u32::MAX,
    };
    let request = SessionRequest {
        fore: huge,
        back: huge,
        ..session_request(id, 2)
    };
    let grant = bed.home.create_session(&request, bed.now).unwrap();
    assert_eq!(grant.fore, bed.home.config.fore_most);
    assert_eq!(grant.back, huge);
    let small = ChannelLimits {
        request_size: 1000,
        response_size: 999,
        cached_size: 0,
        operations: 3,
        requests: 1,
    };
    let request = SessionRequest {
        fore: small,
        ..session_request(id, 3)
    };
    let grant = bed.home.create_session(&request, bed.now).unwrap();
    assert_eq!(grant.fore, small);
}

#[test]
fn v4_sess_31_what_linux_asks_for_passes_unclamped() {
    let mut bed = TestBed::new();
    let id = bed.exchange(b"a", 1).unwrap().client_id;
    let grant = bed.create(id, 1).unwrap();
    assert_eq!((grant.fore, grant.back), (LINUX, LINUX_BACK));
    let session = bed.find(grant.session).unwrap();
    assert_eq!(
        session.highest_slots(),
        HighestSlots {
            target: 63,
            enforced: 63
        }
    );
}

#[test]
fn v4_sess_33_limits_that_nothing_fits_in_are_too_small() {
    let mut bed = TestBed::new();
    let id = bed.confirmed(b"a").id;
    let least = bed.home.config.fore_least;
    let faulty = [
        ChannelLimits {
            request_size: least.request_size - 1,
            ..LINUX
        },
        ChannelLimits {
            response_size: least.response_size - 1,
            ..LINUX
        },
        ChannelLimits {
            operations: 0,
            ..LINUX
        },
        ChannelLimits {
            requests: 0,
            ..LINUX
        },
    ];
    for (sequence, fore) in (2..).zip(faulty) {
        let request = SessionRequest {
            fore,
            ..session_request(id, sequence)
        };
        let refused = bed.home.create_session(&request, bed.now);
        assert_eq!(refused, Err(StateError::TooSmall), "{fore:?}");
    }
    assert_eq!(bed.home.free_sessions.len(), 5, "nothing made");
    let request = SessionRequest {
        fore: least,
        ..session_request(id, 6)
    };
    assert!(bed.home.create_session(&request, bed.now).is_ok());
}

#[test]
fn v4_sess_34_a_backchannel_needs_two_operations() {
    let mut bed = TestBed::new();
    let id = bed.confirmed(b"a").id;
    let back = ChannelLimits {
        operations: 1,
        ..LINUX_BACK
    };
    let request = SessionRequest {
        back,
        ..session_request(id, 2)
    };
    let refused = bed.home.create_session(&request, bed.now);
    assert_eq!(refused, Err(StateError::TooSmall));
}

#[test]
fn v4_sess_40_an_unknown_session_is_bad() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let id = client.session.id();
    assert!(bed.find(id).is_ok());
    for byte in 0..16 {
        let mut other = id;
        other.0[byte] ^= 1;
        let found = bed.find(other);
        assert_eq!(found.err(), Some(StateError::BadSession), "byte {byte}");
    }
    assert!(bed.find(SessionId([0xff; 16])).is_err());
}

#[test]
fn v4_sess_42_a_slot_beyond_the_table_is_bad() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    assert!(client.session.begin(63, 1, FINGERPRINT).is_ok());
    let refused = client.session.begin(64, 1, FINGERPRINT);
    assert_eq!(refused.err(), Some(StateError::BadSlot));
}

#[test]
fn v4_sess_64_the_end_of_a_session_leaves_opens() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    let id = client.session.id();
    bed.home.destroy_session(id, None, bed.now).unwrap();
    let again = bed.home.destroy_session(id, None, bed.now);
    assert_eq!(again, Err(StateError::BadSession));
    assert!(bed.find(id).is_err());
    assert_eq!(bed.events(), [StateEvent::SessionEnded { session: id }]);
    let next = bed.create(client.id, 2).unwrap();
    assert_eq!(next.session.index(), id.index(), "the same place");
    assert_ne!(next.session, id);
    assert!(bed.io(&client, file(1), open, IoKind::Read).is_ok());
}

#[test]
fn v4_sess_65_the_end_of_a_session_waits_for_its_requests() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let id = client.session.id();
    let Ok(SlotBegin::New(claim)) = client.session.begin(3, 1, FINGERPRINT) else {
        panic!("a new request");
    };
    let delay = Err(StateError::Delay);
    assert_eq!(bed.home.destroy_session(id, None, bed.now), delay);
    assert_eq!(bed.home.destroy_session(id, Some(4), bed.now), delay);
    claim.finish(None);
    assert!(bed.home.destroy_session(id, None, bed.now).is_ok());
}

#[test]
fn v4_sess_65_the_request_that_ends_its_session_does_not_wait_for_itself() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let begun = client.session.begin(3, 1, FINGERPRINT);
    let id = client.session.id();
    assert!(bed.home.destroy_session(id, Some(3), bed.now).is_ok());
    drop(begun);
}

#[test]
fn v4_sess_65_the_wait_for_requests_has_an_end() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let begun = client.session.begin(3, 1, FINGERPRINT);
    let id = client.session.id();
    let delay = Err(StateError::Delay);
    assert_eq!(bed.home.destroy_session(id, None, bed.now), delay);
    bed.pass(Duration::from_secs(4));
    assert_eq!(bed.home.destroy_session(id, None, bed.now), delay);
    bed.pass(Duration::from_secs(1));
    assert!(bed.home.destroy_session(id, None, bed.now).is_ok());
    drop(begun);
}

#[test]
fn v4_sess_39_an_idle_session_is_small() {
    assert_eq!(align_of::<SessionSlot>(), 64);
    assert!(size_of::<SessionSlot>() * 64 + size_of::<Session>() < 8 * 1024);
}
