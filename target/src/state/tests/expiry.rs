//! Leases, courtesy and bounds (RFC 8881 sections 8.3 and 8.4.3).

use super::*;

const READ: ShareMode = ShareMode::READ;
const BOTH: ShareMode = ShareMode::BOTH;
const NONE: ShareMode = ShareMode::NONE;
const MOMENT: Duration = Duration::from_nanos(1);

fn write_lock(
    bed: &mut TestBed,
    client: &TestClient,
    (number, open): (u8, Stateid),
    range: (u64, u64),
) -> Result<Stateid, StateError> {
    let holder = LockHolder::New { open, owner: b"l" };
    bed.lock(client, file(number), holder, range, LockMode::Write)
}

#[test]
fn v4_lease_01_every_reactor_renews() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    bed.open(&one, b"o", file(1), BOTH, BOTH).unwrap();
    for reactor in [0, 1, 0, 1] {
        bed.pass(LEASE);
        one.session.renew_lease(reactor, bed.now);
        bed.renew(&two);
    }
    bed.pass(LEASE);
    let denied = Err(StateError::ShareDenied);
    assert_eq!(bed.open(&two, b"o", file(1), READ, NONE), denied);
    bed.pass(MOMENT);
    assert!(bed.open(&two, b"o", file(1), READ, NONE).is_ok());
}

#[test]
fn v4_lease_02_what_is_outside_a_session_renews_nothing() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    bed.open(&one, b"o", file(1), BOTH, BOTH).unwrap();
    bed.pass(LEASE);
    bed.exchange(b"a", 1).unwrap();
    bed.create(one.id, 2).unwrap();
    bed.pass(MOMENT);
    assert!(bed.open(&two, b"o", file(1), READ, NONE).is_ok());
}

#[test]
fn v4_lease_05_10_state_that_nothing_needs_outlives_the_lease() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    bed.pass(LEASE * 3);
    let now = bed.now;
    bed.home.expire_clients(now);
    bed.renew(&client);
    assert!(bed.io(&client, file(1), open, IoKind::Write).is_ok());
    assert!(client.session.conditions().is_empty());
    let other = bed.client(b"b");
    let denied = bed.open(&other, b"o", file(1), READ, BOTH);
    assert_eq!(denied, Err(StateError::ShareDenied), "it is back");
}

#[test]
fn v4_lease_05_courtesy_has_an_end() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open_both(&client, b"o", file(1));
    let over = LEASE + bed.home.config.courtesy;
    bed.pass(over);
    let now = bed.now;
    bed.home.expire_clients(now);
    assert_eq!(bed.home.client_count(), 1);
    bed.home.expire_clients(now + MOMENT);
    assert_eq!(bed.home.client_count(), 0);
    assert_eq!(bed.home.states.len(), 0);
    let session = client.session.id();
    assert!(bed.find(session).is_err());
    let expected = [
        StateEvent::SessionEnded { session },
        StateEvent::ClientRemoved { client: client.id },
    ];
    assert_eq!(bed.events(), expected);
}

#[test]
fn v4_lease_06_08_an_open_takes_what_expired_clients_block() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    let taken = bed.open(&one, b"o", file(1), BOTH, BOTH).unwrap().stateid;
    let other = bed.open_both(&one, b"o", file(2));
    let lock = write_lock(&mut bed, &one, (1, taken), (0, 1)).unwrap();
    bed.pass(LEASE + MOMENT);
    bed.renew(&two);
    assert!(bed.open(&two, b"o", file(1), READ, NONE).is_ok());
    for stateid in [taken, lock] {
        let refused = bed.io(&one, file(1), stateid, IoKind::Read);
        assert_eq!(refused, Err(StateError::Expired));
    }
    // Linux takes all of its state for lost.
    let refused = bed.io(&one, file(2), other, IoKind::Write);
    assert_eq!(refused, Err(StateError::Expired));
    let revoked: Vec<_> = bed.events().into_iter().collect();
    let event = |stateid, at| StateEvent::Revoked {
        client: one.id,
        stateid,
        file: file(at),
        reason: Revocation::LeaseExpired,
    };
    assert_eq!(revoked, [event(lock, 1), event(taken, 1), event(other, 2)]);

    let conditions = one.session.conditions();
    assert_eq!(conditions, SessionConditions::EXPIRED_SOME);
    // The lock goes with its open.
    assert_eq!(bed.home.free_stateid(one.id, &taken), Ok(()));
    let conditions = one.session.conditions();
    assert_eq!(conditions, SessionConditions::EXPIRED_SOME);
    assert_eq!(bed.home.free_stateid(one.id, &other), Ok(()));
    assert!(one.session.conditions().is_empty());
    let freed = bed.home.free_stateid(one.id, &lock);
    assert_eq!(freed, Err(StateError::BadStateid));
    assert_eq!(bed.home.states.len(), 1);
}

#[test]
fn state_that_follows_a_freed_lock_is_not_freed_with_the_open_of_that_lock() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let open = bed.open_both(&client, b"o", file(1));
    let lock = write_lock(&mut bed, &client, (1, open), (0, 1)).unwrap();
    bed.home.revoke(client.id, &open).unwrap();
    assert_eq!(bed.home.free_stateid(client.id, &lock), Ok(()));
    // It has the index that the lock had.
    let next = bed.open_both(&client, b"o", file(2));
    assert_eq!(bed.home.states.len(), 2);
    assert_eq!(bed.home.states.find(client.id, &next), Ok(1));
    bed.home.revoke(client.id, &next).unwrap();
    assert_eq!(bed.home.free_stateid(client.id, &open), Ok(()));
    let tested = bed.home.test_stateids(client.id, &[next]);
    assert_eq!(tested, [Err(StateError::AdminRevoked)]);
}

#[test]
fn v4_lease_06_a_lock_takes_what_expired_clients_block() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    let [(open, lock), _] = [1, 2].map(|number| {
        let open = bed.open_both(&one, b"o", file(number));
        (
            open,
            write_lock(&mut bed, &one, (number, open), (0, 9)).unwrap(),
        )
    });
    let other_opens = [1, 2].map(|number| bed.open_both(&two, b"o", file(number)));
    bed.pass(LEASE + MOMENT);
    bed.renew(&two);
    let range = ByteRange::new(0, 1).unwrap();
    let (mode, now) = (LockMode::Write, bed.now);
    let tested = bed.home.test_lock(two.id, b"l", &file(1), range, mode, now);
    assert_eq!(tested, Ok(()));
    assert!(bed.io(&one, file(1), lock, IoKind::Read).is_ok());
    assert!(write_lock(&mut bed, &two, (1, other_opens[0]), (0, 1)).is_ok());
    let refused = bed.io(&one, file(1), lock, IoKind::Read);
    assert_eq!(refused, Err(StateError::Expired));
    let refused = bed.io(&one, file(1), open, IoKind::Read);
    assert_eq!(refused, Err(StateError::Expired), "it goes with the lock");
    // It is back, without any lock.
    bed.renew(&one);
    assert!(write_lock(&mut bed, &two, (2, other_opens[1]), (0, 9)).is_ok());
}

#[test]
fn v4_lease_06_anonymous_io_takes_what_expired_clients_deny() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    let open = bed.open(&one, b"o", file(1), READ, BOTH).unwrap().stateid;
    bed.pass(LEASE + MOMENT);
    let passed = bed.io(&two, file(1), Stateid::ANONYMOUS, IoKind::Write);
    assert_eq!(passed, Ok(IoGrant::Permissions));
    let refused = bed.io(&one, file(1), open, IoKind::Read);
    assert_eq!(refused, Err(StateError::Expired));
}

#[test]
fn v4_lease_07_a_live_client_stands_before_expired_ones() {
    let mut bed = TestBed::new();
    let clients = [b"a", b"b", b"c"].map(|owner| bed.client(owner));
    let [gone, live, asking] = &clients;
    let open = bed.open_both(gone, b"o", file(1));
    let live_open = bed.open_both(live, b"o", file(1));
    let asking_open = bed.open_both(asking, b"o", file(1));
    let holder = LockHolder::New { open, owner: b"l" };
    let lock = bed.lock(gone, file(1), holder, (0, 9), LockMode::Read);
    let holder = LockHolder::New {
        open: live_open,
        owner: b"l",
    };
    bed.lock(live, file(1), holder, (5, 9), LockMode::Read)
        .unwrap();
    bed.pass(LEASE + MOMENT);
    bed.renew(live);
    bed.renew(asking);
    let denied = bed.open(asking, b"p", file(1), READ, BOTH);
    assert_eq!(denied, Err(StateError::ShareDenied));
    let denied = write_lock(&mut bed, asking, (1, asking_open), (0, 9));
    assert!(matches!(denied, Err(StateError::Denied(found)) if found.client == live.id));
    assert!(bed.io(gone, file(1), open, IoKind::Read).is_ok());
    let held = bed.io(gone, file(1), lock.unwrap(), IoKind::Read);
    assert!(held.is_ok(), "nothing was taken");
}

#[test]
fn v4_sess_20_clients_are_bounded_and_expired_ones_make_room() {
    let mut bed = TestBed::new();
    let clients = [b"a", b"b", b"c", b"d"].map(|owner| bed.client(owner));
    assert_eq!(bed.exchange(b"e", 1), Err(StateError::Delay));
    assert!(bed.exchange(b"a", 1).unwrap().confirmed);
    bed.pass(Duration::from_secs(1));
    bed.renew(&clients[0]);
    bed.pass(LEASE + MOMENT);
    bed.renew(&clients[2]);
    for owner in [b"e", b"f", b"g"] {
        bed.confirmed(owner);
    }
    assert_eq!(bed.exchange(b"h", 1), Err(StateError::Delay));
    assert!(bed.find(clients[2].session.id()).is_ok());
}

#[test]
fn v4_sess_20_unconfirmed_clients_fill_no_more_than_half_of_the_table() {
    let mut bed = TestBed::new();
    let client = bed.confirmed(b"a");
    let ids = [b"b", b"c", b"d", b"e", b"f"].map(|owner| {
        let exchanged = bed.exchange(owner, 1);
        exchanged.unwrap().client_id
    });
    assert_eq!(bed.home.client_count(), 4);
    let stale = Err(StateError::StaleClientid);
    assert_eq!(bed.create(ids[0], 1), stale);
    assert_eq!(bed.create(ids[1], 1), stale);
    assert!(bed.create(ids[4], 1).is_ok());
    assert!(bed.find(client.session.id()).is_ok());
    assert_eq!(bed.exchange(b"g", 1), Err(StateError::Delay));
}

#[test]
fn v4_sess_20_a_failed_search_for_room_is_repeated_when_a_lease_runs_out() {
    let mut bed = TestBed::new();
    let clients = [b"a", b"b", b"c", b"d"].map(|owner| bed.client(owner));
    bed.pass(LEASE);
    bed.renew(&clients[0]);
    assert_eq!(bed.exchange(b"e", 1), Err(StateError::Delay));
    bed.renew(&clients[1]);
    bed.pass(MOMENT);
    let exchanged = bed.exchange(b"e", 1).unwrap().client_id;
    assert!(bed.create(exchanged, 1).is_ok());
    assert!(bed.find(clients[1].session.id()).is_ok());
    bed.exchange(b"f", 1).unwrap();
    assert_eq!(bed.exchange(b"g", 1), Err(StateError::Delay));
    let found = clients.map(|client| bed.find(client.session.id()).is_ok());
    assert_eq!(found, [true, true, false, false]);
}

#[test]
fn v4_sess_20_the_client_that_was_silent_longest_makes_room() {
    let mut bed = TestBed::new();
    let clients = [b"a", b"b", b"c", b"d"].map(|owner| bed.client(owner));
    for client in [0, 3, 1, 2] {
        bed.pass(Duration::from_secs(1));
        bed.renew(&clients[client]);
    }
    bed.pass(LEASE * 2);
    bed.exchange(b"e", 1).unwrap();
    let found = clients
        .each_ref()
        .map(|client| bed.find(client.session.id()).is_ok());
    assert_eq!(found, [false, true, true, true]);
}

#[test]
fn v4_sess_20_sessions_are_bounded_and_expired_clients_make_room() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.confirmed(b"a"), bed.confirmed(b"b"));
    for client in [&one, &two] {
        bed.create(client.id, 2).unwrap();
        bed.create(client.id, 3).unwrap();
        assert_eq!(bed.create(client.id, 4), Err(StateError::NoSpc));
    }
    let third = bed.exchange(b"c", 1).unwrap().client_id;
    assert_eq!(bed.create(third, 1), Err(StateError::NoSpc));
    bed.pass(LEASE + MOMENT);
    bed.renew(&two);
    let third = bed.exchange(b"c", 1).unwrap().client_id;
    assert!(bed.create(third, 1).is_ok());
    assert!(bed.find(one.session.id()).is_err());
    assert!(bed.find(two.session.id()).is_ok());
}

#[test]
fn v4_open_35_expired_clients_make_room_for_opens() {
    let mut bed = TestBed::new();
    let (one, two) = (bed.client(b"a"), bed.client(b"b"));
    for client in [&one, &two] {
        for owner in 0..100_u8 {
            bed.open_both(client, &[owner], file(owner));
        }
    }
    let third = bed.client(b"c");
    let delayed = bed.open(&third, b"o", file(1), READ, NONE);
    assert_eq!(delayed, Err(StateError::Delay));
    bed.pass(LEASE + MOMENT);
    bed.renew(&two);
    bed.renew(&third);
    assert!(bed.open(&third, b"o", file(1), READ, NONE).is_ok());
    assert_eq!(bed.home.states.len(), 101);
}

#[test]
fn v4_lease_03_a_new_client_does_not_inherit_the_lease_of_one_that_is_gone() {
    let mut bed = TestBed::new();
    let old = bed.client(b"a");
    bed.pass(LEASE);
    bed.renew(&old);
    let now = bed.now;
    bed.home
        .destroy_session(old.session.id(), None, now)
        .unwrap();
    bed.home.destroy_client(old.id, now).unwrap();
    let new = bed.client(b"b");
    let other = bed.client(b"c");
    bed.open(&new, b"o", file(1), BOTH, BOTH).unwrap();
    bed.pass(LEASE + MOMENT);
    assert!(bed.open(&other, b"o", file(1), READ, NONE).is_ok());
}

#[test]
fn v4_lease_01_a_lowered_lease_is_that_of_new_clients_only() {
    let mut bed = TestBed::new();
    let old = bed.client(b"old");
    let (lease, courtesy) = (LEASE / 3, Duration::from_secs(5));
    bed.home.change_terms(StateTerms {
        lease,
        courtesy,
        delegations: false,
    });
    let new = bed.client(b"new");
    let left = |bed: &TestBed, client: &TestClient| {
        let report = bed.home.report_client(client.id, bed.now);
        report.map(|report| report.lease_left)
    };
    assert_eq!(left(&bed, &old), Some(LEASE));
    assert_eq!(left(&bed, &new), Some(lease));
    bed.pass(lease + courtesy + Duration::from_nanos(1));
    bed.home.expire_clients(bed.now);
    assert_eq!(left(&bed, &new), None);
    assert!(left(&bed, &old).is_some());
    // A raised one is that of all.
    bed.renew(&old);
    bed.home.change_terms(StateTerms {
        lease: LEASE * 2,
        courtesy,
        delegations: false,
    });
    assert_eq!(left(&bed, &old), Some(LEASE * 2));
}

#[test]
fn v4_perf_06_a_lease_is_looked_at_when_it_may_run_out() {
    let mut bed = TestBed::with(StateConfig {
        clients: 1000,
        sessions: 1000,
        ..small_config()
    });
    let clients: Vec<TestClient> = (0..500_u32)
        .map(|number| bed.client(&number.to_be_bytes()))
        .collect();
    bed.home.expire_clients(bed.now);
    let due = |bed: &TestBed| bed.home.clients.maybe_silent(bed.now).count();
    for _ in 0..89 {
        bed.pass(Duration::from_secs(1));
        assert_eq!(due(&bed), 0);
        bed.home.expire_clients(bed.now);
    }
    // Half of them have been heard meanwhile.
    for client in &clients[..250] {
        bed.renew(client);
    }
    bed.pass(Duration::from_secs(2));
    assert_eq!(due(&bed), 500);
    bed.home.expire_clients(bed.now);
    assert_eq!(bed.home.figures(bed.now).silent_clients, 250);
    // Those who are silent are looked at again, and are no longer when they return.
    assert_eq!(due(&bed), 250);
    for client in &clients[250..] {
        bed.renew(client);
    }
    bed.pass(Duration::from_secs(1));
    bed.home.expire_clients(bed.now);
    assert_eq!(bed.home.figures(bed.now).silent_clients, 0);
    assert_eq!(due(&bed), 0);
    // Who stays silent for longer than the courtesy period is gone.
    bed.pass(bed.home.config.courtesy + LEASE + LEASE);
    bed.home.expire_clients(bed.now);
    bed.home.expire_clients(bed.now);
    assert_eq!(bed.home.client_count(), 0);
}

#[test]
fn v4_sess_20_an_address_leaves_as_many_sessions_to_others_as_it_has() {
    const SESSIONS: u32 = 40;
    let mut bed = TestBed::with(StateConfig {
        clients: 100,
        sessions: SESSIONS,
        ..small_config()
    });
    let create = |bed: &mut TestBed, host: u8, name: &str| {
        bed.create_at(name.as_bytes(), [192, 0, 2, host].into())
    };
    let mut names = 0..;
    let mut fill = |bed: &mut TestBed, host: u8| {
        let names = names.by_ref().take(SESSIONS as usize);
        let names = names.map(|number: u32| number.to_string());
        let made: Vec<_> = names.map(|name| create(bed, host, &name)).collect();
        let granted: Vec<_> = made.iter().flatten().map(|grant| grant.session).collect();
        assert!(made[granted.len()..].contains(&Err(StateError::NoSpc)));
        granted
    };
    let first = fill(&mut bed, 1);
    assert_eq!(first.len(), 20 + 1);
    assert_eq!(fill(&mut bed, 2).len(), 10);
    assert_eq!(fill(&mut bed, 3).len(), 5);
    // What it gives back it may have again.
    for session in first {
        bed.home.destroy_session(session, None, bed.now).unwrap();
    }
    assert_eq!(fill(&mut bed, 1).len(), 13);
    // Its own clients make room when their leases have run out.
    bed.pass(LEASE + MOMENT);
    assert!(create(&mut bed, 1, "late").is_ok());
    assert_eq!(bed.home.sessions_by_address.total(), 13 + 10 + 5);
}

#[test]
fn v4_open_35_an_address_leaves_as_many_opens_to_others_as_it_has() {
    let mut bed = TestBed::with(StateConfig {
        clients: 100,
        sessions: 100,
        states: 100,
        states_per_client: 30,
        states_per_address: 2,
        ..small_config()
    });
    // However many clients it makes up.
    let fill = |bed: &mut TestBed, address: &str| {
        let mut opens = Vec::new();
        for number in 0..5 {
            let owner = format!("{address} {number}");
            let client = bed.client_at(owner.as_bytes(), address.parse().unwrap());
            for owner in 0..30_u8 {
                match bed.open(&client, &[owner], file(owner), READ, NONE) {
                    Ok(open) => opens.push((client.id, file(owner), open.stateid)),
                    Err(error) => {
                        assert_eq!(error, StateError::NoSpc);
                        break;
                    }
                }
            }
        }
        opens
    };
    let first = fill(&mut bed, "192.0.2.1");
    assert_eq!(first.len(), 50 + 1);
    assert_eq!(fill(&mut bed, "2001:db8::1").len(), 25);
    assert_eq!(fill(&mut bed, "2001:db8::2").len(), 0, "the same subnet");
    for (client, file, open) in first {
        bed.home.close(client, &file, &open, bed.now).unwrap();
    }
    assert_eq!(bed.home.states_by_address.total(), 25);
    // What goes with its client counts no longer.
    bed.pass(LEASE + MOMENT);
    while bed
        .home
        .remove_courteous(bed.now, |one| !one.states.is_empty())
    {}
    assert_eq!(bed.home.states_by_address.total(), 0);
}
