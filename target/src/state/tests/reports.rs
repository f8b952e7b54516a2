//! What operators see of clients and their state, and what they end.

use std::net::IpAddr;

use super::*;

const BOTH: ShareMode = ShareMode::BOTH;

/// A client from an address, with an open and three locked ranges of a file.
fn holder(bed: &mut TestBed) -> (TestClient, Stateid, Stateid) {
    let client = bed.client_at(b"a", [192, 0, 2, 7].into());
    let open = bed.open_both(&client, b"o", file(1));
    let new = LockHolder::New { open, owner: b"l" };
    let mut lock = bed
        .lock(&client, file(1), new, (0, 10), LockMode::Write)
        .unwrap();
    for offset in [20, 40] {
        let known = LockHolder::Existing(lock);
        lock = bed
            .lock(&client, file(1), known, (offset, 10), LockMode::Read)
            .unwrap();
    }
    (client, open, lock)
}

fn states(bed: &TestBed, filter: StateFilter) -> Vec<StateReport> {
    let slice = bed.home.report_states(&filter, 0, 100, bed.now);
    assert_eq!(slice.next, None);
    slice.found
}

#[test]
fn a_report_says_who_a_client_is_and_what_it_has() {
    let mut bed = TestBed::new();
    let (client, open, lock) = holder(&mut bed);
    bed.pass(Duration::from_secs(5));
    let report = bed.home.report_client(client.id, bed.now).unwrap();
    assert_eq!(report.owner[..], b"a"[..]);
    assert_eq!(report.address, Some(IpAddr::from([192, 0, 2, 7])));
    assert_eq!((report.minor_version, report.sessions), (Some(2), 1));
    assert_eq!(report.age, Duration::from_secs(5));
    assert_eq!(report.lease_left, LEASE - Duration::from_secs(5));
    assert_eq!((report.silent, report.courtesy_left), (None, None));
    let counts = StateCounts {
        opens: 1,
        lock_states: 1,
        delegations: 0,
    };
    assert_eq!((report.counts, report.ranges), (counts, 3));
    assert_eq!(
        (report.revoked, report.callbacks),
        (0, CallbackHealth::Never)
    );

    let [first, second] = &states(&bed, StateFilter::default())[..] else {
        panic!("two states");
    };
    assert_eq!((first.stateid, first.client), (open, client.id));
    assert_eq!((first.file, first.address), (file(1), report.address));
    assert_eq!(first.age, Duration::from_secs(5));
    let owner = b"o"[..].into();
    let (access, deny) = (BOTH, ShareMode::NONE);
    let detail = StateReportDetail::Open {
        owner,
        access,
        deny,
    };
    assert_eq!(first.detail, detail);
    let range = |offset| ByteRange::new(offset, 10).unwrap();
    let ranges = vec![
        (range(0), LockMode::Write),
        (range(20), LockMode::Read),
        (range(40), LockMode::Read),
    ];
    let detail = StateReportDetail::Lock {
        owner: b"l"[..].into(),
        ranges,
        range_count: 3,
        waiters: 0,
    };
    assert_eq!((second.stateid, &second.detail), (lock, &detail));
}

#[test]
fn a_silent_client_is_shown_with_the_rest_of_its_courtesy() {
    let mut bed = TestBed::new();
    let (client, ..) = holder(&mut bed);
    let late = Duration::from_secs(10);
    bed.pass(LEASE + late);
    let report = bed.home.report_client(client.id, bed.now).unwrap();
    assert_eq!(
        (report.lease_left, report.silent),
        (Duration::ZERO, Some(late))
    );
    let courtesy = StateConfig::default().courtesy;
    assert_eq!(report.courtesy_left, Some(courtesy - late));
}

#[test]
fn lists_come_in_slices_and_by_client_file_and_kind() {
    let mut bed = TestBed::new();
    let (first, ..) = holder(&mut bed);
    let second = bed.client(b"b");
    for number in 1..=9 {
        bed.open_both(&second, b"o", file(number));
    }
    let ids = |slice: &ReportSlice<ClientReport>| -> Vec<ClientId> {
        slice.found.iter().map(|one| one.id).collect()
    };
    let slice = bed.home.report_clients(0, 1, bed.now);
    assert_eq!(ids(&slice), [first.id]);
    let slice = bed.home.report_clients(slice.next.unwrap(), 1, bed.now);
    assert_eq!((ids(&slice), slice.next), (vec![second.id], None));

    let all = states(&bed, StateFilter::default());
    assert_eq!(all.len(), 11);
    let (mut found, mut next, mut slices) = (Vec::new(), Some(0), 0);
    while let Some(first) = next {
        let slice = bed
            .home
            .report_states(&StateFilter::default(), first, 4, bed.now);
        assert!(slice.found.len() <= 4);
        found.extend(slice.found);
        (next, slices) = (slice.next, slices + 1);
    }
    assert_eq!((found, slices), (all, 3));

    let of = |client, export, kind| StateFilter {
        client,
        address: None,
        export,
        kind,
    };
    let count = |filter| states(&bed, filter).len();
    assert_eq!(count(of(Some(first.id), None, None)), 2);
    assert_eq!(count(of(Some(first.id), None, Some(StateKind::Lock))), 1);
    assert_eq!(count(of(None, None, Some(StateKind::Open))), 10);
    assert_eq!(count(of(None, Some(7), None)), 11);
    assert_eq!(count(of(None, Some(8), None)), 0);
}

#[test]
fn state_of_an_address_is_found_among_much_of_others() {
    let mut bed = TestBed::with(StateConfig {
        states: 1 << 15,
        states_per_client: 1 << 15,
        opens_per_file: 1 << 15,
        ..small_config()
    });
    let other = bed.client(b"a");
    let here = IpAddr::from([192, 0, 2, 8]);
    let clients = [b"b", b"c"].map(|owner| bed.client_at(owner, here));
    // More than a slice looks at, before the first and between the others.
    for number in 0..20_000_u32 {
        bed.open_both(&other, &number.to_be_bytes(), file(1));
    }
    for number in 2..=4 {
        for client in &clients {
            bed.open_both(client, b"o", file(number));
        }
        bed.open_both(&other, b"o", file(number));
    }
    let filter = StateFilter {
        address: Some(here),
        ..StateFilter::default()
    };
    let (mut found, mut next, mut slices) = (Vec::new(), Some(0), 0);
    while let Some(first) = next {
        let slice = bed.home.report_states(&filter, first, 4, bed.now);
        found.extend(slice.found.iter().map(|one| (one.client, one.file)));
        (next, slices) = (slice.next, slices + 1);
    }
    let expected: Vec<_> = (2..=4)
        .flat_map(|number| clients.each_ref().map(|client| (client.id, file(number))))
        .collect();
    assert_eq!((found, slices), (expected, 2));
    // Of one client of several conditions, all hold.
    let of = |address: IpAddr| StateFilter {
        client: Some(clients[0].id),
        address: Some(address),
        ..StateFilter::default()
    };
    assert_eq!(states(&bed, of(here)).len(), 3);
    assert_eq!(states(&bed, of([192, 0, 2, 9].into())).len(), 0);
    // One with too much is looked for in slices.
    let filter = StateFilter {
        client: Some(other.id),
        kind: Some(StateKind::Lock),
        ..StateFilter::default()
    };
    let slice = bed.home.report_states(&filter, 0, 10, bed.now);
    assert_eq!((slice.found.len(), slice.next), (0, Some(1 << 14)));
}

#[test]
fn a_slice_of_a_search_that_finds_little_ends_too() {
    let mut bed = TestBed::with(StateConfig {
        states: 1 << 15,
        states_per_client: 1 << 15,
        opens_per_file: 1 << 15,
        ..small_config()
    });
    let client = bed.client(b"a");
    for number in 0..20_000_u32 {
        bed.open_both(&client, &number.to_be_bytes(), file(1));
    }
    let filter = StateFilter {
        kind: Some(StateKind::Lock),
        ..StateFilter::default()
    };
    let slice = bed.home.report_states(&filter, 0, 10, bed.now);
    assert_eq!((slice.found.len(), slice.next), (0, Some(1 << 14)));
    let slice = bed.home.report_states(&filter, 1 << 14, 10, bed.now);
    assert_eq!((slice.found.len(), slice.next), (0, None));
}

#[test]
fn v4_deleg_28_state_that_an_administrator_revokes_is_shown_until_the_client_knows() {
    let mut bed = TestBed::new();
    let (client, open, lock) = holder(&mut bed);
    assert!(bed.home.revoke_named(lock.other));
    assert!(!bed.home.revoke_named(lock.other), "it is revoked already");
    assert!(!bed.home.revoke_named([9; 12]));
    let revoked = bed.home.test_stateids(client.id, &[open, lock]);
    let refused = || Err(StateError::AdminRevoked);
    assert_eq!(revoked, [refused(), refused()]);
    let conditions = client.session.conditions();
    assert!(conditions.contains(SessionConditions::ADMIN_REVOKED));
    let report = bed.home.report_client(client.id, bed.now).unwrap();
    assert_eq!(
        (report.counts, report.ranges, report.revoked),
        (StateCounts::default(), 0, 2)
    );
    let shown = bed.home.report_state(lock.other, bed.now).unwrap();
    let reason = Revocation::Administrative;
    assert_eq!(shown.detail, StateReportDetail::Revoked(reason));
    bed.home.free_stateid(client.id, &lock).unwrap();
    assert_eq!(bed.home.report_state(lock.other, bed.now), None);
}

#[test]
fn a_client_that_an_administrator_ends_leaves_its_locks_to_others() {
    let mut bed = TestBed::new();
    let (client, open, _) = holder(&mut bed);
    let other = bed.client(b"b");
    let theirs = bed.open_both(&other, b"o", file(1));
    let new = LockHolder::New {
        open: theirs,
        owner: b"l",
    };
    let refused = bed.lock(&other, file(1), new, (0, 1), LockMode::Write);
    assert!(matches!(refused, Err(StateError::Denied(_))));
    assert!(bed.home.end_client(client.id));
    assert!(!bed.home.end_client(client.id));
    assert_eq!(bed.home.report_client(client.id, bed.now), None);
    assert_eq!(
        bed.find(client.session.id()).err(),
        Some(StateError::BadSession)
    );
    let gone = bed.io(&client, file(1), open, IoKind::Read);
    assert_eq!(gone, Err(StateError::BadStateid));
    bed.lock(&other, file(1), new, (0, 1), LockMode::Write)
        .unwrap();
    assert_eq!(states(&bed, StateFilter::default()).len(), 2);
}
