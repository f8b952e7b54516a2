//! Clients: each has mounts, with opens and locks, and reclaims them where their address is served.

use super::gateway::{EXPORT, GatewayRun};
use super::judge::BelievedLock;
use super::shared_files::BYTES;
use super::world::GatewayWorld;
use super::{PRINCIPAL, TestClient, caller, session_request};
use crate::state::{
    AnswerTicket, ByteRange, ChannelLimits, ExchangeRequest, FileKey, LockHolder, LockMode,
    LockRequest, OpenTerms, SessionConditions, SessionRequest, ShareMode, StateError, StateHome,
    Stateid,
};
use millrace_store::Handle;

/// A mount: clients know an address, not a gateway.
#[derive(Debug)]
struct ClientMount {
    address: usize,
    /// Where it was last.
    last: Option<GatewayRun>,
}

/// A client as it is known to one run of a gateway.
pub(super) struct ClientLink {
    pub at: GatewayRun,
    pub known: TestClient,
    is_complete: bool,
}

/// A file that a client has open, with its locks.
#[derive(Debug)]
pub(super) struct ClientOpen {
    pub mount: usize,
    pub file: FileKey,
    /// Where it was granted or reclaimed last.
    pub at: GatewayRun,
    stateid: Stateid,
    /// Of its locks.
    pub lock: Option<Stateid>,
    pub locks: Vec<BelievedLock>,
}

/// A request for a lock that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingLock {
    pub at: GatewayRun,
    pub mount: usize,
    pub file: FileKey,
    pub range: ByteRange,
    pub mode: LockMode,
    /// The grant that is reclaimed.
    pub reclaims: Option<u64>,
}

/// A client.
pub(super) struct SimulatedClient {
    owner: Vec<u8>,
    mounts: Vec<ClientMount>,
    pub links: Vec<ClientLink>,
    pub opens: Vec<ClientOpen>,
    pub pending: Option<PendingLock>,
    pub silent_until: u64,
    /// Whether it has got a lock since the faults have stopped.
    pub is_served: bool,
}

impl std::fmt::Debug for SimulatedClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("SimulatedClient");
        shown
            .field("mounts", &self.mounts)
            .field("opens", &self.opens);
        shown.finish_non_exhaustive()
    }
}

const OPEN_OWNERS: [&[u8]; 2] = [b"open 0", b"open 1"];
const LOCK_OWNERS: [&[u8]; 2] = [b"lock 0", b"lock 1"];

fn key(number: u32) -> FileKey {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    FileKey {
        export: EXPORT,
        object: Handle::new(&bytes).expect("short"),
    }
}

/// A file that only one client uses.
pub(super) fn own_file(client: usize) -> FileKey {
    key(1 << 24 | u32::try_from(client).expect("few"))
}

pub(super) fn current(stateid: Stateid) -> Stateid {
    Stateid {
        sequence: 0,
        ..stateid
    }
}

/// Makes a client known to a home.
fn establish(home: &mut StateHome, owner: &[u8], now: std::time::Duration) -> Option<TestClient> {
    let request = ExchangeRequest {
        owner,
        verifier: [1; 8],
        caller: &caller(PRINCIPAL),
        guarded: None,
        update: false,
    };
    let known = home.exchange_id(&request, now).ok()?;
    let request = session_request(known.client_id, known.sequence_id);
    let request = SessionRequest {
        fore: ChannelLimits {
            requests: 1,
            ..request.fore
        },
        ..request
    };
    let session = home.create_session(&request, now).ok()?.session;
    Some(TestClient {
        id: known.client_id,
        session: home.sessions().find(session).ok()?.share(),
    })
}

impl SimulatedClient {
    pub fn new(index: usize, addresses: usize, mounts: usize) -> Self {
        let mount = |at: usize| ClientMount {
            address: (index + at) % addresses,
            last: None,
        };
        Self {
            owner: format!("client {index}").into_bytes(),
            mounts: (0..mounts).map(mount).collect(),
            links: Vec::new(),
            opens: Vec::new(),
            pending: None,
            silent_until: 0,
            is_served: false,
        }
    }

    /// Whether it has something at a gateway.
    pub fn is_of(&self, gateway: usize) -> bool {
        self.opens.iter().any(|open| open.at.gateway == gateway)
    }

    pub fn open_of(&mut self, mount: usize, file: &FileKey) -> Option<&mut ClientOpen> {
        let mut opens = self.opens.iter_mut();
        opens.find(|open| open.mount == mount && open.file == *file)
    }

    /// Forgets opens that are gone. Returns the number of locks that go with them.
    pub fn forget(&mut self, is_gone: impl Fn(&ClientOpen) -> bool) -> u64 {
        let gone = self.opens.extract_if(.., |open| is_gone(open));
        gone.map(|open| open.locks.len() as u64).sum()
    }
}

impl GatewayWorld {
    /// Where a mount finds its address. Some clients stay with a gateway that another one has
    /// replaced, as long as it answers.
    fn server(&self, index: usize, mount: usize) -> Option<GatewayRun> {
        let mount = &self.clients[index].mounts[mount];
        let runs = |at: &GatewayRun| self.run_of(at.gateway) == *at;
        let stays = mount.last.filter(|_| index % 2 == 1).filter(runs);
        let at = stays.unwrap_or_else(|| self.run_of(self.addresses[mount.address]));
        let home = self.gateways[at.gateway].home.as_ref();
        home.map(|_| at)
    }

    pub fn home_at(&mut self, at: GatewayRun) -> Option<&mut StateHome> {
        let is_it = self.run_of(at.gateway) == at;
        self.gateways[at.gateway].home.as_mut().filter(|_| is_it)
    }

    /// Whether a client has yet to reclaim, and can.
    pub fn is_reclaiming(&self, index: usize) -> bool {
        let client = &self.clients[index];
        let is_complete = |at| {
            client
                .links
                .iter()
                .any(|link| link.at == at && link.is_complete)
        };
        let mut mounts = 0..client.mounts.len();
        mounts.any(|mount| self.server(index, mount).is_some_and(|at| !is_complete(at)))
    }

    /// A client does something.
    pub fn client_acts(&mut self, index: usize) {
        if self.clients[index].silent_until > self.now && !self.is_quiet {
            return;
        }
        let now = self.clock();
        let known: Vec<GatewayRun> = self.clients[index].links.iter().map(|one| one.at).collect();
        for at in known {
            if self.home_at(at).is_none() {
                self.clients[index].links.retain(|link| link.at != at);
                let pending = &mut self.clients[index].pending;
                *pending = pending.filter(|pending| pending.at != at);
            } else {
                self.look_for_losses(index, at);
            }
        }
        let client = &self.clients[index];
        client
            .links
            .iter()
            .for_each(|link| link.known.session.renew_lease(0, now));
        if client.pending.is_some() {
            return;
        }
        let mount = self.dice.index(client.mounts.len());
        let Some(at) = self.server(index, mount) else {
            return;
        };
        self.act(index, mount, at);
        self.settle(at.gateway);
    }

    /// Acknowledges revoked state.
    fn look_for_losses(&mut self, index: usize, at: GatewayRun) {
        let client = &mut self.clients[index];
        let Some(link) = client.links.iter().find(|link| link.at == at) else {
            return;
        };
        let conditions = link.known.session.conditions();
        let id = link.known.id;
        let losses = [
            SessionConditions::ADMIN_REVOKED,
            SessionConditions::EXPIRED_SOME,
        ];
        if !losses.iter().any(|one| conditions.contains(*one)) {
            return;
        }
        let Some(home) = self.gateways[at.gateway].home.as_mut() else {
            return;
        };
        let opens = client.opens.iter().filter(|open| open.at == at);
        let stateids: Vec<Stateid> = opens.map(|open| open.stateid).collect();
        for stateid in stateids {
            if home.test_stateids(id, &[stateid])[0].is_err() {
                let _ = home.free_stateid(id, &stateid);
                self.figures.revoked +=
                    client.forget(|open| open.at == at && open.stateid == stateid);
            }
        }
    }

    fn act(&mut self, index: usize, mount: usize, at: GatewayRun) {
        let now = self.clock();
        let run_of = |world: &Self, open: &ClientOpen| world.server(index, open.mount);
        let is_new = !self.clients[index].links.iter().any(|link| link.at == at);
        if is_new {
            let owner = self.clients[index].owner.clone();
            let Some(home) = self.home_at(at) else { return };
            if let Some(known) = establish(home, &owner, now) {
                self.clients[index].links.push(ClientLink {
                    at,
                    known,
                    is_complete: false,
                });
            }
            return;
        }
        let moved = self.clients[index].mounts[mount].last.replace(at) != Some(at);
        let link = self.clients[index]
            .links
            .iter_mut()
            .find(|link| link.at == at);
        if let Some(link) = link.filter(|_| moved) {
            link.is_complete = false;
        }
        let opens = &self.clients[index].opens;
        let elsewhere = |open: &ClientOpen| open.at != at && run_of(self, open) == Some(at);
        if let Some(open) = opens.iter().position(elsewhere) {
            self.reclaim_open(index, open, at);
            return;
        }
        let mut opens = opens.iter().filter(|open| open.at == at);
        let lost = opens.find_map(|open| {
            let lock = open.locks.iter().find(|lock| !lock.is_here)?;
            Some(PendingLock {
                at,
                mount: open.mount,
                file: open.file,
                range: lock.range,
                mode: lock.mode,
                reclaims: Some(lock.grant),
            })
        });
        if let Some(lost) = lost {
            self.ask(index, lost);
            return;
        }
        let link = self.clients[index].links.iter().find(|link| link.at == at);
        if link.is_some_and(|link| !link.is_complete) {
            self.complete(index, at);
        } else {
            self.work(index, mount, at);
        }
    }

    fn id_at(&self, index: usize, at: GatewayRun) -> Option<crate::state::ClientId> {
        let mut links = self.clients[index].links.iter();
        links.find(|link| link.at == at).map(|link| link.known.id)
    }

    fn complete(&mut self, index: usize, at: GatewayRun) {
        let now = self.clock();
        let Some(id) = self.id_at(index, at) else {
            return;
        };
        let Some(home) = self.home_at(at) else { return };
        match home.reclaim_complete(id, now) {
            Ok(()) | Err(StateError::CompleteAlready) => {
                let mut links = self.clients[index].links.iter_mut();
                if let Some(link) = links.find(|link| link.at == at) {
                    link.is_complete = true;
                }
            }
            Err(StateError::BadSession) => self.leave(index, at),
            Err(_) => {}
        }
    }

    /// The gateway does not know the client any more.
    pub fn leave(&mut self, index: usize, at: GatewayRun) {
        let client = &mut self.clients[index];
        client.links.retain(|link| link.at != at);
        self.figures.revoked += client.forget(|open| open.at == at);
    }

    fn open_at(
        &mut self,
        index: usize,
        (mount, file): (usize, FileKey),
        at: GatewayRun,
        reclaims: bool,
    ) -> Result<Stateid, StateError> {
        let now = self.clock();
        let id = self.id_at(index, at).ok_or(StateError::BadSession)?;
        let home = self.home_at(at).ok_or(StateError::Delay)?;
        let terms = OpenTerms {
            reclaims,
            is_lasting: true,
            is_delegable: false,
            is_shared: true,
        };
        let modes = (ShareMode::BOTH, ShareMode::NONE);
        let opened = home.open_under(terms, id, OPEN_OWNERS[mount], file, modes, now);
        opened.map(|opened| current(opened.stateid))
    }

    fn reclaim_open(&mut self, index: usize, open: usize, at: GatewayRun) {
        let known = &self.clients[index].opens[open];
        match self.open_at(index, (known.mount, known.file), at, true) {
            Ok(stateid) => {
                let open = &mut self.clients[index].opens[open];
                (open.at, open.stateid, open.lock) = (at, stateid, None);
                for lock in &mut open.locks {
                    lock.is_here = false;
                }
            }
            Err(StateError::NoGrace | StateError::ReclaimConflict) => {
                let open = self.clients[index].opens.swap_remove(open);
                self.figures.lost += open.locks.len() as u64;
            }
            Err(StateError::BadSession) => self.leave(index, at),
            Err(_) => {}
        }
    }

    fn work(&mut self, index: usize, mount: usize, at: GatewayRun) {
        let is_own = self.is_quiet;
        if is_own && self.clients[index].is_served {
            return;
        }
        let file = match is_own {
            true => own_file(index),
            false => self.choose_file(index),
        };
        let choice = if is_own { 0 } else { self.dice.below(8) };
        if choice >= 6 {
            let closes = choice == 7 && self.dice.once_in(3);
            self.give_back(index, mount, at, closes);
            return;
        }
        if self.clients[index].open_of(mount, &file).is_none() {
            if let Ok(stateid) = self.open_at(index, (mount, file), at, false) {
                self.clients[index].opens.push(ClientOpen {
                    mount,
                    file,
                    at,
                    stateid,
                    lock: None,
                    locks: Vec::new(),
                });
            }
            return;
        }
        let first = self.dice.below(self.size.bytes);
        let length = self.dice.between(1, 3).min(BYTES - first);
        let mode = match self.dice.once_in(2) {
            true => LockMode::Write,
            false => LockMode::Read,
        };
        let Ok(range) = ByteRange::new(first, length) else {
            return;
        };
        let open = self.clients[index].open_of(mount, &file);
        let overlaps = |lock: &BelievedLock| lock.range.overlaps(&range);
        if open.is_some_and(|open| open.locks.iter().any(overlaps)) {
            // That is a change of the lock, of which the log has no notion.
            self.give_back(index, mount, at, false);
            return;
        }
        self.ask(
            index,
            PendingLock {
                at,
                mount,
                file,
                range,
                mode,
                reclaims: None,
            },
        );
    }

    /// One that it has open, or any.
    fn choose_file(&mut self, index: usize) -> FileKey {
        let opens = &self.clients[index].opens;
        if !opens.is_empty() && !self.dice.once_in(3) {
            return opens[self.dice.index(opens.len())].file;
        }
        key(u32::try_from(self.dice.below(u64::from(self.size.files))).expect("small"))
    }

    /// Unlocks something, or closes a file.
    fn give_back(&mut self, index: usize, mount: usize, at: GatewayRun, closes: bool) {
        let now = self.clock();
        let Some(id) = self.id_at(index, at) else {
            return;
        };
        let client = &mut self.clients[index];
        let is_here = |open: &ClientOpen| open.mount == mount && open.at == at;
        let Some(chosen) = client.opens.iter().position(is_here) else {
            return;
        };
        let open = &mut client.opens[chosen];
        let Some(home) = self.gateways[at.gateway].home.as_mut() else {
            return;
        };
        if closes {
            let _ = home.close(id, &open.file, &open.stateid, now);
            client.opens.swap_remove(chosen);
        } else if let Some(stateid) = open.lock
            && !open.locks.is_empty()
        {
            let lock = open.locks.swap_remove(0);
            let _ = home.unlock(id, &open.file, &stateid, lock.range, now);
        }
    }

    fn ask(&mut self, index: usize, asked: PendingLock) {
        let now = self.clock();
        let Some(id) = self.id_at(index, asked.at) else {
            return;
        };
        let Some(open) = self.clients[index].open_of(asked.mount, &asked.file) else {
            return;
        };
        let request = LockRequest {
            client: id,
            file: asked.file,
            holder: LockHolder::New {
                open: open.stateid,
                owner: LOCK_OWNERS[asked.mount],
            },
            range: asked.range,
            mode: asked.mode,
            waits: asked.reclaims.is_none() && self.dice.once_in(8),
            reclaims: asked.reclaims.is_some(),
        };
        let Some(home) = self.home_at(asked.at) else {
            return;
        };
        let asker = AnswerTicket::for_test(index, 0);
        match home.lock_on_host(&request, asker, now) {
            Some(outcome) => self.learn(index, asked, &outcome),
            None => self.clients[index].pending = Some(asked),
        }
    }
}
