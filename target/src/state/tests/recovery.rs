//! Grace periods and durable records (RFC 8881 sections 8.4.2 and 8.4.3), with a disk that the tests
//! keep.

use std::collections::BTreeMap;

use super::*;

const READ: ShareMode = ShareMode::READ;
const BOTH: ShareMode = ShareMode::BOTH;
const NONE: ShareMode = ShareMode::NONE;
const MOMENT: Duration = Duration::from_nanos(1);

/// The records as a disk has them.
#[derive(Default)]
pub(super) struct RecordDisk {
    pub clients: BTreeMap<Box<[u8]>, DurableClient>,
    start: u64,
    ended: u64,
    lease: Duration,
    progress: Arc<RecordProgress>,
}

impl RecordDisk {
    /// Starts the server, after a crash of the last one.
    pub fn start(&mut self) -> TestBed {
        let ended = self.ended;
        self.clients.retain(|_, client| client.start >= ended);
        self.start += 1;
        self.progress = Arc::default();
        let mut config = small_config();
        config.start[0] = u8::try_from(self.start).unwrap();
        let mut bed = TestBed::with(config);
        let recovered = RecoveredClients {
            start: self.start,
            clients: self.clients.values().cloned().collect(),
            lease: self.lease.max(LEASE),
        };
        bed.home.recover(recovered, self.progress.clone(), bed.now);
        bed
    }

    /// Makes durable what is to be durable, and returns the number of changes.
    pub fn write(&mut self, bed: &mut TestBed) -> usize {
        let Some((serial, changes)) = bed.home.take_record_changes() else {
            return 0;
        };
        assert!(bed.home.take_record_changes().is_none(), "one at a time");
        for change in &changes {
            match change {
                RecordChange::Keep(client) => {
                    self.clients.insert(client.owner.clone(), client.clone());
                }
                RecordChange::Forget(owner) => {
                    self.clients.remove(owner);
                }
                RecordChange::EndGrace => self.ended = self.start,
                RecordChange::Lease(lease) => self.lease = self.lease.max(*lease),
            }
        }
        self.progress.advance(serial);
        changes.len()
    }

    /// Repeats an operation until it depends on no record.
    pub fn settle<T>(
        &mut self,
        bed: &mut TestBed,
        mut run: impl FnMut(&mut TestBed) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        for _ in 0..4 {
            match run(bed) {
                Err(StateError::Unrecorded(_)) => assert!(self.write(bed) > 0),
                outcome => return outcome,
            }
        }
        panic!("it does not end");
    }

    pub fn complete(&mut self, bed: &mut TestBed, client: &TestClient) -> Result<(), StateError> {
        let id = client.id;
        self.settle(bed, |bed| bed.home.reclaim_complete(id, bed.now))
    }

    pub fn open(
        &mut self,
        bed: &mut TestBed,
        client: &TestClient,
        reclaims: bool,
        modes: (ShareMode, ShareMode),
    ) -> Result<Stateid, StateError> {
        self.settle(bed, |bed| open(bed, client, reclaims, modes))
    }

    fn lock(
        &mut self,
        bed: &mut TestBed,
        client: &TestClient,
        reclaims: bool,
        open: Stateid,
    ) -> Result<Stateid, StateError> {
        let request = LockRequest {
            client: client.id,
            file: file(1),
            holder: LockHolder::New { open, owner: b"l" },
            range: ByteRange::new(0, 10).unwrap(),
            mode: LockMode::Write,
            waits: false,
            reclaims,
        };
        self.settle(bed, |bed| bed.home.lock(&request, bed.now))
    }

    /// A client with an open, on a server without grace period.
    pub fn holder(&mut self, bed: &mut TestBed, owner: &[u8]) -> (TestClient, Stateid) {
        let client = bed.confirmed(owner);
        self.complete(bed, &client).unwrap();
        let open = self.open(bed, &client, false, (BOTH, NONE)).unwrap();
        (client, open)
    }
}

/// An open of a file that outlives the process.
fn open(
    bed: &mut TestBed,
    client: &TestClient,
    reclaims: bool,
    modes: (ShareMode, ShareMode),
) -> Result<Stateid, StateError> {
    let terms = OpenTerms {
        reclaims,
        is_lasting: true,
        is_delegable: false,
        is_shared: true,
    };
    let opened = bed
        .home
        .open_under(terms, client.id, b"o", file(1), modes, bed.now);
    opened.map(|outcome| outcome.stateid)
}

fn scan(bed: &mut TestBed) {
    let now = bed.now;
    bed.home.expire_clients(now);
}

#[test]
fn v4_lease_12_without_records_there_is_no_grace_period() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    assert_eq!(bed.home.grace(), None);
    disk.holder(&mut bed, b"a");
    assert_eq!(disk.ended, 1);
}

#[test]
fn v4_lease_25_nothing_is_granted_before_the_record_is_durable() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let client = bed.client(b"a");
    for _ in 0..2 {
        let refused = open(&mut bed, &client, false, (READ, NONE));
        assert!(matches!(refused, Err(StateError::Unrecorded(_))));
        assert_eq!(bed.home.states.len(), 0);
    }
    disk.open(&mut bed, &client, false, (READ, NONE)).unwrap();
    assert!(disk.clients.contains_key(&b"a"[..]));
    // What is known needs no other record.
    open(&mut bed, &client, false, (BOTH, NONE)).unwrap();
    assert_eq!(disk.write(&mut bed), 0);
}

#[test]
fn v4_lease_28_many_clients_are_recorded_together() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.write(&mut bed);
    let clients = [&b"a"[..], b"b", b"c"].map(|owner| bed.client(owner));
    for client in &clients {
        open(&mut bed, client, false, (READ, NONE)).unwrap_err();
    }
    assert_eq!(disk.write(&mut bed), 3);
    for client in &clients {
        open(&mut bed, client, false, (READ, NONE)).unwrap();
    }
}

#[test]
fn v4_lease_29_files_that_end_with_the_process_are_not_recorded() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.write(&mut bed);
    let client = bed.client(b"a");
    bed.open_both(&client, b"o", file(2));
    assert_eq!(disk.write(&mut bed), 0);
}

#[test]
fn v4_open_03_and_v4_lock_14_opens_and_locks_are_reclaimed_in_the_grace_period() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (client, stateid) = disk.holder(&mut bed, b"a");
    disk.lock(&mut bed, &client, false, stateid).unwrap();
    let outside = disk.open(&mut bed, &client, true, (BOTH, NONE));
    assert_eq!(outside, Err(StateError::NoGrace), "V4-LEASE-21");
    let outside = disk.lock(&mut bed, &client, true, stateid);
    assert_eq!(outside, Err(StateError::NoGrace));

    let figures = StateFigures {
        clients: 1,
        sessions: 1,
        opens: 1,
        lock_states: 1,
        ..StateFigures::default()
    };
    assert_eq!(bed.home.figures(bed.now), figures);

    let mut bed = disk.start();
    let figures = StateFigures {
        grace_clients: 1,
        grace_left: LEASE,
        ..StateFigures::default()
    };
    assert_eq!(bed.home.figures(bed.now), figures);
    let client = bed.confirmed(b"a");
    let needed = SessionConditions::RECLAIM_NEEDED;
    assert!(client.session.conditions().contains(needed), "V4-LEASE-24");
    let early = disk.open(&mut bed, &client, false, (BOTH, NONE));
    assert_eq!(early, Err(StateError::Grace), "V4-LEASE-17");
    bed.home.config.shared_denials = SharedDenials::Refused;
    let denying = disk.open(&mut bed, &client, true, (BOTH, READ));
    assert_eq!(denying, Err(StateError::ReclaimBad));
    let stateid = disk.open(&mut bed, &client, true, (BOTH, NONE)).unwrap();
    let early = disk.lock(&mut bed, &client, false, stateid);
    assert_eq!(early, Err(StateError::Grace));
    disk.lock(&mut bed, &client, true, stateid).unwrap();
    let io = bed.io(&client, file(1), stateid, IoKind::Write);
    assert_eq!(io, Ok(IoGrant::Open), "V4-LEASE-15");
    disk.complete(&mut bed, &client).unwrap();
    assert!(client.session.conditions().is_empty());
    assert_eq!(bed.home.grace(), None, "V4-LEASE-12");
    let late = disk.open(&mut bed, &client, true, (BOTH, NONE));
    assert_eq!(late, Err(StateError::NoGrace), "V4-LEASE-18");
    let other = bed.client(b"b");
    let stateid = disk.open(&mut bed, &other, false, (BOTH, NONE)).unwrap();
    let taken = disk.lock(&mut bed, &other, false, stateid);
    assert!(matches!(taken, Err(StateError::Denied(_))));
}

#[test]
fn v4_lease_14_others_wait_until_all_have_reclaimed_or_time_is_up() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    let (first, other) = (bed.confirmed(b"a"), bed.confirmed(b"c"));
    disk.complete(&mut bed, &first).unwrap();
    disk.complete(&mut bed, &other).unwrap();
    for client in [&first, &other] {
        let refused = disk.open(&mut bed, client, false, (READ, NONE));
        assert_eq!(refused, Err(StateError::Grace));
        let only = SessionConditions::RECLAIMS_ONLY;
        assert!(client.session.conditions().contains(only));
    }
    let tested = bed.home.test_lock(
        other.id,
        b"l",
        &file(1),
        ByteRange::new(0, 1).unwrap(),
        LockMode::Write,
        bed.now,
    );
    assert_eq!(tested, Err(StateError::Grace));
    let unknown = disk.open(&mut bed, &other, true, (READ, NONE));
    assert_eq!(unknown, Err(StateError::NoGrace), "V4-LEASE-21");
    bed.pass(LEASE - MOMENT);
    bed.renew(&other);
    let refused = disk.open(&mut bed, &other, false, (READ, NONE));
    assert_eq!(refused, Err(StateError::Grace));
    bed.pass(MOMENT);
    // The end of the period has to be recorded first, also for files that need no record.
    let refused = bed.open(&other, b"o", file(2), READ, NONE);
    assert!(matches!(refused, Err(StateError::Unrecorded(_))));
    disk.open(&mut bed, &other, false, (READ, NONE)).unwrap();
    assert!(other.session.conditions().is_empty());
}

#[test]
fn v4_lease_26_who_did_not_reclaim_in_time_does_not_after_another_restart() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    // It has reclaimed, but has not said that this was all.
    let slow = bed.confirmed(b"a");
    disk.open(&mut bed, &slow, true, (BOTH, NONE)).unwrap();
    bed.pass(LEASE);
    bed.renew(&slow);
    scan(&mut bed);
    disk.write(&mut bed);
    assert!(disk.clients.is_empty());
    // A restart at this point: nothing can be reclaimed.
    assert_eq!(disk.start().home.grace(), None);
}

#[test]
fn v4_lease_26_a_late_reclaim_complete_records_what_was_reclaimed() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    let mut bed = disk.start();
    let slow = bed.confirmed(b"a");
    disk.open(&mut bed, &slow, true, (BOTH, NONE)).unwrap();
    bed.pass(LEASE);
    bed.renew(&slow);
    scan(&mut bed);
    assert_eq!(bed.home.grace(), None);
    let late = disk.open(&mut bed, &slow, true, (BOTH, NONE));
    assert_eq!(late, Err(StateError::NoGrace));
    disk.write(&mut bed);
    assert!(disk.clients.is_empty());
    disk.complete(&mut bed, &slow).unwrap();
    assert_eq!(disk.clients[&b"a"[..]].start, 2);
}

#[test]
fn v4_lease_26_a_second_crash_in_the_grace_period_loses_nothing() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    let first = bed.confirmed(b"a");
    disk.open(&mut bed, &first, true, (BOTH, NONE)).unwrap();
    disk.complete(&mut bed, &first).unwrap();
    let mut bed = disk.start();
    assert_eq!(bed.home.grace().map(|grace| grace.waits_for), Some(2));
    for owner in [b"a", b"b"] {
        let client = bed.confirmed(owner);
        disk.open(&mut bed, &client, true, (BOTH, NONE)).unwrap();
        disk.complete(&mut bed, &client).unwrap();
    }
    assert_eq!(bed.home.grace(), None);
}

#[test]
fn v4_lease_13_a_client_that_reclaims_in_the_last_moments_prolongs_the_period_once() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    let mut bed = disk.start();
    let client = bed.confirmed(b"a");
    bed.pass(LEASE - MOMENT);
    bed.renew(&client);
    disk.open(&mut bed, &client, true, (BOTH, NONE)).unwrap();
    bed.pass(LEASE / 2);
    bed.renew(&client);
    disk.open(&mut bed, &client, true, (BOTH, NONE)).unwrap();
    bed.pass(MOMENT);
    let late = disk.open(&mut bed, &client, true, (BOTH, NONE));
    assert_eq!(late, Err(StateError::NoGrace));
}

#[test]
fn v4_lease_09_state_is_given_on_when_its_client_can_no_longer_reclaim_it() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (gone, stateid) = disk.holder(&mut bed, b"a");
    disk.lock(&mut bed, &gone, false, stateid).unwrap();
    let (other, stateid) = disk.holder(&mut bed, b"b");
    bed.pass(LEASE + MOMENT);
    bed.renew(&other);
    let request = LockRequest {
        client: other.id,
        file: file(1),
        holder: LockHolder::New {
            open: stateid,
            owner: b"l",
        },
        range: ByteRange::new(0, 1).unwrap(),
        mode: LockMode::Write,
        waits: false,
        reclaims: false,
    };
    for _ in 0..2 {
        let refused = bed.home.lock(&request, bed.now);
        assert!(matches!(refused, Err(StateError::Unrecorded(_))));
        assert!(bed.events().is_empty());
    }
    disk.lock(&mut bed, &other, false, stateid).unwrap();
    assert_eq!(bed.events().len(), 2);
    assert!(!disk.clients.contains_key(&b"a"[..]));
    let figures = bed.home.figures(bed.now);
    assert_eq!((figures.revoked, figures.silent_clients), (2, 1));
    // It comes back, and is recorded when it knows of the loss.
    bed.renew(&gone);
    scan(&mut bed);
    assert_eq!(disk.write(&mut bed), 0);
    for state in bed.home.clients.get(0).unwrap().states.clone() {
        let stateid = bed.home.states.stateid(state);
        let _ = bed.home.free_stateid(gone.id, &stateid);
    }
    bed.open_both(&gone, b"o", file(2));
    scan(&mut bed);
    assert_eq!(disk.write(&mut bed), 1);
    assert!(disk.clients.contains_key(&b"a"[..]));
}

#[test]
fn v4_lease_09_a_client_that_returns_in_the_meantime_keeps_its_state_and_record() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (gone, _) = disk.holder(&mut bed, b"a");
    let other = bed.client(b"b");
    bed.pass(LEASE + MOMENT);
    bed.renew(&other);
    let refused = open(&mut bed, &other, false, (BOTH, BOTH));
    assert!(matches!(refused, Err(StateError::Unrecorded(_))));
    bed.renew(&gone);
    let refused = disk.open(&mut bed, &other, false, (BOTH, BOTH));
    assert_eq!(refused, Err(StateError::ShareDenied));
    disk.write(&mut bed);
    scan(&mut bed);
    disk.write(&mut bed);
    assert!(disk.clients.contains_key(&b"a"[..]));
}

#[test]
fn v4_lease_09_state_of_a_removed_client_waits_for_the_removal_of_its_record() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    let (other, stateid) = disk.holder(&mut bed, b"b");
    let now = bed.now;
    bed.home.close(other.id, &file(1), &stateid, now).unwrap();
    let over = LEASE + bed.home.config.courtesy + MOMENT;
    bed.pass(over);
    bed.renew(&other);
    scan(&mut bed);
    let refused = open(&mut bed, &other, false, (BOTH, NONE));
    assert!(matches!(refused, Err(StateError::Unrecorded(_))));
    assert_eq!(bed.home.states.len(), 0);
    disk.open(&mut bed, &other, false, (BOTH, NONE)).unwrap();
    assert!(!disk.clients.contains_key(&b"a"[..]));
}

#[test]
fn v4_sess_67_a_client_that_leaves_is_not_waited_for() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (client, stateid) = disk.holder(&mut bed, b"a");
    let (id, now) = (client.id, bed.now);
    bed.home.close(id, &file(1), &stateid, now).unwrap();
    let session = client.session.id();
    bed.home.destroy_session(session, None, now).unwrap();
    bed.home.destroy_client(id, now).unwrap();
    assert_eq!(disk.write(&mut bed), 1);
    assert_eq!(disk.start().home.grace(), None);
}

#[test]
fn v4_lease_21_a_restarted_client_and_another_principal_have_nothing_to_reclaim() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    disk.holder(&mut bed, b"a");
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    let exchanged = bed.exchange(b"a", 2).unwrap();
    let grant = bed.create(exchanged.client_id, exchanged.sequence_id);
    let restarted = TestClient {
        id: exchanged.client_id,
        session: bed.find(grant.unwrap().session).unwrap(),
    };
    let refused = disk.open(&mut bed, &restarted, true, (BOTH, NONE));
    assert_eq!(refused, Err(StateError::NoGrace));
    assert_eq!(bed.home.grace().map(|grace| grace.waits_for), Some(1));
    let stranger = bed.exchange_by(b"b", 1, &caller(b"uid 2"), false);
    let stranger = stranger.unwrap();
    let request = SessionRequest {
        principal: b"uid 2",
        ..session_request(stranger.client_id, stranger.sequence_id)
    };
    let grant = bed.home.create_session(&request, bed.now).unwrap();
    let stranger = TestClient {
        id: stranger.client_id,
        session: bed.find(grant.session).unwrap(),
    };
    let refused = disk.open(&mut bed, &stranger, true, (BOTH, NONE));
    assert_eq!(refused, Err(StateError::NoGrace));
    assert_eq!(bed.home.grace().map(|grace| grace.waits_for), Some(1));
}

#[test]
fn v4_lease_22_reclaims_that_conflict_are_refused() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (first, stateid) = disk.holder(&mut bed, b"a");
    disk.lock(&mut bed, &first, false, stateid).unwrap();
    disk.holder(&mut bed, b"b");
    let mut bed = disk.start();
    let (first, second) = (bed.confirmed(b"a"), bed.confirmed(b"b"));
    let one = disk.open(&mut bed, &first, true, (BOTH, NONE)).unwrap();
    disk.lock(&mut bed, &first, true, one).unwrap();
    // These were never granted beside each other.
    let refused = disk.open(&mut bed, &second, true, (BOTH, BOTH));
    assert_eq!(refused, Err(StateError::ReclaimConflict));
    let two = disk.open(&mut bed, &second, true, (BOTH, NONE)).unwrap();
    let refused = disk.lock(&mut bed, &second, true, two);
    assert_eq!(refused, Err(StateError::ReclaimConflict));
}

#[test]
fn v4_lease_16_where_opens_denied_access_io_without_an_open_waits() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (client, _) = disk.holder(&mut bed, b"a");
    let read = |bed: &mut TestBed, client: &TestClient| {
        bed.io(client, file(2), Stateid::ANONYMOUS, IoKind::Read)
    };
    assert_eq!(read(&mut bed, &client), Ok(IoGrant::Permissions));
    let mut bed = disk.start();
    let client = bed.confirmed(b"a");
    assert_eq!(read(&mut bed, &client), Ok(IoGrant::Permissions));
    let (write, read_only) = (ShareMode::WRITE, ShareMode::READ);
    disk.open(&mut bed, &client, true, (read_only, write))
        .unwrap();
    disk.complete(&mut bed, &client).unwrap();
    assert!(disk.clients[&b"a"[..]].denies);
    let mut bed = disk.start();
    let client = bed.confirmed(b"a");
    assert_eq!(read(&mut bed, &client), Err(StateError::Grace));
    // As do calls of other protocols and changes of names.
    let use_it = |bed: &mut TestBed, client| {
        bed.home
            .check_use(client, &file(2), FileUse::Change, bed.now)
    };
    let gate = |bed: &TestBed| {
        let times = (
            std::time::Instant::now(),
            millrace_reactor::Clock::new(std::time::Instant::now()),
        );
        let link = HomeLink::elsewhere(HomeOutbox::default(), 1, times);
        DelegationGate::new(std::rc::Rc::new(link), bed.home.views().delegations)
    };
    for who in [None, Some(client.id)] {
        assert_eq!(use_it(&mut bed, who), Err(StateError::Grace));
    }
    assert!(!gate(&bed).is_idle());
    bed.pass(LEASE);
    bed.renew(&client);
    assert_eq!(read(&mut bed, &client), Ok(IoGrant::Permissions));
    assert_eq!(use_it(&mut bed, None), Ok(()));
    assert!(gate(&bed).is_idle());
}

#[test]
fn an_administrator_ends_the_grace_period_and_takes_state_for_good() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (client, stateid) = disk.holder(&mut bed, b"a");
    let (other, _) = disk.holder(&mut bed, b"b");
    bed.home.revoke(client.id, &stateid).unwrap();
    let refused = open(&mut bed, &other, false, (BOTH, NONE));
    assert!(matches!(refused, Err(StateError::Unrecorded(_))));
    disk.open(&mut bed, &other, false, (BOTH, NONE)).unwrap();
    assert_eq!(disk.clients.keys().next().unwrap()[..], b"b"[..]);
    let mut bed = disk.start();
    let grace = GraceReport {
        left: LEASE,
        waits_for: 1,
        awaited: vec![(b"b"[..].into(), None)],
    };
    assert_eq!(bed.home.report_grace(bed.now), Some(grace.clone()));
    let returned = bed.confirmed(b"b");
    let awaited = vec![(b"b"[..].into(), Some(returned.id))];
    let grace = GraceReport { awaited, ..grace };
    assert_eq!(bed.home.report_grace(bed.now), Some(grace));
    let report = bed.home.report_client(returned.id, bed.now).unwrap();
    assert!(report.reclaims && report.is_recorded);
    bed.home.end_grace();
    assert_eq!(bed.home.report_grace(bed.now), None);
    let client = bed.client(b"c");
    disk.open(&mut bed, &client, false, (BOTH, NONE)).unwrap();
    assert!(!disk.clients.contains_key(&b"b"[..]));
}

pub(super) fn terms(lease: Duration) -> StateTerms {
    StateTerms {
        lease,
        courtesy: Duration::ZERO,
        delegations: true,
    }
}

#[test]
fn v4_lease_11_a_raised_lease_is_durable_before_anything_is_granted() {
    let mut disk = RecordDisk::default();
    let mut bed = disk.start();
    let (client, _) = disk.holder(&mut bed, b"a");
    bed.home.change_terms(terms(LEASE * 2));
    let waits = open(&mut bed, &client, false, (BOTH, NONE));
    assert!(matches!(waits, Err(StateError::Unrecorded(_))), "{waits:?}");
    disk.open(&mut bed, &client, false, (BOTH, NONE)).unwrap();
    let bed = disk.start();
    let left = bed.home.report_grace(bed.now).map(|grace| grace.left);
    assert_eq!(left, Some(LEASE * 2));
}
