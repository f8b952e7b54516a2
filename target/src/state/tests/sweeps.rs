//! State that goes in steps, and what one client can make others wait for.

use super::lasting_delegations::{WANTED, make_callable};
use super::recovery::RecordDisk;
use super::*;

const BOTH: ShareMode = ShareMode::BOTH;
const NONE: ShareMode = ShareMode::NONE;
const MOMENT: Duration = Duration::from_nanos(1);

/// A home in which a step takes one piece of state.
fn slow_bed() -> TestBed {
    TestBed::with(StateConfig {
        states_per_step: 1,
        ..small_config()
    })
}

impl TestBed {
    /// A client that has opened ten files and denies them to others.
    fn greedy(&mut self, owner: &[u8]) -> (TestClient, Vec<Stateid>) {
        let client = self.client(owner);
        let open = |number| self.open(&client, b"o", file(number), BOTH, BOTH);
        let opens = (0..10).map(open).map(|open| open.unwrap().stateid);
        let opens = opens.collect();
        (client, opens)
    }

    fn sweep_all(&mut self) {
        while self.home.has_sweeps() {
            let before = self.home.states.len();
            assert!(self.home.sweep_states() > 0);
            assert!(before - self.home.states.len() <= 1, "one step");
        }
        assert_eq!(self.home.sweep_states(), 0);
    }
}

#[test]
fn a_client_that_is_gone_leaves_state_that_nobody_waits_for() {
    let mut bed = slow_bed();
    let (gone, opens) = bed.greedy(b"a");
    let holder = LockHolder::New {
        open: opens[8],
        owner: b"l",
    };
    bed.lock(&gone, file(8), holder, (0, 9), LockMode::Write)
        .unwrap();
    bed.renew(&gone);
    let again = bed.exchange(b"a", 2).unwrap();
    bed.create(again.client_id, again.sequence_id).unwrap();
    bed.home.reclaim_complete(again.client_id, bed.now).unwrap();
    assert_eq!(bed.home.client_count(), 1);
    assert!(bed.home.has_sweeps());
    assert!(bed.home.states.len() >= 10);
    let removed = StateEvent::ClientRemoved { client: gone.id };
    assert!(bed.events().contains(&removed));
    let shown = bed.home.report_clients(0, 10, bed.now).found;
    assert_eq!(shown.len(), 1);

    let other = bed.client(b"b");
    bed.open(&other, b"o", file(9), BOTH, BOTH).unwrap();
    let open = bed.open_both(&other, b"o", file(8));
    let holder = LockHolder::New { open, owner: b"m" };
    bed.lock(&other, file(8), holder, (0, 9), LockMode::Write)
        .unwrap();
    assert_eq!(
        bed.home.check_io(
            other.id,
            &file(7),
            &Stateid::ANONYMOUS,
            IoKind::Write,
            bed.now
        ),
        Ok(IoGrant::Permissions)
    );
    bed.sweep_all();
    assert_eq!(bed.home.states.len(), 3, "those of the other client");
    assert_eq!(bed.home.states_by_address.total(), 0);
    assert!(bed.home.open_owners.get(0).is_none());
    let figures = bed.home.figures(bed.now);
    assert_eq!((figures.opens, figures.lock_states), (2, 1));
}

#[test]
fn delegations_of_a_client_that_is_gone_are_not_recalled() {
    let mut bed = slow_bed();
    let gone = bed.client(b"a");
    make_callable(&mut bed, &gone);
    for number in 0..4 {
        bed.open_both(&gone, b"o", file(number));
        let now = bed.now;
        let granted = bed.home.delegate(gone.id, file(number), BOTH, &WANTED, now);
        assert!(matches!(granted, DelegationOutcome::Granted { .. }));
    }
    bed.renew(&gone);
    assert!(bed.home.end_client(gone.id));
    assert!(bed.home.has_sweeps());
    let other = bed.client(b"b");
    for number in (0..4).rev() {
        bed.open_both(&other, b"o", file(number));
    }
    assert_eq!(bed.home.take_callback(bed.now), None);
    bed.sweep_all();
    assert!(bed.home.views().delegations.is_empty());
    assert!(bed.home.delegated.is_empty());
}

#[test]
fn v4_lease_06_the_state_of_an_expired_client_is_revoked_in_steps() {
    let mut bed = slow_bed();
    let (silent, opens) = bed.greedy(b"a");
    let other = bed.client(b"b");
    bed.pass(LEASE + MOMENT);
    bed.renew(&other);
    bed.open(&other, b"o", file(7), BOTH, BOTH).unwrap();
    let is_revoked = |bed: &mut TestBed, number: u8| {
        let (key, open) = (file(number), opens[usize::from(number)]);
        bed.io(&silent, key, open, IoKind::Write) == Err(StateError::Expired)
    };
    let fences = bed.home.views().fences;
    let registers = [0, 1].map(|reactor| IoRegister::new(Arc::clone(&fences), reactor));
    let passes_fence = |now| {
        let was_raised = !fences.is_clear();
        registers.iter().for_each(|register| register.poll(now));
        was_raised && fences.is_clear()
    };
    assert!(passes_fence(bed.now));
    bed.open(&other, b"o", file(8), BOTH, BOTH).unwrap();
    assert!(passes_fence(bed.now));
    for number in [7, 8] {
        assert!(is_revoked(&mut bed, number), "it was asked for");
    }
    assert!(!is_revoked(&mut bed, 9));
    // It is back, too late for what it had, and in time for what it gets now.
    bed.pass(MOMENT);
    bed.renew(&silent);
    let later = bed.open_both(&silent, b"o", file(20));
    assert_eq!(silent.session.conditions(), SessionConditions::EXPIRED_SOME);
    // Nobody begins from the front again.
    assert_eq!(bed.home.sweeps.len(), 1);
    bed.home.sweep_states();
    assert!(passes_fence(bed.now));
    bed.sweep_all();
    for number in 0..10 {
        assert!(is_revoked(&mut bed, number));
        let open = &opens[usize::from(number)];
        assert_eq!(bed.home.free_stateid(silent.id, open), Ok(()));
    }
    assert!(silent.session.conditions().is_empty());
    assert_eq!(
        bed.io(&silent, file(20), later, IoKind::Write),
        Ok(IoGrant::Open)
    );

    // The same again.
    let open = bed.open(&silent, b"o", file(5), BOTH, BOTH).unwrap();
    bed.pass(LEASE + MOMENT);
    bed.renew(&other);
    bed.open(&other, b"o", file(5), BOTH, BOTH).unwrap();
    bed.sweep_all();
    for (number, open) in [(5, open.stateid), (20, later)] {
        let refused = bed.io(&silent, file(number), open, IoKind::Write);
        assert_eq!(refused, Err(StateError::Expired));
    }
}

#[test]
fn v4_lease_09_a_client_is_not_recorded_while_its_state_is_revoked() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    bed.home.config.states_per_step = 1;
    let [silent, other] = [b"a", b"b"].map(|owner| bed.client(owner));
    let terms = OpenTerms {
        is_lasting: true,
        ..OpenTerms::default()
    };
    let open = |bed: &mut TestBed, disk: &mut RecordDisk, client: &TestClient, number| {
        let id = client.id;
        let opened = disk.settle(bed, |bed| {
            let (home, now) = (&mut bed.home, bed.now);
            home.open_under(terms, id, b"o", file(number), (BOTH, BOTH), now)
        });
        opened.unwrap().stateid
    };
    let opens = [0, 1, 2, 3].map(|number| open(&mut bed, &mut disk, &silent, number));
    bed.pass(LEASE + MOMENT);
    bed.renew(&other);
    open(&mut bed, &mut disk, &other, 3);
    bed.renew(&silent);
    let is_recorded = |bed: &mut TestBed, disk: &mut RecordDisk| {
        // It frees all that it has lost by now.
        for open in &opens {
            let _ = bed.home.free_stateid(silent.id, open);
        }
        let now = bed.now;
        bed.home.expire_clients(now);
        disk.write(bed);
        disk.clients.contains_key(&b"a"[..])
    };
    assert!(!is_recorded(&mut bed, &mut disk));
    assert!(bed.home.has_sweeps());
    bed.sweep_all();
    assert!(!is_recorded(&mut bed, &mut disk));
    open(&mut bed, &mut disk, &silent, 1);
    assert!(is_recorded(&mut bed, &mut disk));
}

#[test]
fn v4_lease_06_an_expired_client_can_go_while_its_state_is_revoked() {
    let mut bed = slow_bed();
    let (silent, _) = bed.greedy(b"a");
    let other = bed.client(b"b");
    bed.pass(LEASE + MOMENT);
    bed.renew(&other);
    bed.open(&other, b"o", file(7), BOTH, BOTH).unwrap();
    assert!(bed.home.end_client(silent.id));
    while bed.home.has_sweeps() {
        bed.home.sweep_states();
    }
    assert_eq!(bed.home.states.len(), 1);
}

#[test]
fn v4_lease_05_clients_whose_leases_have_run_out_go_in_steps() {
    let mut bed = TestBed::with(StateConfig {
        clients: 1000,
        ..small_config()
    });
    for number in 0..600_u32 {
        bed.exchange(&number.to_be_bytes(), 1).unwrap();
    }
    bed.pass(LEASE + MOMENT);
    for left in [344, 88, 0] {
        bed.home.expire_clients(bed.now);
        assert_eq!(bed.home.client_count(), left);
    }
}

#[test]
fn v4_lease_05_what_is_left_of_a_client_makes_room_first() {
    let mut bed = TestBed::with(StateConfig {
        states_per_step: 1,
        states: 12,
        clients: 3,
        opens_per_file: 1,
        ..small_config()
    });
    let (gone, _) = bed.greedy(b"a");
    let kept = bed.client(b"b");
    for number in 10..12 {
        bed.open_both(&kept, b"o", file(number));
    }
    bed.pass(LEASE + MOMENT);
    assert!(bed.home.end_client(gone.id));
    // All of it and the first client's index are in use; nobody else loses anything for that.
    bed.client(b"c");
    assert_eq!(bed.exchange(b"d", 1), Err(StateError::Delay));
    assert_eq!(bed.home.client_count(), 2);
    bed.renew(&kept);
    assert_eq!(bed.home.states.len(), 10);
    for number in [30, 31, 32, 9] {
        bed.open_both(&kept, b"o", file(number));
    }
    assert_eq!(bed.home.states.len(), 12);
    bed.sweep_all();
    assert_eq!(bed.home.states.len(), 6);
    assert!(bed.exchange(b"d", 1).is_ok());
    let full = bed.open(&kept, b"p", file(30), BOTH, NONE);
    assert_eq!(full, Err(StateError::NoSpc));
}

#[test]
fn v4_lock_24_io_of_a_client_that_was_ended_by_hand_ends_before_others_are_granted_anything() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open_both(&client, b"o", file(1));
    let fences = bed.home.views().fences;
    assert!(bed.home.end_client(client.id));
    assert!(!fences.is_clear());
}

#[test]
fn v4_lock_24_io_that_begins_after_a_revocation_is_not_waited_for() {
    let fences = Arc::new(IoFences::new(1));
    let register = std::rc::Rc::new(IoRegister::new(Arc::clone(&fences), 0));
    fences.raise(ClientId(1));
    let later = register.begin(ClientId(1), &file(1));
    register.poll(Duration::ZERO);
    assert!(fences.is_clear());
    fences.raise(ClientId(1));
    register.poll(Duration::ZERO);
    assert!(!fences.is_clear());
    drop(later);
    assert!(fences.is_clear());
}

#[test]
fn v4_lock_23_an_open_has_a_bounded_number_of_lock_owners_which_it_frees_at_once() {
    let mut bed = TestBed::with(StateConfig {
        lock_owners_per_open: 3,
        ..small_config()
    });
    let [one, other] = [b"a", b"b"].map(|owner| bed.client(owner));
    let open = bed.open_both(&one, b"o", file(1));
    let lock = |bed: &mut TestBed, owner: u8| {
        let owner = &[owner][..];
        let holder = LockHolder::New { open, owner };
        bed.lock(&one, file(1), holder, (0, 4), LockMode::Read)
    };
    let locks: Vec<_> = (0..3).map(|owner| lock(&mut bed, owner).unwrap()).collect();
    assert_eq!(lock(&mut bed, 3), Err(StateError::NoSpc));
    assert!(lock(&mut bed, 2).is_ok(), "it is known");
    bed.unlock(&one, file(1), locks[0], (0, 4)).unwrap();
    assert_eq!(
        bed.home.free_stateid(one.id, &locks[0]),
        Err(StateError::OldStateid)
    );
    let unlocked = Stateid {
        sequence: 0,
        ..locks[0]
    };
    assert_eq!(bed.home.free_stateid(one.id, &unlocked), Ok(()));
    lock(&mut bed, 3).unwrap();

    // Whoever waits for all of them is told once, and waits for none.
    let others = bed.open_both(&other, b"o", file(1));
    let request = LockRequest {
        client: other.id,
        file: file(1),
        holder: LockHolder::New {
            open: others,
            owner: b"w",
        },
        range: ByteRange::new(0, 4).unwrap(),
        mode: LockMode::Write,
        waits: true,
        reclaims: false,
    };
    let denied = bed.home.lock(&request, bed.now);
    assert!(matches!(denied, Err(StateError::Denied(_))));
    bed.home.close(one.id, &file(1), &open, bed.now).unwrap();
    let told = bed.events();
    assert!(matches!(told[..], [StateEvent::LockAvailable { .. }]));
    assert_eq!(bed.home.states.len(), 1);
    assert!(bed.home.lock(&request, bed.now).is_ok());
}

#[test]
fn v4_lock_11_waiters_behind_many_ranges_are_notified_as_far_as_that_is_little_work() {
    let mut bed = TestBed::with(StateConfig {
        ranges_per_file: 3000,
        ranges_per_client: 3000,
        waiters_per_file: 600,
        ..small_config()
    });
    let [one, other] = [b"a", b"b"].map(|owner| bed.client(owner));
    let [open, others] = [&one, &other].map(|client| bed.open_both(client, b"o", file(1)));
    let holder = LockHolder::New { open, owner: b"l" };
    let end = 1 << 40;
    let mut lock = bed
        .lock(&one, file(1), holder, (end, 1), LockMode::Write)
        .unwrap();
    for number in 0..2100 {
        let holder = LockHolder::Existing(lock);
        lock = bed
            .lock(&one, file(1), holder, (number * 2, 1), LockMode::Read)
            .unwrap();
    }
    for number in 0..600_u32 {
        let request = LockRequest {
            client: other.id,
            file: file(1),
            holder: LockHolder::New {
                open: others,
                owner: &number.to_be_bytes(),
            },
            range: ByteRange::new(0, u64::MAX).unwrap(),
            mode: LockMode::Read,
            waits: true,
            reclaims: false,
        };
        assert!(bed.home.lock(&request, bed.now).is_err());
    }
    bed.unlock(&one, file(1), lock, (end, 1)).unwrap();
    assert_eq!(bed.events().len(), (1 << 20) / 2100);
}

/// One of many files.
fn numbered(number: u32) -> FileKey {
    FileKey {
        export: 7,
        object: Handle::new(&number.to_be_bytes()).unwrap(),
    }
}

/// More than a client is called about at once.
const RECALLED: u32 = 300;

/// A client with delegations of files, all of which another one wants.
fn recalled_bed() -> (TestBed, TestClient, Vec<Stateid>) {
    let mut bed = TestBed::with(StateConfig {
        states: 1000,
        states_per_client: 1000,
        states_per_step: 7,
        ..small_config()
    });
    let client = bed.client(b"a");
    make_callable(&mut bed, &client);
    let other = bed.client(b"b");
    let mut delegations = Vec::new();
    for key in (0..RECALLED).map(numbered) {
        let open = bed.open_both(&client, b"o", key);
        let granted = bed.home.delegate(client.id, key, BOTH, &WANTED, bed.now);
        let DelegationOutcome::Granted { stateid, .. } = granted else {
            panic!("{granted:?}");
        };
        delegations.push(stateid);
        bed.home.close(client.id, &key, &open, bed.now).unwrap();
        let wanted = bed.open(&other, b"o", key, BOTH, NONE);
        assert_eq!(wanted, Err(StateError::Delay));
    }
    (bed, client, delegations)
}

#[test]
fn v4_deleg_18_nothing_is_revoked_of_which_the_client_was_not_asked() {
    let (mut bed, client, delegations) = recalled_bed();
    // It returns the last one of its own accord.
    let last = RECALLED - 1;
    let returned = delegations[last as usize];
    let behind = |bed: &TestBed| bed.home.callbacks.recalls_behind(client.id);
    let before = behind(&bed);
    bed.home
        .return_delegation(client.id, &numbered(last), &returned)
        .unwrap();
    assert_eq!(behind(&bed), before - 1, "that is not kept");
    let mut called = Vec::new();
    while let Some(order) = bed.home.take_callback(bed.now) {
        let CallbackSubject::Recall { stateid, file, .. } = order.subject else {
            panic!("{order:?}");
        };
        called.push(stateid);
        let taken = CallbackOutcome::Taken {
            answer: CallbackAnswer::Done,
            target_slot: 15,
        };
        bed.home.callback_ended(order.ticket, taken, bed.now);
        bed.home
            .return_delegation(client.id, &file, &stateid)
            .unwrap();
    }
    assert_eq!(called, delegations[..last as usize]);
    bed.pass(LEASE * 3);
    assert_eq!(bed.home.end_recalls(bed.now), 0);
    assert_eq!(bed.home.next_callback(), None);
}

#[test]
fn v4_deleg_18_many_delegations_are_revoked_in_steps() {
    let (mut bed, client, delegations) = recalled_bed();
    bed.pass(LEASE);
    assert_eq!(bed.home.end_recalls(bed.now), 0);
    bed.pass(MOMENT);
    let mut left = RECALLED as usize;
    while left > 0 {
        assert!(bed.home.next_callback() <= Some(bed.now));
        assert_eq!(bed.home.end_recalls(bed.now), left.min(7));
        left -= left.min(7);
        assert_eq!(bed.home.recalled.len(), left);
    }
    let refused = bed.home.test_stateids(client.id, &delegations);
    assert!(
        refused
            .iter()
            .all(|one| *one == Err(StateError::DelegRevoked))
    );
}
