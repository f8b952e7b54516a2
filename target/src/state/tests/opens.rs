//! Opens and share reservations.

use super::*;

const READ: ShareMode = ShareMode::READ;
const WRITE: ShareMode = ShareMode::WRITE;
const BOTH: ShareMode = ShareMode::BOTH;
const NONE: ShareMode = ShareMode::NONE;

#[test]
fn v4_open_14_an_open_without_access_is_invalid() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let refused = bed.open(&client, b"o", file(1), NONE, NONE);
    assert_eq!(refused, Err(StateError::Inval));
    assert_eq!(ShareMode::from_bits(4), None);
    assert_eq!(ShareMode::from_bits(0x103), None);
    assert_eq!(ShareMode::from_bits(3), Some(BOTH));
}

#[test]
fn v4_open_15_access_and_denials_of_two_owners() {
    let modes = ShareMode::ALL;
    for (first, second) in [(b"o", b"p"), (b"o", b"o")] {
        for access in [READ, WRITE, BOTH] {
            for deny in modes {
                for other_access in [READ, WRITE, BOTH] {
                    for other_deny in modes {
                        let mut bed = TestBed::new();
                        let client = bed.client(b"a");
                        bed.open(&client, first, file(1), access, deny).unwrap();
                        let opened = bed.open(&client, second, file(1), other_access, other_deny);
                        let conflicts = deny.meets(other_access) || other_deny.meets(access);
                        let denied = opened == Err(StateError::ShareDenied);
                        assert_eq!(denied, conflicts, "{access:?} {deny:?}, {opened:?}");
                        assert!(denied || opened.is_ok());
                    }
                }
            }
        }
    }
}

#[test]
fn v4_open_15_where_other_servers_do_not_know_denials_there_are_none() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let now = bed.now;
    let open = |bed: &mut TestBed, is_shared, reclaims, deny| {
        let terms = OpenTerms {
            reclaims,
            is_shared,
            ..OpenTerms::default()
        };
        let home = &mut bed.home;
        let opened = home.open_under(terms, client.id, b"o", file(1), (READ, deny), now);
        opened.map(drop)
    };
    bed.home.config.shared_denials = SharedDenials::Refused;
    assert_eq!(
        open(&mut bed, true, false, WRITE),
        Err(StateError::ShareDenied)
    );
    assert_eq!(
        open(&mut bed, true, false, READ),
        Err(StateError::ShareDenied)
    );
    assert_eq!(open(&mut bed, true, false, NONE), Ok(()));
    assert_eq!(open(&mut bed, false, false, WRITE), Ok(()));
    bed.home.config.shared_denials = SharedDenials::Unannounced;
    assert_eq!(open(&mut bed, true, false, WRITE), Ok(()));
}

#[test]
fn v4_open_15_other_files_are_not_concerned() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open(&client, b"o", file(1), BOTH, BOTH).unwrap();
    assert!(bed.open(&client, b"o", file(2), BOTH, BOTH).is_ok());
    let elsewhere = FileKey {
        export: 8,
        ..file(1)
    };
    assert!(bed.open(&client, b"o", elsewhere, BOTH, BOTH).is_ok());
}

#[test]
fn v4_open_16_opens_of_one_owner_are_joined() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let first = bed.open(&client, b"o", file(1), READ, NONE).unwrap();
    assert_eq!((first.stateid.sequence, first.joined), (1, false));
    let second = bed.open(&client, b"o", file(1), WRITE, NONE).unwrap();
    assert_eq!(second.stateid.other, first.stateid.other);
    assert_eq!((second.stateid.sequence, second.joined), (2, true));
    assert_eq!((second.access, second.deny), (BOTH, NONE));
    let other = bed.open(&client, b"p", file(1), READ, NONE).unwrap();
    assert_ne!(other.stateid.other, first.stateid.other);
}

#[test]
fn an_open_that_is_undone_leaves_the_one_that_it_was_joined_with() {
    let mut bed = TestBed::new();
    let [client, other] = [b"a", b"b"].map(|owner| bed.client(owner));
    let first = bed.open(&client, b"o", file(1), READ, NONE).unwrap();
    let second = bed.open(&client, b"o", file(1), WRITE, NONE).unwrap();
    let undo = |bed: &mut TestBed, open: &Stateid| {
        bed.home.undo_open(client.id, &file(1), open);
    };
    undo(&mut bed, &second.stateid);
    let denying = |bed: &mut TestBed| bed.open(&other, b"o", file(1), READ, WRITE);
    let denied = denying(&mut bed).unwrap().stateid;
    let closed = bed.home.close(other.id, &file(1), &denied, Duration::ZERO);
    closed.unwrap();
    // The client knows the sequence number of before.
    let third = bed.open(&client, b"o", file(1), BOTH, NONE).unwrap();
    assert_eq!((third.stateid.sequence, third.access), (2, BOTH));
    // It stays as another OPEN has changed it since.
    let fourth = bed.open(&client, b"o", file(1), READ, NONE).unwrap();
    undo(&mut bed, &third.stateid);
    assert_eq!(denying(&mut bed), Err(StateError::ShareDenied));
    let close = |bed: &mut TestBed, open: &Stateid| {
        bed.home.close(client.id, &file(1), open, Duration::ZERO)
    };
    assert!(close(&mut bed, &fourth.stateid).is_ok());
    // One that began with it is gone, also when another one was undone before.
    let alone = bed.open(&client, b"p", file(1), WRITE, NONE).unwrap();
    let joined = bed.open(&client, b"p", file(1), READ, NONE).unwrap();
    undo(&mut bed, &joined.stateid);
    undo(&mut bed, &alone.stateid);
    assert_eq!(close(&mut bed, &alone.stateid), Err(StateError::BadStateid));
    assert!(denying(&mut bed).is_ok());
    assert_eq!(first.stateid.other, fourth.stateid.other);
}

#[test]
fn v4_open_16_equal_owners_of_two_clients_are_two() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    let first = bed.open_both(&one, b"o", file(1));
    let second = bed.open_both(&two, b"o", file(1));
    assert_ne!(first.other, second.other);
}

#[test]
fn v4_open_17_downgrades_to_unions_of_opens() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open(&client, b"o", file(1), READ, NONE).unwrap();
    let open = bed
        .open(&client, b"o", file(1), BOTH, NONE)
        .unwrap()
        .stateid;
    let refuse = |bed: &mut TestBed, access, deny| {
        let refused = bed
            .home
            .open_downgrade(client.id, &file(1), &open, access, deny);
        assert_eq!(refused, Err(StateError::Inval), "{access:?} {deny:?}");
    };
    refuse(&mut bed, WRITE, NONE);
    refuse(&mut bed, NONE, NONE);
    refuse(&mut bed, READ, READ);
    let downgraded = bed
        .home
        .open_downgrade(client.id, &file(1), &open, READ, NONE);
    let downgraded = downgraded.unwrap();
    assert_eq!((downgraded.other, downgraded.sequence), (open.other, 3));
    let write = bed.io(&client, file(1), downgraded, IoKind::Write);
    assert_eq!(write, Err(StateError::OpenMode));
    let again = bed
        .home
        .open_downgrade(client.id, &file(1), &downgraded, BOTH, NONE);
    assert_eq!(again, Err(StateError::Inval), "that open has ended");
    let other = bed.client(b"b");
    assert!(bed.open(&other, b"o", file(1), READ, WRITE).is_ok());
}

#[test]
fn v4_open_18_one_open_for_both_has_no_part() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let one = bed.open_both(&client, b"o", file(1));
    for access in [READ, WRITE] {
        let refused = bed
            .home
            .open_downgrade(client.id, &file(1), &one, access, NONE);
        assert_eq!(refused, Err(StateError::Inval));
    }
    bed.open(&client, b"o", file(2), READ, NONE).unwrap();
    let joined = bed.open(&client, b"o", file(2), WRITE, NONE).unwrap();
    let downgraded = bed
        .home
        .open_downgrade(client.id, &file(2), &joined.stateid, READ, NONE);
    assert!(downgraded.is_ok());
}

#[test]
fn v4_open_19_close_ends_the_open_and_its_locks() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed
        .open(&client, b"o", file(1), BOTH, WRITE)
        .unwrap()
        .stateid;
    let holder = LockHolder::New { open, owner: b"l" };
    let lock = bed
        .lock(&client, file(1), holder, (0, 10), LockMode::Write)
        .unwrap();
    let closed = bed.home.close(client.id, &file(1), &open, bed.now).unwrap();
    assert_eq!(closed, Stateid::INVALID);
    for stateid in [open, lock, closed] {
        let refused = bed.io(&client, file(1), stateid, IoKind::Read);
        assert_eq!(refused, Err(StateError::BadStateid));
        let again = bed.home.close(client.id, &file(1), &stateid, bed.now);
        assert_eq!(again, Err(StateError::BadStateid));
    }
    let other = bed.client(b"b");
    let open = bed.open(&other, b"o", file(1), BOTH, BOTH).unwrap().stateid;
    let holder = LockHolder::New { open, owner: b"l" };
    let locked = bed.lock(&other, file(1), holder, (0, 10), LockMode::Write);
    assert!(locked.is_ok());
}

#[test]
fn v4_open_20_close_compares_the_sequence_number() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let old = bed.open_both(&client, b"o", file(1));
    let open = bed.open_both(&client, b"o", file(1));
    let close = |bed: &mut TestBed, sequence| {
        let stateid = Stateid { sequence, ..open };
        bed.home.close(client.id, &file(1), &stateid, bed.now)
    };
    assert_eq!(close(&mut bed, old.sequence), Err(StateError::OldStateid));
    assert_eq!(close(&mut bed, 3), Err(StateError::BadStateid));
    assert!(close(&mut bed, 0).is_ok());
}

#[test]
fn v4_open_25_the_anonymous_stateid_meets_denials() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let other = bed.client(b"b");
    for (deny, read, write) in [
        (NONE, true, true),
        (READ, false, true),
        (WRITE, true, false),
        (BOTH, false, false),
    ] {
        let open = bed
            .open(&client, b"o", file(1), READ, deny)
            .unwrap()
            .stateid;
        for (kind, passes) in [
            (IoKind::Read, read),
            (IoKind::Write, write),
            (IoKind::SetSize, write),
        ] {
            let expected = if passes {
                Ok(IoGrant::Permissions)
            } else {
                Err(StateError::Locked)
            };
            let outcome = bed.io(&other, file(1), Stateid::ANONYMOUS, kind);
            assert_eq!(outcome, expected, "{deny:?} {kind:?}");
        }
        bed.home.close(client.id, &file(1), &open, bed.now).unwrap();
    }
    let free = bed.io(&other, file(1), Stateid::ANONYMOUS, IoKind::Write);
    assert_eq!(free, Ok(IoGrant::Permissions));
}

#[test]
fn v4_open_26_the_bypass_stateid_reads_past_denials() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open(&client, b"o", file(1), READ, BOTH).unwrap();
    let bypass = Stateid::READ_BYPASS;
    let read = bed.io(&client, file(1), bypass, IoKind::Read);
    assert_eq!(read, Ok(IoGrant::Permissions));
    for kind in [IoKind::Write, IoKind::SetSize] {
        let refused = bed.io(&client, file(1), bypass, kind);
        assert_eq!(refused, Err(StateError::Locked));
    }
    let free = bed.io(&client, file(2), bypass, IoKind::Write);
    assert_eq!(free, Ok(IoGrant::Permissions));
}

#[test]
fn v4_open_29_writes_need_write_access_and_reads_the_callers_permission() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let reader = bed
        .open(&client, b"r", file(1), READ, NONE)
        .unwrap()
        .stateid;
    let writer = bed
        .open(&client, b"w", file(1), WRITE, NONE)
        .unwrap()
        .stateid;
    let both = bed
        .open(&client, b"b", file(1), BOTH, NONE)
        .unwrap()
        .stateid;
    let open = Ok(IoGrant::Open);
    let mode = Err(StateError::OpenMode);
    for (stateid, read, write) in [
        (reader, open.clone(), mode.clone()),
        (writer, Ok(IoGrant::Permissions), open.clone()),
        (both, open.clone(), open.clone()),
    ] {
        assert_eq!(bed.io(&client, file(1), stateid, IoKind::Read), read);
        assert_eq!(bed.io(&client, file(1), stateid, IoKind::Write), write);
        assert_eq!(bed.io(&client, file(1), stateid, IoKind::SetSize), write);
    }
}

#[test]
fn v4_open_29_a_writer_does_not_read_what_another_open_denies() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let writer = bed
        .open(&client, b"w", file(1), WRITE, NONE)
        .unwrap()
        .stateid;
    bed.open(&client, b"o", file(1), WRITE, READ).unwrap();
    let refused = bed.io(&client, file(1), writer, IoKind::Read);
    assert_eq!(refused, Err(StateError::Locked));
}

#[test]
fn v4_open_29_a_lock_stateid_has_the_access_of_its_open() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed
        .open(&client, b"o", file(1), READ, NONE)
        .unwrap()
        .stateid;
    let holder = LockHolder::New { open, owner: b"l" };
    let lock = bed
        .lock(&client, file(1), holder, (0, 10), LockMode::Read)
        .unwrap();
    let read = bed.io(&client, file(1), lock, IoKind::Read);
    assert_eq!(read, Ok(IoGrant::Open));
    let write = bed.io(&client, file(1), lock, IoKind::Write);
    assert_eq!(write, Err(StateError::OpenMode));
}

#[test]
fn v4_open_30_owners_are_compared_byte_for_byte() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let owners: [&[u8]; 4] = [b"", b"\0", b"o", b"o\0"];
    let opens = owners.map(|owner| bed.open_both(&client, owner, file(1)));
    for (owner, first) in owners.iter().zip(opens) {
        let again = bed.open_both(&client, owner, file(1));
        assert_eq!((again.other, again.sequence), (first.other, 2));
    }
}

#[test]
fn v4_open_35_opens_of_a_file_and_of_a_client_are_bounded() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    for owner in 0..50_u8 {
        bed.open_both(&client, &[owner], file(1));
    }
    let full = Err(StateError::NoSpc);
    assert_eq!(bed.open(&client, b"new", file(1), READ, NONE), full);
    assert!(bed.open(&client, &[3], file(1), READ, NONE).is_ok());
    for owner in 0..50_u8 {
        bed.open_both(&client, &[owner], file(2));
    }
    assert_eq!(bed.open(&client, b"new", file(3), READ, NONE), full);
    let other = bed.client(b"b");
    assert!(bed.open(&other, b"new", file(3), READ, NONE).is_ok());
}

#[test]
fn v4_open_36_a_close_with_an_older_sequence_number_loses_no_open() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let first = bed
        .open(&client, b"o", file(1), READ, NONE)
        .unwrap()
        .stateid;
    let second = bed
        .open(&client, b"o", file(1), WRITE, NONE)
        .unwrap()
        .stateid;
    let refused = bed.home.close(client.id, &file(1), &first, bed.now);
    assert_eq!(refused, Err(StateError::OldStateid));
    assert!(bed.io(&client, file(1), second, IoKind::Write).is_ok());
}

#[test]
fn v4_open_24_tables_are_empty_when_all_is_closed() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let opens = [1, 2, 3].map(|number| bed.open_both(&client, &[number], file(number)));
    for (number, open) in (1..).zip(opens) {
        let holder = LockHolder::New { open, owner: b"l" };
        let mode = LockMode::Write;
        bed.lock(&client, file(number), holder, (0, 1), mode)
            .unwrap();
    }
    for (number, open) in (1..).zip(opens) {
        bed.home
            .close(client.id, &file(number), &open, bed.now)
            .unwrap();
        assert_eq!(bed.home.files.find(&file(number)), None);
    }
    let home = &bed.home;
    assert_eq!(home.states.len(), 0);
    assert_eq!((home.opens.len(), home.lock_states.len()), (0, 0));
    let index = home.clients.find(client.id).unwrap();
    let record = home.clients.get(index).unwrap();
    assert_eq!((record.states.len(), record.ranges), (0, 0));
    assert_eq!(home.open_owners.find(index, &[1]), None);
    assert_eq!(home.lock_owners.find(index, b"l"), None);
}
