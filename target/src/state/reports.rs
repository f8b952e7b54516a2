//! Reports of clients and their state for operators, each of bounded work, and what operators end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::backchannel::Backchannel;
use super::clients::{ClientId, LeasedClient};
use super::files::FileKey;
use super::home::StateHome;
use super::ranges::{ByteRange, LockMode};
use super::share::ShareMode;
use super::stateid::{Revocation, StateDetail, StateRecord, Stateid};

/// Most pieces of state and locked ranges that a slice looks at.
const SLICE_WORK: usize = 1 << 14;
/// Most ranges of a lock state in a report.
const RANGES_MAX: usize = 64;
/// Most connections of a client in a report.
const CONNECTIONS_MAX: usize = 64;
/// Most clients that a grace period is reported to wait for.
const AWAITED_MAX: usize = 256;

/// State in force, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Opens.
    pub opens: usize,
    /// Lock owners with locks of a file.
    pub lock_states: usize,
    /// Delegations.
    pub delegations: usize,
}

impl StateCounts {
    /// Counts state, or no longer.
    pub(super) fn count(&mut self, detail: &StateDetail, add: bool) {
        let count = match detail {
            StateDetail::Open(_) => &mut self.opens,
            StateDetail::Lock(_) => &mut self.lock_states,
            StateDetail::Delegation(_) => &mut self.delegations,
            StateDetail::Revoked(_) => return,
        };
        *count = if add { *count + 1 } else { *count - 1 };
    }
}

/// Whether a client can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackHealth {
    /// By at least one connection.
    Up,
    /// Not now: the connections for callbacks are lost, or the client has refused callbacks.
    Down,
    /// Client and server disagree about the slots.
    Faulty,
    /// It never offered a connection.
    Never,
}

/// A client, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientReport {
    /// The client.
    pub id: ClientId,
    /// The name that it gives itself.
    pub owner: Box<[u8]>,
    /// Where its latest session came from.
    pub address: Option<IpAddr>,
    /// The minor version of the protocol there.
    pub minor_version: Option<u32>,
    /// Its sessions.
    pub sessions: usize,
    /// Connections that it has bound to them.
    pub connections: Vec<u64>,
    /// Whether it can be called.
    pub callbacks: CallbackHealth,
    /// Whether a session has confirmed it.
    pub is_confirmed: bool,
    /// The time since then, or since it was made.
    pub age: Duration,
    /// How long its lease lasts, if nothing renews it.
    pub lease_left: Duration,
    /// How long ago its lease ran out.
    pub silent: Option<Duration>,
    /// How long its state is kept all the same, if nobody else wants it.
    pub courtesy_left: Option<Duration>,
    /// Whether it may reclaim state that it had before the server's restart.
    pub reclaims: bool,
    /// Whether it has a durable record.
    pub is_recorded: bool,
    /// State in force.
    pub counts: StateCounts,
    /// Locked ranges.
    pub ranges: usize,
    /// Revoked state of which it has not taken note.
    pub revoked: usize,
}

/// The kinds of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// An open.
    Open,
    /// Locks.
    Lock,
    /// A delegation.
    Delegation,
    /// Any that was revoked.
    Revoked,
}

/// Which state is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateFilter {
    /// Of this client only.
    pub client: Option<ClientId>,
    /// Of clients whose latest sessions came from this address only.
    pub address: Option<IpAddr>,
    /// On this export only.
    pub export: Option<u64>,
    /// Of this kind only.
    pub kind: Option<StateKind>,
}

/// A piece of state, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateReport {
    /// Its stateid.
    pub stateid: Stateid,
    /// Its client.
    pub client: ClientId,
    /// Where the client's latest session came from.
    pub address: Option<IpAddr>,
    /// The file.
    pub file: FileKey,
    /// The time since it was granted first.
    pub age: Duration,
    /// What it is.
    pub detail: StateReportDetail,
}

/// State by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateReportDetail {
    /// An open.
    Open {
        /// The open owner.
        owner: Arc<[u8]>,
        /// What it may do.
        access: ShareMode,
        /// What it denies to others.
        deny: ShareMode,
    },
    /// The locks of an owner on a file.
    Lock {
        /// The lock owner.
        owner: Arc<[u8]>,
        /// The first ranges.
        ranges: Vec<(ByteRange, LockMode)>,
        /// How many ranges there are.
        range_count: usize,
        /// Denied requests for locks of the file that wait.
        waiters: usize,
    },
    /// A delegation.
    Delegation {
        /// Whether it is for writing.
        writes: bool,
        /// How long ago it was recalled, and how long the client has to return it.
        recalled: Option<(Duration, Duration)>,
    },
    /// It was revoked.
    Revoked(Revocation),
}

/// A part of a list, with the index at which the next part begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportSlice<T> {
    /// What was found.
    pub found: Vec<T>,
    /// Where to go on; `None` at the end.
    pub next: Option<u32>,
}

/// A grace period, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraceReport {
    /// How long it lasts at most, if it is not prolonged.
    pub left: Duration,
    /// How many clients it waits for.
    pub waits_for: usize,
    /// The names of some of them, each with the client that has returned under it.
    pub awaited: Vec<(Box<[u8]>, Option<ClientId>)>,
}

impl StateHome {
    /// Some clients, from an index on.
    #[must_use]
    pub fn report_clients(
        &self,
        first: u32,
        most: usize,
        now: Duration,
    ) -> ReportSlice<ClientReport> {
        let (mut found, mut next) = (Vec::new(), None);
        for (index, client) in self.clients.iter_from(first) {
            if found.len() >= most {
                next = Some(index);
                break;
            }
            found.push(self.client_report(index, client, now));
        }
        ReportSlice { found, next }
    }

    /// A client.
    #[must_use]
    pub fn report_client(&self, id: ClientId, now: Duration) -> Option<ClientReport> {
        let index = self.clients.find(id)?;
        Some(self.client_report(index, self.clients.get(index)?, now))
    }

    fn client_report(&self, index: u32, client: &LeasedClient, now: Duration) -> ClientReport {
        let end = self.lease_end(index);
        let silent = now.checked_sub(end).filter(|silent| !silent.is_zero());
        let courtesy_end = end.saturating_add(match client.is_confirmed {
            true => self.config.courtesy,
            false => Duration::ZERO,
        });
        let connections = client.sessions.iter();
        let connections = connections.flat_map(|session| session.back.connections());
        let mut connections: Vec<u64> = connections.take(CONNECTIONS_MAX).collect();
        connections.sort_unstable();
        connections.dedup();
        let in_force = client.counts.opens + client.counts.lock_states + client.counts.delegations;
        ClientReport {
            id: client.id,
            owner: client.owner.clone(),
            address: client.origin.map(|origin| origin.address),
            minor_version: client.origin.map(|origin| origin.minor_version),
            sessions: client.sessions.len(),
            connections,
            callbacks: callback_health(client),
            is_confirmed: client.is_confirmed,
            age: now.saturating_sub(client.lease_began),
            lease_left: end.saturating_sub(now),
            silent,
            courtesy_left: silent.map(|_| courtesy_end.saturating_sub(now)),
            reclaims: client.may_reclaim && !client.completes,
            is_recorded: client.record.is_some(),
            counts: client.counts,
            ranges: client.ranges,
            revoked: client.states.len() - in_force,
        }
    }

    /// Some state, from an index on. A slice may be empty before the end of the list.
    #[must_use]
    pub fn report_states(
        &self,
        filter: &StateFilter,
        first: u32,
        most: usize,
        now: Duration,
    ) -> ReportSlice<StateReport> {
        match self.own_states(filter, first) {
            Some(own) => {
                let own = own.into_iter().map(|index| (index, self.states.get(index)));
                self.slice_of_states(own, filter, most, now)
            }
            None => self.slice_of_states(self.states.iter_from(first), filter, most, now),
        }
    }

    /// The indexes from one on of all state of the clients that a filter names; `None` if it names
    /// none, or they have more than a slice looks at.
    fn own_states(&self, filter: &StateFilter, first: u32) -> Option<Vec<u32>> {
        let clients: Vec<&LeasedClient> = match (filter.client, filter.address) {
            (Some(id), _) => {
                let index = self.clients.find(id);
                index
                    .and_then(|index| self.clients.get(index))
                    .into_iter()
                    .collect()
            }
            (None, Some(address)) => {
                let all = self.clients.iter_from(0).map(|(_, client)| client);
                all.filter(|client| client.is_at(address)).collect()
            }
            (None, None) => return None,
        };
        let count: usize = clients.iter().map(|client| client.states.len()).sum();
        if count > SLICE_WORK {
            return None;
        }
        let states = clients.iter().flat_map(|client| &client.states);
        let mut states: Vec<u32> = states.copied().filter(|index| *index >= first).collect();
        states.sort_unstable();
        Some(states)
    }

    fn slice_of_states<'a>(
        &'a self,
        states: impl Iterator<Item = (u32, Option<&'a StateRecord>)>,
        filter: &StateFilter,
        most: usize,
        now: Duration,
    ) -> ReportSlice<StateReport> {
        let (mut found, mut next) = (Vec::new(), None);
        let mut work = 0;
        for (index, record) in states {
            if found.len() >= most || work >= SLICE_WORK {
                next = Some(index);
                break;
            }
            work += 1;
            let Some(record) = record.filter(|record| self.is_wanted(record, filter)) else {
                continue;
            };
            if let StateDetail::Lock(_) = record.detail {
                work += self
                    .files
                    .get(record.file)
                    .map_or(0, |file| file.ranges.len());
            }
            found.extend(self.state_report(index, record, now));
        }
        ReportSlice { found, next }
    }

    fn is_wanted(&self, record: &StateRecord, filter: &StateFilter) -> bool {
        let kind = match record.detail {
            StateDetail::Open(_) => StateKind::Open,
            StateDetail::Lock(_) => StateKind::Lock,
            StateDetail::Delegation(_) => StateKind::Delegation,
            StateDetail::Revoked(_) => StateKind::Revoked,
        };
        let export = self.files.get(record.file).map(|file| file.key.export);
        let is_at = |address| {
            let client = self.clients.get(record.client_index);
            client.is_some_and(|client| client.is_at(address))
        };
        filter.client.is_none_or(|client| record.client == client)
            && filter.address.is_none_or(is_at)
            && filter.kind.is_none_or(|wanted| kind == wanted)
            && filter.export.is_none_or(|wanted| export == Some(wanted))
    }

    /// The state that the name of a stateid designates.
    #[must_use]
    pub fn report_state(&self, other: [u8; 12], now: Duration) -> Option<StateReport> {
        let index = self.states.find_named(other)?;
        self.state_report(index, self.states.get(index)?, now)
    }

    fn state_report(&self, index: u32, record: &StateRecord, now: Duration) -> Option<StateReport> {
        let file = self.files.get(record.file)?;
        let client = self.clients.get(record.client_index);
        let detail = match &record.detail {
            StateDetail::Open(open) => StateReportDetail::Open {
                owner: self.open_owners.get(open.owner)?.name.clone(),
                access: open.access,
                deny: open.deny,
            },
            StateDetail::Lock(lock) => {
                let own = || file.ranges.iter().filter(|one| one.state == index);
                let first = own().take(RANGES_MAX);
                StateReportDetail::Lock {
                    owner: self.lock_owners.get(lock.owner)?.name.clone(),
                    ranges: first.map(|one| (one.range, one.mode)).collect(),
                    range_count: own().count(),
                    waiters: file.waiters.len(),
                }
            }
            StateDetail::Delegation(delegation) => {
                let times = |recall: super::delegations::RecallTimes| {
                    let began = now.saturating_sub(recall.began);
                    (began, recall.ends.saturating_sub(now))
                };
                StateReportDetail::Delegation {
                    writes: delegation.writes,
                    recalled: delegation.recall.map(times),
                }
            }
            StateDetail::Revoked(revoked) => StateReportDetail::Revoked(revoked.reason),
        };
        Some(StateReport {
            stateid: self.states.stateid(index),
            client: record.client,
            address: client
                .and_then(|client| client.origin)
                .map(|origin| origin.address),
            file: file.key,
            age: now.saturating_sub(record.since),
            detail,
        })
    }

    /// The grace period, while it lasts.
    #[must_use]
    pub fn report_grace(&self, now: Duration) -> Option<GraceReport> {
        let grace = self.grace()?;
        let awaited = self.grace.awaited().take(AWAITED_MAX);
        Some(GraceReport {
            left: grace.ends.saturating_sub(now),
            waits_for: grace.waits_for,
            awaited: awaited.collect(),
        })
    }

    /// Ends a client with its sessions and state by order of an administrator. Returns whether there
    /// was one.
    pub fn end_client(&mut self, client: ClientId) -> bool {
        let Some(index) = self.clients.find(client) else {
            return false;
        };
        self.remove_client(index);
        // It may be in the middle of what it was allowed to do.
        self.fences.raise(client);
        true
    }

    /// Revokes the state that the name of a stateid designates by order of an administrator. Returns
    /// whether there was any in force.
    pub fn revoke_named(&mut self, other: [u8; 12]) -> bool {
        let index = self.states.find_named(other);
        let record = index.and_then(|index| self.states.get(index));
        let Some(record) = record.filter(|record| record.check_in_force().is_ok()) else {
            return false;
        };
        let stateid = Stateid { sequence: 0, other };
        self.revoke(record.client, &stateid).is_ok()
    }
}

impl LeasedClient {
    /// Whether its latest session came from this address.
    fn is_at(&self, address: IpAddr) -> bool {
        self.origin.is_some_and(|origin| origin.address == address)
    }
}

fn callback_health(client: &LeasedClient) -> CallbackHealth {
    let mut channels = client.sessions.iter().map(|session| &session.back);
    if channels
        .clone()
        .any(|back| back.path().is_some() && !back.is_faulty())
    {
        CallbackHealth::Up
    } else if channels.clone().any(|back| back.path().is_some()) {
        CallbackHealth::Faulty
    } else if channels.any(Backchannel::is_down) {
        CallbackHealth::Down
    } else {
        CallbackHealth::Never
    }
}
