//! What stateids allow without asking the home.

use super::lasting_delegations::{WANTED, make_callable};
use super::*;

impl TestBed {
    /// Whether reactors let this pass without asking the home.
    fn allows(&self, client: &TestClient, key: FileKey, stateid: Stateid, kind: IoKind) -> bool {
        let stateids = self.home.views().stateids;
        stateids.allows(client.id, &key, &stateid, kind.access())
    }

    /// Whether reading and writing pass.
    fn allowed(&self, client: &TestClient, key: FileKey, stateid: Stateid) -> [bool; 2] {
        [IoKind::Read, IoKind::Write].map(|kind| self.allows(client, key, stateid, kind))
    }
}

#[test]
fn v4_perf_01_an_open_allows_what_it_was_opened_for() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let opened = bed.open(&client, b"one", file(1), ShareMode::READ, ShareMode::NONE);
    let stateid = opened.unwrap().stateid;
    assert_eq!(bed.allowed(&client, file(1), stateid), [true, false]);
    let latest = Stateid {
        sequence: 0,
        ..stateid
    };
    assert_eq!(bed.allowed(&client, file(1), latest), [true, false]);
    let later = Stateid {
        sequence: 2,
        ..stateid
    };
    assert_eq!(bed.allowed(&client, file(1), later), [false, false]);
}

#[test]
fn v4_perf_01_an_open_allows_nothing_to_others_and_nothing_on_other_files() {
    let mut bed = TestBed::new();
    let [one, other] = [b"a", b"b"].map(|owner| bed.client(owner));
    let stateid = bed.open_both(&one, b"one", file(1));
    assert_eq!(bed.allowed(&one, file(1), stateid), [true, true]);
    assert_eq!(bed.allowed(&other, file(1), stateid), [false, false]);
    assert_eq!(bed.allowed(&one, file(2), stateid), [false, false]);
    for special in [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::INVALID] {
        assert_eq!(bed.allowed(&one, file(1), special), [false, false]);
    }
}

#[test]
fn v4_perf_01_a_closed_open_allows_nothing_when_its_index_is_used_again() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let first = bed.open_both(&client, b"one", file(1));
    bed.home
        .close(client.id, &file(1), &first, bed.now)
        .unwrap();
    assert_eq!(bed.allowed(&client, file(1), first), [false, false]);
    let second = bed.open_both(&client, b"one", file(1));
    assert_eq!(second.index(), first.index());
    assert_eq!(bed.allowed(&client, file(1), first), [false, false]);
    assert_eq!(bed.allowed(&client, file(1), second), [true, true]);
}

#[test]
fn v4_perf_01_a_revoked_open_allows_nothing() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    let stateid = bed.open_both(&client, b"one", file(1));
    bed.home.revoke(client.id, &stateid).unwrap();
    assert_eq!(bed.allowed(&client, file(1), stateid), [false, false]);
    let asked = bed.io(&client, file(1), stateid, IoKind::Read);
    assert_eq!(asked, Err(StateError::AdminRevoked));
    assert_eq!(bed.allowed(&client, file(1), stateid), [false, false]);
}

#[test]
fn v4_perf_01_locks_allow_what_their_open_allows_once_the_home_was_asked() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    bed.open(&client, b"one", file(1), ShareMode::READ, ShareMode::NONE)
        .unwrap();
    let open = bed.open_both(&client, b"one", file(1));
    let holder = LockHolder::New {
        open,
        owner: b"locker",
    };
    let lock = bed
        .lock(&client, file(1), holder, (0, 10), LockMode::Read)
        .unwrap();
    assert!(bed.io(&client, file(1), lock, IoKind::Write).is_ok());
    assert_eq!(bed.allowed(&client, file(1), lock), [true, true]);
    let (read, none) = (ShareMode::READ, ShareMode::NONE);
    bed.home
        .open_downgrade(client.id, &file(1), &open, read, none)
        .unwrap();
    assert_eq!(bed.allowed(&client, file(1), lock), [false, false]);
    assert_eq!(
        bed.io(&client, file(1), lock, IoKind::Write),
        Err(StateError::OpenMode)
    );
    assert_eq!(bed.allowed(&client, file(1), lock), [true, false]);
}

impl TestBed {
    /// Opens a file, and returns the stateid of the delegation that comes with it.
    fn delegated(&mut self, client: &TestClient, access: ShareMode) -> Stateid {
        self.open(client, b"one", file(1), access, ShareMode::NONE)
            .unwrap();
        let request = DelegationRequest {
            is_lasting: false,
            ..WANTED
        };
        let outcome = self
            .home
            .delegate(client.id, file(1), access, &request, self.now);
        match outcome {
            DelegationOutcome::Granted { stateid, .. } => stateid,
            refused => panic!("{refused:?}"),
        }
    }
}

#[test]
fn v4_perf_01_a_delegation_allows_what_it_is_for() {
    for (access, allowed) in [
        (ShareMode::READ, [true, false]),
        (ShareMode::BOTH, [true, true]),
    ] {
        let mut bed = TestBed::new();
        let [client, other] = [b"a", b"b"].map(|owner| bed.client(owner));
        make_callable(&mut bed, &client);
        let stateid = bed.delegated(&client, access);
        assert_eq!(bed.allowed(&client, file(1), stateid), allowed);
        assert_eq!(bed.allowed(&client, file(2), stateid), [false, false]);
        assert_eq!(bed.allowed(&other, file(1), stateid), [false, false]);
        // So it is when the home was asked.
        let [read, write] = [IoKind::Read, IoKind::Write]
            .map(|kind| bed.io(&client, file(1), stateid, kind).is_ok());
        assert_eq!([read, write], allowed);
        assert_eq!(bed.allowed(&client, file(1), stateid), allowed);
        let returned = bed.home.return_delegation(client.id, &file(1), &stateid);
        assert_eq!(returned, Ok(()));
        assert_eq!(bed.allowed(&client, file(1), stateid), [false, false]);
    }
}

#[test]
fn v4_perf_01_each_write_by_a_recalled_delegation_asks_the_home() {
    let mut bed = TestBed::new();
    let client = bed.client(b"a");
    make_callable(&mut bed, &client);
    let stateid = bed.delegated(&client, ShareMode::BOTH);
    let used = bed.home.check_use(None, &file(1), FileUse::Change, bed.now);
    assert_eq!(used, Err(StateError::Delay));
    assert_eq!(bed.allowed(&client, file(1), stateid), [false, false]);
    assert!(bed.io(&client, file(1), stateid, IoKind::Write).is_ok());
    assert_eq!(bed.allowed(&client, file(1), stateid), [false, false]);
}
