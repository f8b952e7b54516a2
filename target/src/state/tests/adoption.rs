//! Grace periods of servers of the same files: one holds grants for another, and takes its place.

use super::recovery::RecordDisk;
use super::*;

const BOTH: (ShareMode, ShareMode) = (ShareMode::BOTH, ShareMode::NONE);
const GRACE: Result<(), StateError> = Err(StateError::Grace);
const NO_GRACE: Result<(), StateError> = Err(StateError::NoGrace);

/// A server with its records.
struct Server {
    disk: RecordDisk,
    bed: TestBed,
}

impl Server {
    fn new() -> Self {
        let mut disk = RecordDisk::default();
        let bed = disk.start();
        Self { disk, bed }
    }

    fn holder(&mut self, owner: &[u8]) -> (TestClient, Stateid) {
        self.disk.holder(&mut self.bed, owner)
    }

    fn open(&mut self, client: &TestClient, reclaims: bool) -> Result<(), StateError> {
        let opened = self.disk.open(&mut self.bed, client, reclaims, BOTH);
        opened.map(drop)
    }

    fn complete(&mut self, client: &TestClient) -> Result<(), StateError> {
        self.disk.complete(&mut self.bed, client)
    }

    /// Takes the place of a server with these records.
    fn adopt(&mut self, from: &RecordDisk) {
        let clients = from.clients.values().cloned().collect();
        self.bed.home.adopt(clients, LEASE, self.bed.now);
        self.disk.write(&mut self.bed);
    }

    fn crash(mut self) -> Self {
        self.bed = self.disk.start();
        self
    }
}

#[test]
fn while_grants_are_held_nothing_is_granted_and_nothing_reclaimed() {
    let mut server = Server::new();
    let (client, open) = server.holder(b"a");
    server.bed.home.hold_grants(true);
    assert_eq!(server.open(&client, false), GRACE);
    assert_eq!(server.open(&client, true), NO_GRACE);
    // A period of its own that ends meanwhile changes nothing.
    server.adopt(&RecordDisk::default());
    assert_eq!(server.bed.home.grace(), None);
    assert_eq!(server.open(&client, false), GRACE);
    let known = server.bed.home.test_stateids(client.id, &[open]);
    assert_eq!(known, [Ok(())]);
    server.bed.home.hold_grants(false);
    assert_eq!(server.open(&client, false), Ok(()));
}

#[test]
fn clients_of_another_server_reclaim_at_the_one_that_takes_its_place() {
    let mut gone = Server::new();
    gone.holder(b"moved");
    gone.holder(b"away");
    let mut server = Server::new();
    let (own, _) = server.holder(b"own");
    server.adopt(&gone.disk);
    assert_eq!(server.bed.home.grace().unwrap().waits_for, 2);
    assert_eq!(server.open(&own, false), GRACE);
    assert_eq!(
        server.open(&own, true),
        NO_GRACE,
        "it has nothing to reclaim"
    );
    let moved = server.bed.confirmed(b"moved");
    assert_eq!(server.open(&moved, true), Ok(()));
    assert_eq!(server.complete(&moved), Ok(()));
    assert_eq!(server.open(&own, false), GRACE, "the other one is awaited");
    // All of it outlives a crash in the period, and so do the server's own clients.
    let mut server = server.crash();
    assert_eq!(server.bed.home.grace().unwrap().waits_for, 3);
    let moved = server.bed.confirmed(b"moved");
    assert_eq!(server.open(&moved, true), Ok(()));
    assert_eq!(server.complete(&moved), Ok(()));
    server.bed.pass(LEASE * 2);
    let moved = server.bed.confirmed(b"moved");
    assert_eq!(
        server.open(&moved, false),
        Ok(()),
        "nobody is awaited for ever"
    );
    let away = server.bed.confirmed(b"away");
    assert_eq!(server.open(&away, true), NO_GRACE);
}

#[test]
fn a_client_of_both_servers_reclaims_beside_what_it_has() {
    let mut gone = Server::new();
    gone.holder(b"a");
    let mut server = Server::new();
    let (client, open) = server.holder(b"a");
    let (other, _) = server.holder(b"b");
    server.adopt(&gone.disk);
    assert_eq!(server.bed.home.grace().unwrap().waits_for, 1);
    assert_eq!(server.open(&client, true), Ok(()));
    assert_eq!(server.complete(&client), Err(StateError::CompleteAlready));
    assert_eq!(server.bed.home.grace(), None);
    assert_eq!(server.open(&client, true), NO_GRACE);
    assert_eq!(server.open(&other, false), Ok(()));
    let known = server.bed.home.test_stateids(client.id, &[open]);
    assert!(known[0] != Err(StateError::BadStateid));
    assert!(server.disk.clients.contains_key(&b"a"[..]));
    // The next period is none of its own.
    let mut third = Server::new();
    third.holder(b"c");
    server.adopt(&third.disk);
    assert_eq!(server.open(&client, true), NO_GRACE);
    // One that does not return keeps what it has, and its record.
    server.bed.pass(LEASE / 2);
    server.bed.renew(&client);
    server.adopt(&gone.disk);
    server.bed.home.end_grace();
    server.disk.write(&mut server.bed);
    assert!(server.disk.clients.contains_key(&b"a"[..]));
    assert_eq!(server.open(&client, false), Ok(()));
    // What it could have reclaimed in that period may be others' by the next.
    server.adopt(&third.disk);
    assert_eq!(server.open(&client, true), NO_GRACE);
}

#[test]
fn a_client_that_was_restarted_itself_has_nothing_to_reclaim() {
    let mut gone = Server::new();
    gone.holder(b"a");
    for client in gone.disk.clients.values_mut() {
        client.verifier = [9; 8];
    }
    let mut server = Server::new();
    let (client, _) = server.holder(b"a");
    server.adopt(&gone.disk);
    assert_eq!(server.bed.home.grace(), None);
    assert_eq!(server.open(&client, true), NO_GRACE);
    let record = &server.disk.clients[&b"a"[..]];
    assert_ne!(record.verifier, [9; 8], "that of what it has here");
}
