//! Which stateids are accepted (RFC 8881 sections 8.2.2 to 8.2.4).

use super::*;

const READ: IoKind = IoKind::Read;

fn changed(stateid: Stateid, byte: usize) -> Stateid {
    let mut changed = stateid;
    changed.other[byte] ^= 1;
    changed
}

#[test]
fn v4_open_21_every_part_of_a_stateid_counts() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    assert!(bed.io(&client, file(1), open, READ).is_ok());
    for byte in 0..12 {
        let refused = bed.io(&client, file(1), changed(open, byte), READ);
        assert_eq!(refused, Err(StateError::BadStateid), "byte {byte}");
    }
}

#[test]
fn v4_open_21_the_order_of_causes() {
    let mut bed = TestBed::new();
    let (client, other) = (bed.client(b"a"), bed.client(b"b"));
    bed.open_both(&client, b"o", file(1));
    let open = bed.open_both(&client, b"o", file(1));
    let old = Stateid {
        sequence: 1,
        ..open
    };
    let bad = Err(StateError::BadStateid);
    let old_error = Err(StateError::OldStateid);
    // File and kind come before the sequence number.
    assert_eq!(bed.io(&client, file(2), old, READ), bad);
    let range = (0, 1);
    assert_eq!(
        bed.unlock(&client, file(1), old, range),
        bad.clone().map(|_: IoGrant| old)
    );
    assert_eq!(bed.io(&client, file(1), old, READ), old_error);
    // Client and file come before revocation, which comes before kind and sequence number.
    bed.home.revoke(client.id, &open).unwrap();
    assert_eq!(bed.io(&other, file(1), open, READ), bad);
    assert_eq!(bed.io(&client, file(2), open, READ), bad);
    let revoked = Err(StateError::AdminRevoked);
    assert_eq!(bed.io(&client, file(1), old, READ), revoked);
    let unlocked = bed.unlock(&client, file(1), old, range);
    assert_eq!(unlocked, Err(StateError::AdminRevoked));
}

#[test]
fn v4_open_22_sequence_numbers_skip_zero_and_compare_across_the_wrap() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    let state = bed.home.states.find(client.id, &open).unwrap();
    bed.home.states.get_mut(state).unwrap().sequence = u32::MAX - 1;
    let last = bed.open_both(&client, b"o", file(1));
    assert_eq!(last.sequence, u32::MAX);
    let with = |sequence| Stateid { sequence, ..open };
    let newer = bed.io(&client, file(1), with(1), READ);
    assert_eq!(newer, Err(StateError::BadStateid));
    let next = bed.open_both(&client, b"o", file(1));
    assert_eq!(next.sequence, 1, "0 is skipped");
    let older = bed.io(&client, file(1), with(u32::MAX), READ);
    assert_eq!(older, Err(StateError::OldStateid));
    assert!(bed.io(&client, file(1), with(1), READ).is_ok());
}

#[test]
fn v4_open_23_sequence_number_zero_is_the_latest() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open_both(&client, b"o", file(1));
    let open = bed.open_both(&client, b"o", file(1));
    let latest = Stateid {
        sequence: 0,
        ..open
    };
    for kind in [IoKind::Read, IoKind::Write, IoKind::SetSize] {
        assert!(bed.io(&client, file(1), latest, kind).is_ok());
    }
    let holder = LockHolder::New {
        open: latest,
        owner: b"l",
    };
    let lock = bed.lock(&client, file(1), holder, (0, 1), LockMode::Write);
    let latest = Stateid {
        sequence: 0,
        ..lock.unwrap()
    };
    let holder = LockHolder::Existing(latest);
    assert!(
        bed.lock(&client, file(1), holder, (1, 1), LockMode::Write)
            .is_ok()
    );
    assert!(bed.unlock(&client, file(1), latest, (0, 2)).is_ok());
}

#[test]
fn v4_open_24_other_is_never_used_again() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let mut seen = std::collections::HashSet::new();
    for round in 0..100_000_u32 {
        let key = file((round % 3) as u8);
        let open = bed.open_both(&client, b"o", key);
        assert!(seen.insert(open.other), "round {round}");
        bed.home.close(client.id, &key, &open, bed.now).unwrap();
    }
}

#[test]
fn v4_open_24_an_index_without_further_generations_is_retired() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let first = bed.open_both(&client, b"o", file(1));
    let state = bed.home.states.find(client.id, &first).unwrap();
    bed.home
        .close(client.id, &file(1), &first, bed.now)
        .unwrap();
    bed.home.states.set_generation(state, u32::MAX - 1);
    let last = bed.open_both(&client, b"o", file(1));
    assert_eq!(bed.home.states.find(client.id, &last), Ok(state));
    bed.home.close(client.id, &file(1), &last, bed.now).unwrap();
    let next = bed.open_both(&client, b"o", file(1));
    assert_ne!(bed.home.states.find(client.id, &next), Ok(state));
}

#[test]
fn v4_open_27_other_special_stateids_are_bad() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open_both(&client, b"o", file(1));
    for (byte, sequences) in [(0, [1, 2, u32::MAX]), (0xff, [0, 1, u32::MAX - 1])] {
        for sequence in sequences {
            let special = Stateid {
                sequence,
                other: [byte; 12],
            };
            assert!(special.is_special());
            let refused = bed.io(&client, file(1), special, READ);
            assert_eq!(refused, Err(StateError::BadStateid), "{special:?}");
        }
    }
}

#[test]
fn v4_open_28_a_stateid_of_another_client_is_bad() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    let open = bed.open_both(&one, b"o", file(1));
    let refused = bed.io(&two, file(1), open, READ);
    assert_eq!(refused, Err(StateError::BadStateid));
    let closed = bed.home.close(two.id, &file(1), &open, bed.now);
    assert_eq!(closed, Err(StateError::BadStateid));
    assert!(bed.io(&one, file(1), open, READ).is_ok());
}

#[test]
fn v4_lock_17_stateids_are_tested_one_by_one() {
    let mut bed = TestBed::new();
    let (client, other) = (bed.client(b"a"), bed.client(b"b"));
    let old = bed.open_both(&client, b"o", file(1));
    let open = bed.open_both(&client, b"o", file(1));
    let holder = LockHolder::New { open, owner: b"l" };
    let lock = bed.lock(&client, file(1), holder, (0, 1), LockMode::Write);
    let revoked = bed.open_both(&client, b"o", file(2));
    bed.home.revoke(client.id, &revoked).unwrap();
    let foreign = bed.open_both(&other, b"o", file(1));
    let newer = Stateid {
        sequence: 9,
        ..open
    };
    let tested = bed.home.test_stateids(
        client.id,
        &[
            open,
            lock.unwrap(),
            old,
            newer,
            revoked,
            foreign,
            Stateid::ANONYMOUS,
            Stateid::READ_BYPASS,
        ],
    );
    let bad = Err(StateError::BadStateid);
    let expected = [
        Ok(()),
        Ok(()),
        Err(StateError::OldStateid),
        bad.clone(),
        Err(StateError::AdminRevoked),
        bad.clone(),
        bad.clone(),
        bad,
    ];
    assert_eq!(tested, expected);
}

#[test]
fn v4_lock_16_what_has_locks_is_not_freed() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    let holder = LockHolder::New { open, owner: b"l" };
    let lock = bed
        .lock(&client, file(1), holder, (0, 8), LockMode::Write)
        .unwrap();
    let held = Err(StateError::LocksHeld);
    assert_eq!(bed.home.free_stateid(client.id, &open), held);
    assert_eq!(bed.home.free_stateid(client.id, &lock), held);
    let old = lock;
    let lock = bed.unlock(&client, file(1), lock, (0, 8)).unwrap();
    let refused = bed.home.free_stateid(client.id, &old);
    assert_eq!(refused, Err(StateError::OldStateid));
    assert_eq!(bed.home.free_stateid(client.id, &lock), Ok(()));
    let bad = Err(StateError::BadStateid);
    assert_eq!(bed.home.free_stateid(client.id, &lock), bad);
    let holder = LockHolder::New { open, owner: b"l" };
    let anew = bed
        .lock(&client, file(1), holder, (0, 8), LockMode::Write)
        .unwrap();
    assert_eq!(anew.sequence, 1);
    assert_ne!(anew.other, lock.other);
}

#[test]
fn v4_lock_16_revoked_state_is_freed_and_gone() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    let holder = LockHolder::New { open, owner: b"l" };
    let lock = bed
        .lock(&client, file(1), holder, (0, 8), LockMode::Write)
        .unwrap();
    bed.home.revoke(client.id, &open).unwrap();
    for stateid in [lock, open] {
        let tested = bed.home.test_stateids(client.id, &[stateid]);
        assert_eq!(tested, [Err(StateError::AdminRevoked)]);
        let reported = client.session.conditions();
        assert!(reported.contains(SessionConditions::ADMIN_REVOKED));
        assert_eq!(bed.home.free_stateid(client.id, &stateid), Ok(()));
        let tested = bed.home.test_stateids(client.id, &[stateid]);
        assert_eq!(tested, [Err(StateError::BadStateid)]);
    }
    assert!(client.session.conditions().is_empty());
    assert_eq!(bed.home.states.len(), 0);
}
