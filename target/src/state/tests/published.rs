//! What stateids allow without asking the home.

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
