//! Delegations of files that other servers change as well, each with a lease of the file
//! (RFC 8881 section 10.2).

use std::sync::Weak;

use millrace_store::{FileLease, LeaseBreak};

use super::lasting_delegations::{WANTED, make_callable};
use super::recovery::RecordDisk;
use super::*;

const READ: ShareMode = ShareMode::READ;
const NONE: ShareMode = ShareMode::NONE;

/// How long the others wait.
const TIME: Duration = Duration::from_secs(10);

const LEASED: DelegationRequest = DelegationRequest {
    sharing: FileSharing::Leased,
    is_lasting: false,
    ..WANTED
};

/// The store's side of a lease.
struct TestLease {
    end: LeaseBreak,
    held: Weak<()>,
}

impl TestLease {
    fn has_ended(&self) -> bool {
        self.held.upgrade().is_none()
    }
}

impl TestBed {
    /// A lease of a file as a store gives it.
    fn lease(&self, key: FileKey) -> (FileLease, TestLease) {
        let told = self.home.views().broken_leases;
        let end = LeaseBreak::new(move || told.tell(key));
        let alive = Arc::new(());
        let held = Arc::downgrade(&alive);
        let lease = FileLease::new(alive, end.clone(), TIME);
        (lease, TestLease { end, held })
    }

    /// A client that callbacks reach.
    fn callable(&mut self, owner: &[u8]) -> TestClient {
        let client = self.client(owner);
        make_callable(self, &client);
        client
    }

    /// What a client gets with an open for reading.
    fn wish(&mut self, client: &TestClient, key: FileKey) -> DelegationOutcome {
        self.open(client, b"o", key, READ, NONE).unwrap();
        let now = self.now;
        self.home.delegate(client.id, key, READ, &LEASED, now)
    }

    /// Gives a client a delegation of a file.
    fn leased(&mut self, client: &TestClient, key: FileKey) -> (Stateid, TestLease) {
        assert_eq!(self.wish(client, key), DelegationOutcome::NeedsLease);
        let (lease, taken) = self.lease(key);
        let now = self.now;
        let outcome = self
            .home
            .delegate_leased(client.id, key, &LEASED, Some(lease), now);
        let DelegationOutcome::Granted {
            stateid,
            writes: false,
            is_recalled: false,
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        (stateid, taken)
    }

    fn change(&mut self, client: Option<&TestClient>, key: FileKey) -> Result<(), StateError> {
        let (client, now) = (client.map(|client| client.id), self.now);
        self.home.check_use(client, &key, FileUse::Change, now)
    }

    /// The clients that are told to return a delegation.
    fn recalls(&mut self) -> Vec<(ClientId, Stateid)> {
        let mut recalls = Vec::new();
        while let Some(order) = self.home.take_callback(self.now) {
            if let CallbackSubject::Recall { stateid, .. } = order.subject {
                recalls.push((order.client, stateid));
            }
        }
        recalls
    }

    fn is_in_force(&mut self, client: &TestClient, stateid: Stateid) -> bool {
        self.home.test_stateids(client.id, &[stateid])[0].is_ok()
    }
}

#[test]
fn a_delegation_lasts_as_long_as_its_lease() {
    let mut bed = TestBed::new();
    let client = bed.callable(b"a");
    let (stateid, lease) = bed.leased(&client, file(1));
    assert!(!lease.has_ended());
    assert_eq!(bed.home.end_broken_leases(bed.now), 0);
    // Another server wants to change the file.
    lease.end.announce();
    lease.end.announce();
    assert_eq!(bed.home.end_broken_leases(bed.now), 1);
    assert_eq!(bed.recalls(), [(client.id, stateid)]);
    assert!(!lease.has_ended(), "until it is returned");
    bed.home
        .return_delegation(client.id, &file(1), &stateid)
        .unwrap();
    assert!(lease.has_ended());
}

#[test]
fn none_is_granted_with_a_lease_that_is_broken_already() {
    let mut bed = TestBed::new();
    let client = bed.callable(b"a");
    assert_eq!(bed.wish(&client, file(1)), DelegationOutcome::NeedsLease);
    let (lease, taken) = bed.lease(file(1));
    taken.end.announce();
    bed.home.end_broken_leases(bed.now);
    let (now, id) = (bed.now, client.id);
    let outcome = bed
        .home
        .delegate_leased(id, file(1), &LEASED, Some(lease), now);
    assert_eq!(outcome, DelegationOutcome::Contention);
    assert!(taken.has_ended());
    // It is not tried again for a while.
    assert_eq!(bed.wish(&client, file(1)), DelegationOutcome::Contention);
    bed.now += Duration::from_secs(30);
    let now = bed.now;
    assert_eq!(bed.wish(&client, file(1)), DelegationOutcome::NeedsLease);
    let outcome = bed.home.delegate_leased(id, file(1), &LEASED, None, now);
    assert_eq!(outcome, DelegationOutcome::Contention);
    assert_eq!(bed.wish(&client, file(1)), DelegationOutcome::Contention);
    // And none if the file was opened for writing while the lease was taken.
    let (lease, taken) = bed.lease(file(2));
    assert_eq!(bed.wish(&client, file(2)), DelegationOutcome::NeedsLease);
    let other = bed.client(b"b");
    bed.open(&other, b"o", file(2), ShareMode::WRITE, NONE)
        .unwrap();
    let outcome = bed
        .home
        .delegate_leased(id, file(2), &LEASED, Some(lease), now);
    assert_eq!(outcome, DelegationOutcome::Contention);
    assert!(taken.has_ended());
}

#[test]
fn no_file_is_delegated_for_writing_that_others_change_too() {
    let mut bed = TestBed::new();
    let client = bed.callable(b"a");
    bed.open(&client, b"o", file(1), ShareMode::BOTH, NONE)
        .unwrap();
    let (id, now) = (client.id, bed.now);
    let outcome = bed
        .home
        .delegate(id, file(1), ShareMode::BOTH, &LEASED, now);
    assert_eq!(outcome, DelegationOutcome::Contention);
}

#[test]
fn the_holder_returns_it_before_its_own_change() {
    // The lease is in the way of all changes by this server, also of those for the holder.
    let mut bed = TestBed::new();
    let client = bed.callable(b"a");
    let (stateid, lease) = bed.leased(&client, file(1));
    assert_eq!(bed.change(Some(&client), file(1)), Err(StateError::Delay));
    assert_eq!(bed.recalls(), [(client.id, stateid)]);
    let write = bed.open(&client, b"o", file(1), ShareMode::WRITE, NONE);
    assert_eq!(write.err(), Some(StateError::Delay));
    bed.home
        .return_delegation(client.id, &file(1), &stateid)
        .unwrap();
    assert!(lease.has_ended());
    assert_eq!(bed.change(Some(&client), file(1)), Ok(()));
}

#[test]
fn the_lease_ends_in_time_and_others_wait_for_a_client_once() {
    let mut bed = TestBed::new();
    let [client, other] = [b"a", b"b"].map(|owner| bed.callable(owner));
    let (first, broken) = bed.leased(&client, file(1));
    let (second, kept) = bed.leased(&client, file(2));
    let (others, of_other) = bed.leased(&other, file(2));
    broken.end.announce();
    bed.home.end_broken_leases(bed.now);
    bed.now += TIME;
    bed.home.end_recalls(bed.now);
    assert!(bed.is_in_force(&client, first));
    assert!(!broken.has_ended());
    bed.now += Duration::from_millis(1);
    bed.home.end_recalls(bed.now);
    assert!(!bed.is_in_force(&client, first));
    assert!(broken.has_ended());
    // All others of this client are recalled with it, and it gets no more.
    let recalls = bed.recalls();
    assert!(recalls.contains(&(client.id, second)), "{recalls:?}");
    assert!(!recalls.contains(&(other.id, others)), "{recalls:?}");
    assert_eq!(bed.wish(&client, file(3)), DelegationOutcome::Resource);
    assert_eq!(bed.wish(&other, file(3)), DelegationOutcome::NeedsLease);
    bed.now += TIME + Duration::from_millis(1);
    bed.home.end_recalls(bed.now);
    assert!(kept.has_ended());
    assert!(!of_other.has_ended());
    assert!(bed.is_in_force(&other, others));
}

#[test]
fn a_client_that_keeps_a_lease_is_asked_for_the_others_once_and_in_steps() {
    let mut bed = TestBed::new();
    bed.home.config.states_per_step = 1;
    let client = bed.callable(b"a");
    let numbers = 1..=5;
    let leased: Vec<_> = numbers
        .map(|number| bed.leased(&client, file(number)))
        .collect();
    let is_called = |bed: &mut TestBed, expected: &[(Stateid, TestLease)]| {
        let called: Vec<_> = bed.recalls().iter().map(|(_, stateid)| *stateid).collect();
        let expected: Vec<_> = expected.iter().map(|(stateid, _)| *stateid).collect();
        called == expected
    };
    for (_, lease) in &leased[..2] {
        lease.end.announce();
    }
    for broken in [1, 1, 0] {
        assert_eq!(bed.home.end_broken_leases(bed.now), broken);
    }
    assert!(is_called(&mut bed, &leased[..2]));
    bed.now += TIME + Duration::from_millis(1);
    assert_eq!(bed.home.end_recalls(bed.now), 1);
    let mut steps = 0;
    while bed.home.has_sweeps() {
        bed.home.sweep_states();
        steps += 1;
    }
    assert!(steps >= 5);
    assert!(is_called(&mut bed, &leased[2..]));
    assert_eq!(bed.home.end_recalls(bed.now), 1);
    assert_eq!(bed.home.end_recalls(bed.now), 0);
    bed.now += TIME + Duration::from_millis(1);
    for _ in &leased[2..] {
        assert_eq!(bed.home.end_recalls(bed.now), 1);
        assert!(!bed.home.has_sweeps());
    }
    assert!(leased.iter().all(|(_, lease)| lease.has_ended()));
}

#[test]
fn an_open_under_the_delegation_does_not_prolong_the_wait() {
    let mut bed = TestBed::new();
    let client = bed.callable(b"a");
    let (stateid, lease) = bed.leased(&client, file(1));
    lease.end.announce();
    bed.home.end_broken_leases(bed.now);
    bed.now += TIME / 2;
    bed.renew(&client);
    let now = bed.now;
    bed.home
        .claim_delegation(client.id, &file(1), &stateid, now)
        .unwrap();
    bed.now += TIME / 2 + Duration::from_millis(1);
    bed.home.end_recalls(bed.now);
    assert!(lease.has_ended());
}

#[test]
fn v4_deleg_18_a_client_whose_lease_has_expired_loses_it_at_once() {
    let mut bed = TestBed::new();
    let client = bed.callable(b"a");
    let (_, lease) = bed.leased(&client, file(1));
    bed.now += LEASE + Duration::from_secs(1);
    lease.end.announce();
    bed.home.end_broken_leases(bed.now);
    assert!(lease.has_ended());
    assert_eq!(bed.recalls(), []);
}

#[test]
fn v4_lease_31_one_that_is_reclaimed_without_its_lease_is_recalled_at_once() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    let client = bed.confirmed(b"a");
    make_callable(&mut bed, &client);
    let lasting = DelegationRequest {
        is_lasting: true,
        ..LEASED
    };
    let checked = |bed: &TestBed, writes| {
        let id = client.id;
        bed.home
            .check_delegation_reclaim(id, &file(1), writes, &lasting)
    };
    assert_eq!(checked(&bed, true), Err(StateError::ReclaimBad));
    assert_eq!(checked(&bed, false), Ok(()));
    disk.open(&mut bed, &client, true, (READ, NONE)).unwrap();
    let now = bed.now;
    let outcome = bed
        .home
        .reclaim_delegation(client.id, file(1), false, &lasting, now);
    let is_recalled = matches!(
        outcome,
        DelegationOutcome::Granted {
            is_recalled: true,
            writes: false,
            ..
        }
    );
    assert!(is_recalled, "{outcome:?}");
}
