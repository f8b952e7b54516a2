//! The owner of all state, its limits and its events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip::SipHasher24;

use super::address_shares::AddressShares;
use super::announced_shares::AnnouncedShares;
use super::broken_leases::BrokenLeases;
use super::callback_jobs::CallbackJobs;
use super::clients::ClientTables;
use super::delegation_guards::DelegationGuards;
use super::durable::{RecordChange, RecordLog};
use super::fences::IoFences;
use super::files::{FileKey, FileTable};
use super::grace::GracePeriod;
use super::holder_queries::HolderQueries;
use super::host_locks::HostLocks;
use super::lease::LeaseCells;
use super::owners::OwnerTable;
use super::published::PublishedStates;
use super::recalls::DelegationHistory;
use super::relief::ReliefRequest;
use super::session::{ChannelLimits, SessionDirectory};
use super::slot_shares::SlotShares;
use super::stateid::{Revocation, StateTable, Stateid};
use super::sweeps::StateSweep;
use super::table::SegmentedMap;
use super::{ClientId, SessionId};

/// Limits and times of a [`StateHome`].
#[derive(Clone, Debug)]
pub struct StateConfig {
    /// Random bytes of this start of the server.
    pub start: [u8; 16],
    /// Reactors that receive requests.
    pub reactors: usize,
    /// How long a client may be silent.
    pub lease: Duration,
    /// How long state of a silent client is kept beyond its lease while it does not conflict.
    pub courtesy: Duration,
    /// How long the end of a session waits for its requests.
    pub drain: Duration,
    /// Most clients, confirmed or not.
    pub clients: u32,
    /// Most sessions.
    pub sessions: u32,
    /// Most sessions of a client. An address may have that many, and more as long as there are as
    /// many left for others.
    pub sessions_per_client: usize,
    /// Most opens and lock states.
    pub states: usize,
    /// Most opens and lock states of a client.
    pub states_per_client: usize,
    /// Opens and lock states of all clients of an address, beyond which as many have to be left for
    /// others.
    pub states_per_address: usize,
    /// Most opens of a file.
    pub opens_per_file: usize,
    /// Most lock owners that have locked ranges under one open, and have not freed their stateids.
    pub lock_owners_per_open: usize,
    /// Most locked ranges of a file.
    pub ranges_per_file: usize,
    /// Most locked ranges of a client.
    pub ranges_per_client: usize,
    /// Most denied requests for locks that a file remembers.
    pub waiters_per_file: usize,
    /// Most pieces of state that are taken from clients in one step.
    pub states_per_step: usize,
    /// Whether delegations are granted.
    pub delegations: bool,
    /// Whether clients may know a file by another handle than callbacks do: nothing is delegated.
    pub handles_vary: bool,
    /// What opens of files may deny that other servers serve as well.
    pub shared_denials: SharedDenials,
    /// Most bytes of replies that slots keep, all together.
    pub reply_cache: usize,
    /// Upper limits of fore channels.
    pub fore_most: ChannelLimits,
    /// Lower limits of fore channels, in which a SEQUENCE and its reply fit.
    pub fore_least: ChannelLimits,
    /// Lower limits of backchannels, in which a recall and its reply fit.
    pub back_least: ChannelLimits,
}

impl Default for StateConfig {
    fn default() -> Self {
        let limits = |size, cached_size, operations, requests| ChannelLimits {
            request_size: size,
            response_size: size,
            cached_size,
            operations,
            requests,
        };
        Self {
            start: [0; 16],
            reactors: 1,
            lease: Duration::from_secs(90),
            courtesy: Duration::from_secs(24 * 60 * 60),
            drain: Duration::from_secs(5),
            clients: 10_000,
            sessions: 16_384,
            sessions_per_client: 64,
            states: 1 << 20,
            states_per_client: 1 << 17,
            states_per_address: 1 << 10,
            opens_per_file: 1 << 14,
            lock_owners_per_open: 1 << 12,
            ranges_per_file: 1 << 14,
            ranges_per_client: 1 << 16,
            waiters_per_file: 1 << 10,
            states_per_step: 1 << 9,
            delegations: true,
            handles_vary: false,
            shared_denials: SharedDenials::Unannounced,
            reply_cache: 64 << 20,
            // 1 MiB of data, and the rest of the message.
            fore_most: limits((1 << 20) + 4096, 8192, 64, 64),
            fore_least: limits(256, 0, 1, 1),
            back_least: limits(512, 0, 2, 1),
        }
    }
}

/// What opens may deny of files that other servers serve as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedDenials {
    /// Everything. Others are not told.
    Unannounced,
    /// Nothing, as others are not told.
    Refused,
    /// Everything. Other gateways are told before an open is granted.
    Announced,
}

/// What may change while the state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTerms {
    /// How long a client may be silent.
    pub lease: Duration,
    /// How long state of a silent client is kept beyond its lease while it does not conflict.
    pub courtesy: Duration,
    /// Whether delegations are granted.
    pub delegations: bool,
}

/// Something that others have to act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateEvent {
    /// State was taken away. I/O that was let through with it has to end before what it blocked
    /// is granted.
    Revoked {
        /// The client.
        client: ClientId,
        /// The state.
        stateid: Stateid,
        /// The file.
        file: FileKey,
        /// Why.
        reason: Revocation,
    },
    /// A denied lock has become available. It is not reserved for the owner.
    LockAvailable {
        /// The client.
        client: ClientId,
        /// The file.
        file: FileKey,
        /// The lock owner.
        owner: Arc<[u8]>,
    },
    /// A session has ended.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
    /// A client is gone, and nobody is refused anything for what is left of its state.
    ClientRemoved {
        /// The client.
        client: ClientId,
    },
}

/// The parts of the state that all reactors read without asking its home.
#[derive(Clone, Debug)]
pub struct StateViews {
    /// The sessions.
    pub sessions: Arc<SessionDirectory>,
    /// What stateids allow.
    pub stateids: Arc<PublishedStates>,
    /// Which files may have delegations.
    pub delegations: Arc<DelegationGuards>,
    /// The fences of I/O with revoked state.
    pub fences: Arc<IoFences>,
    /// Where leases of files are told that have to end.
    pub broken_leases: Arc<BrokenLeases>,
}

/// The owner of clients, sessions, opens and locks.
///
/// It lives on one reactor, and others send it messages. Every operation takes the monotonic time
/// at which it happens. Before [`recover`](Self::recover) no client is recorded, and without it
/// there is no grace period.
#[derive(Debug)]
pub struct StateHome {
    pub(super) config: StateConfig,
    pub(super) clients: ClientTables,
    pub(super) leases: Arc<LeaseCells>,
    pub(super) sessions: Arc<SessionDirectory>,
    /// Indexes of the directory that are free.
    pub(super) free_sessions: Vec<u32>,
    pub(super) sessions_by_address: AddressShares,
    pub(super) session_serial: u32,
    pub(super) slot_shares: SlotShares,
    pub(super) states: StateTable,
    pub(super) states_by_address: AddressShares,
    pub(super) files: FileTable,
    pub(super) open_owners: OwnerTable,
    /// Opens by owner and file.
    pub(super) opens: SegmentedMap<(u32, u32), u32>,
    pub(super) lock_owners: OwnerTable,
    /// Lock states by owner and open.
    pub(super) lock_states: SegmentedMap<(u32, u32), u32>,
    /// Files with freed locks, of which the waiters have not been notified yet.
    pub(super) freed: Vec<u32>,
    pub(super) callbacks: CallbackJobs,
    pub(super) watches_contexts: bool,
    pub(super) delegation_guards: Arc<DelegationGuards>,
    pub(super) delegation_history: DelegationHistory,
    /// Delegations that are being recalled, by the ends of their times.
    pub(super) recalled: BTreeSet<(Duration, u32)>,
    /// Delegations by the order of their grants.
    pub(super) delegated: BTreeMap<u64, u32>,
    pub(super) relief: Option<ReliefRequest>,
    pub(super) holder_queries: HolderQueries,
    pub(super) host_locks: HostLocks,
    pub(super) announced_shares: AnnouncedShares,
    /// State that goes in steps, the first one first.
    pub(super) sweeps: VecDeque<StateSweep>,
    /// How many pieces of it have gone in this turn.
    pub(super) swept: usize,
    pub(super) fences: Arc<IoFences>,
    pub(super) broken_leases: Arc<BrokenLeases>,
    /// No lease runs out before this.
    pub(super) earliest_lease_end: Duration,
    pub(super) events: VecDeque<StateEvent>,
    pub(super) grace: GracePeriod,
    pub(super) records: RecordLog,
}

impl StateHome {
    /// A home without clients.
    #[must_use]
    pub fn new(config: StateConfig) -> Self {
        Self {
            clients: ClientTables::new(config.start),
            leases: Arc::new(LeaseCells::new(config.reactors, config.clients as usize)),
            sessions: Arc::new(SessionDirectory::new(config.sessions)),
            free_sessions: (0..config.sessions).rev().collect(),
            sessions_by_address: AddressShares::default(),
            session_serial: 0,
            slot_shares: SlotShares::default(),
            states: StateTable::new(config.start, config.states),
            states_by_address: AddressShares::default(),
            files: FileTable::default(),
            open_owners: OwnerTable::default(),
            opens: SegmentedMap::default(),
            lock_owners: OwnerTable::default(),
            lock_states: SegmentedMap::default(),
            freed: Vec::new(),
            callbacks: CallbackJobs::default(),
            watches_contexts: false,
            delegation_guards: Arc::default(),
            delegation_history: DelegationHistory::default(),
            recalled: BTreeSet::new(),
            delegated: BTreeMap::new(),
            relief: None,
            holder_queries: HolderQueries::default(),
            host_locks: HostLocks::default(),
            announced_shares: AnnouncedShares::default(),
            sweeps: VecDeque::new(),
            swept: 0,
            fences: Arc::new(IoFences::new(config.reactors)),
            broken_leases: Arc::default(),
            earliest_lease_end: Duration::ZERO,
            events: VecDeque::new(),
            grace: GracePeriod::default(),
            records: RecordLog::default(),
            config,
        }
    }

    /// Changes terms. A client that may have been told of a longer lease keeps it. A longer lease is
    /// recorded before anything else is granted: the grace period after the next start has to last as
    /// long. Delegations that were granted stay until they are returned or recalled.
    pub fn change_terms(&mut self, terms: StateTerms) {
        let before = self.config.lease;
        if terms.lease > before {
            self.records.push_barrier(RecordChange::Lease(terms.lease));
        }
        if terms.lease < before {
            for (_, client) in self.clients.iter_mut() {
                client.lease_told = client.lease_told.max(before);
            }
        }
        self.config.lease = terms.lease;
        self.config.courtesy = terms.courtesy;
        self.config.delegations = terms.delegations;
        // A shorter lease may have run out already.
        self.earliest_lease_end = Duration::ZERO;
    }

    /// The sessions, for all reactors.
    #[must_use]
    pub fn sessions(&self) -> Arc<SessionDirectory> {
        self.sessions.clone()
    }

    /// What all reactors read without asking.
    #[must_use]
    pub fn views(&self) -> StateViews {
        StateViews {
            sessions: self.sessions(),
            stateids: self.states.published(),
            delegations: Arc::clone(&self.delegation_guards),
            fences: Arc::clone(&self.fences),
            broken_leases: Arc::clone(&self.broken_leases),
        }
    }

    /// The oldest event that was not taken yet. To be called after each operation, until there is
    /// none: grants that took state of others away may leave only when those events were acted on.
    pub fn take_event(&mut self, now: Duration) -> Option<StateEvent> {
        self.notify_waiters(now);
        self.events.pop_front()
    }

    /// A check that makes session identifiers hard to guess.
    pub(super) fn session_check(&self, index: u32, serial: u32) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.config.start);
        hasher.write_u32(index);
        hasher.write_u32(serial);
        hasher.finish()
    }
}
