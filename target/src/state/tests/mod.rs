//! Tests of protocol state, under a virtual clock.

mod adoption;
mod announced_shares;
mod callbacks;
mod clients;
mod expiry;
mod fences;
mod gateways;
mod host_locks;
mod lasting_delegations;
mod leased_delegations;
mod link;
mod locks;
mod opens;
mod published;
mod published_model;
mod ranges;
mod recovery;
mod reports;
mod sessions;
mod share_model;
mod slot_model;
mod slot_shares;
mod slots;
mod stateids;
mod sweeps;
mod tables;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_store::Handle;

use super::*;

const LEASE: Duration = Duration::from_secs(90);
const PRINCIPAL: &[u8] = b"uid 1000";

/// Limits as Linux asks for them.
const LINUX: ChannelLimits = ChannelLimits {
    request_size: 1_049_620,
    response_size: 1_049_480,
    cached_size: 7_584,
    operations: 8,
    requests: 64,
};
const LINUX_BACK: ChannelLimits = ChannelLimits {
    request_size: 4_068,
    response_size: 4_068,
    cached_size: 0,
    operations: 2,
    requests: 16,
};

/// A home with its clock.
struct TestBed {
    home: StateHome,
    now: Duration,
}

/// A client with a session that has completed its reclaims.
#[derive(Clone)]
struct TestClient {
    id: ClientId,
    session: Arc<Session>,
}

fn small_config() -> StateConfig {
    StateConfig {
        start: *b"0123456789abcdef",
        reactors: 2,
        clients: 4,
        sessions: 6,
        sessions_per_client: 3,
        states: 200,
        states_per_client: 100,
        opens_per_file: 50,
        ranges_per_file: 100,
        ranges_per_client: 150,
        waiters_per_file: 4,
        ..StateConfig::default()
    }
}

fn session_request(client: ClientId, sequence: u32) -> SessionRequest<'static> {
    SessionRequest {
        client,
        sequence,
        principal: PRINCIPAL,
        fore: LINUX,
        back: LINUX_BACK,
        backchannel: true,
        origin: None,
        connection: None,
        callbacks: None,
        fault: None,
    }
}

/// A caller without integrity.
fn caller(principal: &[u8]) -> StateCaller {
    StateCaller {
        principal: principal.into(),
        has_integrity: false,
    }
}

fn file(number: u8) -> FileKey {
    FileKey {
        export: 7,
        object: Handle::new(&[number; 12]).unwrap(),
    }
}

impl TestBed {
    fn new() -> Self {
        Self::with(small_config())
    }

    fn with(config: StateConfig) -> Self {
        Self {
            home: StateHome::new(config),
            now: Duration::from_secs(1000),
        }
    }

    fn exchange(&mut self, owner: &[u8], verifier: u8) -> Result<ExchangeOutcome, StateError> {
        self.exchange_by(owner, verifier, &caller(PRINCIPAL), false)
    }

    fn exchange_by(
        &mut self,
        owner: &[u8],
        verifier: u8,
        caller: &StateCaller,
        update: bool,
    ) -> Result<ExchangeOutcome, StateError> {
        let request = ExchangeRequest {
            owner,
            verifier: [verifier; 8],
            caller,
            guarded: None,
            update,
        };
        self.home.exchange_id(&request, self.now)
    }

    fn create(&mut self, client: ClientId, sequence: u32) -> Result<SessionGrant, StateError> {
        let request = session_request(client, sequence);
        self.home.create_session(&request, self.now)
    }

    fn find(&self, id: SessionId) -> Result<Arc<Session>, StateError> {
        self.home.sessions().find(id).map(|found| found.share())
    }

    /// A client that is confirmed by a session.
    fn confirmed(&mut self, owner: &[u8]) -> TestClient {
        let exchanged = self.exchange(owner, 1).unwrap();
        let grant = self.create(exchanged.client_id, exchanged.sequence_id);
        TestClient {
            id: exchanged.client_id,
            session: self.find(grant.unwrap().session).unwrap(),
        }
    }

    /// The same after RECLAIM_COMPLETE.
    fn client(&mut self, owner: &[u8]) -> TestClient {
        let client = self.confirmed(owner);
        self.home.reclaim_complete(client.id, self.now).unwrap();
        client
    }

    /// A session of a new client, from an address.
    fn create_at(&mut self, owner: &[u8], address: IpAddr) -> Result<SessionGrant, StateError> {
        let exchanged = self.exchange(owner, 1)?;
        let request = SessionRequest {
            origin: Some(SessionOrigin {
                address,
                minor_version: 2,
            }),
            ..session_request(exchanged.client_id, exchanged.sequence_id)
        };
        self.home.create_session(&request, self.now)
    }

    /// A client from an address after RECLAIM_COMPLETE.
    fn client_at(&mut self, owner: &[u8], address: IpAddr) -> TestClient {
        let grant = self.create_at(owner, address).unwrap();
        let session = self.find(grant.session).unwrap();
        let client = TestClient {
            id: session.client(),
            session,
        };
        self.home.reclaim_complete(client.id, self.now).unwrap();
        client
    }

    fn renew(&self, client: &TestClient) {
        client.session.renew_lease(0, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn open(
        &mut self,
        client: &TestClient,
        owner: &[u8],
        key: FileKey,
        access: ShareMode,
        deny: ShareMode,
    ) -> Result<OpenOutcome, StateError> {
        self.home
            .open(client.id, owner, key, access, deny, self.now)
    }

    /// An open for reading and writing that denies nothing.
    fn open_both(&mut self, client: &TestClient, owner: &[u8], key: FileKey) -> Stateid {
        self.open(client, owner, key, ShareMode::BOTH, ShareMode::NONE)
            .unwrap()
            .stateid
    }

    fn io(
        &mut self,
        client: &TestClient,
        key: FileKey,
        stateid: Stateid,
        kind: IoKind,
    ) -> Result<IoGrant, StateError> {
        self.home
            .check_io(client.id, &key, &stateid, kind, self.now)
    }

    fn lock(
        &mut self,
        client: &TestClient,
        key: FileKey,
        holder: LockHolder<'_>,
        (offset, length): (u64, u64),
        mode: LockMode,
    ) -> Result<Stateid, StateError> {
        let request = LockRequest {
            client: client.id,
            file: key,
            holder,
            range: ByteRange::new(offset, length).unwrap(),
            mode,
            waits: false,
            reclaims: false,
        };
        self.home.lock(&request, self.now)
    }

    fn unlock(
        &mut self,
        client: &TestClient,
        key: FileKey,
        stateid: Stateid,
        (offset, length): (u64, u64),
    ) -> Result<Stateid, StateError> {
        let range = ByteRange::new(offset, length).unwrap();
        self.home.unlock(client.id, &key, &stateid, range, self.now)
    }

    fn events(&mut self) -> Vec<StateEvent> {
        let now = self.now;
        std::iter::from_fn(|| self.home.take_event(now)).collect()
    }
}
