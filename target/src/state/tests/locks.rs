//! Byte-range locks (RFC 8881 sections 9.5, 9.6 and 18.10 to 18.12).

use super::*;

const READ: LockMode = LockMode::Read;
const WRITE: LockMode = LockMode::Write;

/// Two clients with an open each of file 1.
fn two_clients() -> (TestBed, [(TestClient, Stateid); 2]) {
    let mut bed = TestBed::new();
    let clients = [b"a", b"b"].map(|owner| {
        let client = bed.client(owner);
        let open = bed.open_both(&client, b"o", file(1));
        (client, open)
    });
    (bed, clients)
}

fn new(open: Stateid) -> LockHolder<'static> {
    LockHolder::New { open, owner: b"l" }
}

fn conflict(outcome: Result<Stateid, StateError>) -> LockConflict {
    match outcome {
        Err(StateError::Denied(conflict)) => *conflict,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

#[test]
fn v4_lock_01_the_first_lock_comes_with_the_open() {
    let (mut bed, [(client, open), _]) = two_clients();
    let lock = bed.lock(&client, file(1), new(open), (0, 4), READ).unwrap();
    assert_eq!(lock.sequence, 1);
    let holder = LockHolder::Existing(lock);
    let next = bed.lock(&client, file(1), holder, (8, 4), READ).unwrap();
    assert_eq!((next.other, next.sequence), (lock.other, 2));
    let stale = bed.lock(&client, file(1), holder, (8, 4), READ);
    assert_eq!(stale, Err(StateError::OldStateid));
    let as_open = bed.lock(&client, file(1), new(lock), (0, 4), READ);
    assert_eq!(as_open, Err(StateError::BadStateid));
    let as_lock = LockHolder::Existing(open);
    let refused = bed.lock(&client, file(1), as_lock, (0, 4), READ);
    assert_eq!(refused, Err(StateError::BadStateid));
}

#[test]
fn v4_lock_02_locks_need_the_access_of_the_open() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let none = ShareMode::NONE;
    let mode = Err(StateError::OpenMode);
    for (access, read, write) in [
        (ShareMode::READ, true, false),
        (ShareMode::WRITE, false, true),
    ] {
        let owner = [u8::from(read)];
        let open = bed.open(&client, &owner, file(1), access, none);
        let holder = LockHolder::New {
            open: open.unwrap().stateid,
            owner: &owner,
        };
        let locked = bed.lock(&client, file(1), holder, (0, 1), READ);
        assert_eq!(locked.is_ok(), read);
        assert!(read || locked == mode);
        let locked = bed.lock(&client, file(1), holder, (0, 1), WRITE);
        assert_eq!(locked.is_ok(), write);
        assert!(write || locked == mode);
        if let Ok(lock) = locked {
            bed.unlock(&client, file(1), lock, (0, 1)).unwrap();
        } else {
            let lock = bed.lock(&client, file(1), holder, (0, 1), READ).unwrap();
            bed.unlock(&client, file(1), lock, (0, 1)).unwrap();
        }
    }
}

#[test]
fn v4_lock_03_04_ranges_end_at_2_to_the_64() {
    let most = u64::MAX;
    let invalid = Err(StateError::Inval);
    assert_eq!(ByteRange::new(0, 0), invalid);
    assert_eq!(ByteRange::new(most, 0), invalid);
    assert_eq!(ByteRange::new(most, 1), invalid);
    assert_eq!(ByteRange::new(2, most - 1), invalid);
    for (offset, length) in [
        (0, 1),
        (0, most),
        (1, most - 1),
        (most - 1, 1),
        (most, most),
    ] {
        let range = ByteRange::new(offset, length).unwrap();
        assert_eq!((range.offset(), range.length()), (offset, length));
    }
    let last = ByteRange::new(most, most).unwrap();
    assert!(last.overlaps(&ByteRange::new(7, most).unwrap()));
    assert!(!last.overlaps(&ByteRange::new(most - 1, 1).unwrap()));
}

#[test]
fn v4_lock_03_a_lock_to_the_end_meets_the_last_byte() {
    let (mut bed, [(one, open), (two, other_open)]) = two_clients();
    let most = u64::MAX;
    bed.lock(&one, file(1), new(open), (10, most), WRITE)
        .unwrap();
    for range in [(most, most), (most - 1, 1), (10, 1)] {
        let denied = bed.lock(&two, file(1), new(other_open), range, READ);
        assert_eq!(conflict(denied).range, ByteRange::new(10, most).unwrap());
    }
    let below = bed.lock(&two, file(1), new(other_open), (0, 10), WRITE);
    assert!(below.is_ok());
}

#[test]
fn v4_lock_05_a_conflict_names_its_holder() {
    let (mut bed, [(one, open), (two, other_open)]) = two_clients();
    bed.lock(&one, file(1), new(open), (10, 5), READ).unwrap();
    let denied = bed.lock(&two, file(1), new(other_open), (0, 11), WRITE);
    let expected = LockConflict {
        range: ByteRange::new(10, 5).unwrap(),
        mode: READ,
        client: one.id,
        owner: (*b"l").into(),
    };
    assert_eq!(conflict(denied), expected);
    assert_eq!(bed.home.states.len(), 3, "no lock state was made");
    let shared = bed.lock(&two, file(1), new(other_open), (0, 11), READ);
    assert!(shared.is_ok());
}

#[test]
fn v4_lock_06_an_upgrade_that_conflicts_changes_nothing() {
    let (mut bed, [(one, open), (two, other_open)]) = two_clients();
    let lock = bed.lock(&one, file(1), new(open), (0, 10), READ).unwrap();
    bed.lock(&two, file(1), new(other_open), (5, 1), READ)
        .unwrap();
    let holder = LockHolder::Existing(lock);
    let denied = bed.lock(&one, file(1), holder, (0, 10), WRITE);
    assert_eq!(conflict(denied).client, two.id);
    let upgraded = bed.lock(&one, file(1), holder, (0, 5), WRITE).unwrap();
    assert_eq!(upgraded.sequence, 2, "the denied one did not count");
    let range = ByteRange::new(5, 5).unwrap();
    let held = bed
        .home
        .test_lock(two.id, b"l", &file(1), range, WRITE, bed.now);
    assert!(matches!(held, Err(StateError::Denied(found)) if found.mode == READ));
}

#[test]
fn v4_lock_07_any_part_may_be_freed() {
    let (mut bed, [(one, open), (two, other_open)]) = two_clients();
    let lock = bed.lock(&one, file(1), new(open), (0, 10), WRITE).unwrap();
    let lock = bed.unlock(&one, file(1), lock, (4, 2)).unwrap();
    assert_eq!(lock.sequence, 2);
    let lock = bed.unlock(&one, file(1), lock, (100, 2)).unwrap();
    assert_eq!(lock.sequence, 3, "bytes that were not locked");
    let free = bed.lock(&two, file(1), new(other_open), (4, 2), WRITE);
    assert!(free.is_ok());
    for byte in [3, 6] {
        let denied = bed.lock(&two, file(1), new(other_open), (byte, 1), WRITE);
        assert_eq!(conflict(denied).client, one.id);
    }
}

#[test]
fn v4_lock_08_a_test_sees_all_but_the_same_owner() {
    let (mut bed, [(one, open), (two, _)]) = two_clients();
    bed.lock(&one, file(1), new(open), (0, 10), READ).unwrap();
    let now = bed.now;
    let mut test = |client: &TestClient, owner: &[u8], key, mode| {
        let range = ByteRange::new(9, 5).unwrap();
        bed.home.test_lock(client.id, owner, &key, range, mode, now)
    };
    assert!(test(&one, b"l", file(1), WRITE).is_ok());
    assert!(test(&two, b"l", file(1), READ).is_ok());
    assert!(test(&two, b"l", file(2), WRITE).is_ok());
    for (client, owner) in [(&one, b"m"), (&two, b"l")] {
        let denied = test(client, owner, file(1), WRITE);
        assert!(matches!(denied, Err(StateError::Denied(found)) if found.client == one.id));
    }
}

#[test]
fn v4_lock_09_an_owner_has_a_stateid_for_each_open_owner_and_file() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let mut seen = Vec::new();
    for (owner, number) in [(b"o", 1), (b"p", 1), (b"o", 2)] {
        let open = bed.open_both(&client, owner, file(number));
        let lock = bed.lock(&client, file(number), new(open), (0, 4), WRITE);
        seen.push(lock.unwrap());
    }
    assert!(seen.iter().all(|lock| lock.sequence == 1));
    assert_ne!(seen[0].other, seen[1].other);
    assert_ne!(seen[0].other, seen[2].other);
    // The second took over the bytes of the first: they were of the same owner.
    let first = Stateid {
        sequence: 0,
        ..seen[0]
    };
    assert_eq!(bed.home.free_stateid(client.id, &first), Ok(()));
    let held = bed.home.free_stateid(client.id, &seen[1]);
    assert_eq!(held, Err(StateError::LocksHeld));
}

#[test]
fn v4_lock_10_a_known_owner_that_comes_as_new_keeps_its_stateid() {
    let (mut bed, [(client, open), _]) = two_clients();
    let first = bed.lock(&client, file(1), new(open), (0, 4), READ).unwrap();
    let second = bed.lock(&client, file(1), new(open), (8, 4), READ).unwrap();
    assert_eq!((second.other, second.sequence), (first.other, 2));
}

/// A request that waits.
fn ask(
    bed: &mut TestBed,
    client: &TestClient,
    open: Stateid,
    owner: &[u8],
    range: (u64, u64),
    mode: LockMode,
) -> Result<Stateid, StateError> {
    let request = LockRequest {
        client: client.id,
        file: file(1),
        holder: LockHolder::New { open, owner },
        range: ByteRange::new(range.0, range.1).unwrap(),
        mode,
        waits: true,
        reclaims: false,
    };
    bed.home.lock(&request, bed.now)
}

fn told(bed: &mut TestBed) -> Vec<Vec<u8>> {
    let events = bed.events().into_iter();
    let owners = events.filter_map(|event| match event {
        StateEvent::LockAvailable { owner, .. } => Some(owner.to_vec()),
        _ => None,
    });
    owners.collect()
}

#[test]
fn v4_lock_11_the_first_waiter_is_told_when_the_range_is_free() {
    let (mut bed, [(one, open), (two, other)]) = two_clients();
    let lock = bed.lock(&one, file(1), new(open), (0, 9), WRITE).unwrap();
    for owner in [b"x", b"y"] {
        conflict(ask(&mut bed, &two, other, owner, (0, 4), WRITE));
    }
    conflict(ask(&mut bed, &two, other, b"z", (5, 4), READ));
    assert!(told(&mut bed).is_empty());
    let lock = bed.unlock(&one, file(1), lock, (0, 3)).unwrap();
    assert!(told(&mut bed).is_empty(), "byte 3 is locked");
    bed.unlock(&one, file(1), lock, (0, 9)).unwrap();
    assert_eq!(told(&mut bed), [b"x", b"z"]);
    assert!(told(&mut bed).is_empty());
    // It is not reserved for the notified waiter.
    let taken = ask(&mut bed, &two, other, b"y", (0, 4), WRITE).unwrap();
    conflict(ask(&mut bed, &two, other, b"x", (0, 4), WRITE));
    bed.unlock(&two, file(1), taken, (0, 4)).unwrap();
    assert_eq!(told(&mut bed), [b"x"], "not y, which has had its lock");
}

#[test]
fn v4_lock_11_readers_are_told_of_a_downgrade_and_of_a_close() {
    let (mut bed, [(one, open), (two, other)]) = two_clients();
    let lock = bed.lock(&one, file(1), new(open), (0, 9), WRITE).unwrap();
    conflict(ask(&mut bed, &two, other, b"x", (0, 4), READ));
    conflict(ask(&mut bed, &two, other, b"y", (0, 4), READ));
    conflict(ask(&mut bed, &two, other, b"w", (0, 4), WRITE));
    let holder = LockHolder::Existing(lock);
    bed.lock(&one, file(1), holder, (0, 9), READ).unwrap();
    assert_eq!(told(&mut bed), [b"x", b"y"]);
    bed.home.close(one.id, &file(1), &open, bed.now).unwrap();
    assert_eq!(told(&mut bed), [b"w"]);
}

#[test]
fn v4_lock_11_a_request_that_does_not_wait_is_not_remembered() {
    let (mut bed, [(one, open), (two, other)]) = two_clients();
    let lock = bed.lock(&one, file(1), new(open), (0, 9), WRITE).unwrap();
    conflict(bed.lock(&two, file(1), new(other), (0, 4), WRITE));
    bed.unlock(&one, file(1), lock, (0, 9)).unwrap();
    assert!(told(&mut bed).is_empty());
}

#[test]
fn v4_lock_12_a_waiter_that_does_not_ask_again_is_forgotten() {
    let (mut bed, [(one, open), (two, other)]) = two_clients();
    let lock = bed.lock(&one, file(1), new(open), (0, 9), WRITE).unwrap();
    for owner in [b"v", b"x", b"y", b"z"] {
        conflict(ask(&mut bed, &two, other, owner, (0, 4), WRITE));
    }
    conflict(ask(&mut bed, &two, other, b"u", (0, 4), WRITE));
    bed.pass(LEASE);
    bed.renew(&one);
    bed.renew(&two);
    conflict(ask(&mut bed, &two, other, b"y", (0, 4), WRITE));
    bed.pass(Duration::from_nanos(1));
    conflict(ask(&mut bed, &two, other, b"t", (8, 1), WRITE));
    bed.unlock(&one, file(1), lock, (0, 9)).unwrap();
    assert_eq!(told(&mut bed), [b"y", b"t"]);
}

#[test]
fn v4_lock_13_owners_that_wait_for_each_other_wait_until_one_gives_up() {
    let (mut bed, [(one, open), (two, other)]) = two_clients();
    let lock = bed.lock(&one, file(1), new(open), (0, 4), WRITE).unwrap();
    ask(&mut bed, &two, other, b"x", (8, 4), WRITE).unwrap();
    // Neither is told of a deadlock, however often it asks.
    for _ in 0..2 {
        let denied = ask(&mut bed, &two, other, b"x", (0, 4), WRITE);
        assert_eq!(conflict(denied).range, ByteRange::new(0, 4).unwrap());
        let denied = ask(&mut bed, &one, open, b"l", (8, 4), WRITE);
        assert_eq!(conflict(denied).range, ByteRange::new(8, 4).unwrap());
    }
    bed.unlock(&one, file(1), lock, (0, 4)).unwrap();
    assert_eq!(told(&mut bed), [b"x"]);
    ask(&mut bed, &two, other, b"x", (0, 4), WRITE).unwrap();
}

#[test]
fn v4_lock_18_a_lock_stateid_stays_valid_without_locks() {
    let (mut bed, [(client, open), _]) = two_clients();
    let lock = bed.lock(&client, file(1), new(open), (0, 9), WRITE);
    let lock = bed.unlock(&client, file(1), lock.unwrap(), (0, u64::MAX));
    let holder = LockHolder::Existing(lock.unwrap());
    let again = bed.lock(&client, file(1), holder, (0, 9), READ).unwrap();
    assert_eq!(again.sequence, 3);
}

#[test]
fn v4_lock_23_ranges_of_a_file_and_of_a_client_are_bounded() {
    let (mut bed, [(client, open), _]) = two_clients();
    let mut lock = bed.lock(&client, file(1), new(open), (0, 1), WRITE);
    let mut offset = 0;
    while let Ok(known) = lock {
        offset += 2;
        let holder = LockHolder::Existing(Stateid {
            sequence: 0,
            ..known
        });
        lock = bed.lock(&client, file(1), holder, (offset, 1), WRITE);
    }
    assert_eq!(lock, Err(StateError::NoSpc));
    assert_eq!(offset, 2 * 99, "one is left for a change that splits");
    let open = bed.open_both(&client, b"o", file(2));
    let mut lock = bed.lock(&client, file(2), new(open), (0, 1000), WRITE);
    let known = lock.clone().unwrap();
    let mut offset = 0;
    while lock.is_ok() {
        offset += 2;
        let latest = Stateid {
            sequence: 0,
            ..known
        };
        lock = bed.unlock(&client, file(2), latest, (offset, 1));
    }
    assert_eq!(lock, Err(StateError::NoSpc), "an unlock that splits");
    let index = bed.home.clients.find(client.id).unwrap();
    assert_eq!(bed.home.clients.get(index).unwrap().ranges, 149);
    let latest = Stateid {
        sequence: 0,
        ..known
    };
    let freed = bed.unlock(&client, file(2), latest, (0, 1000));
    assert!(freed.is_ok(), "what does not split is always freed");
    assert_eq!(bed.home.clients.get(index).unwrap().ranges, 99);
}
