//! Reports of the state of NFS version 4's clients, and orders of operators, by messages to the
//! reactor that keeps the state.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use millrace_admin::control::{ControlError, Nfs4Control};
use millrace_admin::status::{
    AwaitedClient, GraceStatus, ListPage, LockRange, Nfs4Access, Nfs4Callbacks, Nfs4Client,
    Nfs4Clients, Nfs4Revocation, Nfs4State, Nfs4StateFilter, Nfs4StateKind, Nfs4States,
};

use millrace_reactor::ReactorHandle;

use super::client_state::HOME;
use super::control::{REACTOR_ANSWER_TIMEOUT, ServiceControl};
use super::worker::ReactorMessage;
use crate::exports::ExportId;
use crate::state::{
    ByteRange, CallbackHealth, ClientId, ClientReport, LockMode, ReportSlice, Revocation,
    ShareMode, StateFilter, StateHome, StateKind, StateReport, StateReportDetail,
};

/// Most items that the reactor is asked for at once.
const SLICE: usize = 128;
/// How long a page is gathered; what has been found until then is a page, too.
const PAGE_TIME: Duration = Duration::from_secs(2);

/// A question about the state, or an order, for the reactor that keeps it.
pub type StateQuestion = Box<dyn FnOnce(&mut StateHome, Duration) + Send>;

/// The way to the reactor that keeps the state.
#[derive(Clone)]
pub struct StateAsker(Option<ReactorHandle<ReactorMessage>>);

impl StateAsker {
    /// The way to that one of all reactors.
    #[must_use]
    pub fn new(reactors: &[ReactorHandle<ReactorMessage>]) -> Self {
        Self(reactors.get(HOME).cloned())
    }

    /// Asks it.
    ///
    /// # Errors
    /// It does not answer.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut StateHome, Duration) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        let silent = |what| {
            let name = self
                .0
                .as_ref()
                .map_or("the first reactor", ReactorHandle::name);
            ControlError::Unavailable(format!("{name} {what}"))
        };
        let (answer, answered) = crossbeam_channel::bounded(1);
        let question: StateQuestion = Box::new(move |home, now| {
            // The receiver may be gone.
            let _ = answer.try_send(question(home, now));
        });
        let send = |reactor: &ReactorHandle<ReactorMessage>| {
            reactor.send(ReactorMessage::AskState(question)).ok()
        };
        let sent = self.0.as_ref().and_then(send);
        sent.ok_or_else(|| silent("does not accept messages"))?;
        let answer = answered.recv_timeout(REACTOR_ANSWER_TIMEOUT);
        answer.map_err(|_| silent("does not answer"))
    }
}

impl ServiceControl {
    fn ask_state<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut StateHome, Duration) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        StateAsker::new(&self.reactors).ask(question)
    }

    /// Gathers a page of a list, slice by slice.
    fn gather<T: Send + 'static>(
        &self,
        page: ListPage,
        slice: impl Fn(&StateHome, u32, usize, Duration) -> ReportSlice<T> + Clone + Send + 'static,
    ) -> Result<ReportSlice<T>, ControlError> {
        let deadline = Instant::now() + PAGE_TIME;
        let mut found = Vec::new();
        let mut next = Some(page.after);
        while let Some(first) = next.filter(|_| found.len() < page.limit) {
            let most = SLICE.min(page.limit - found.len());
            let slice = slice.clone();
            let part = self.ask_state(move |home, now| slice(home, first, most, now))?;
            found.extend(part.found);
            next = part.next;
            if Instant::now() > deadline {
                break;
            }
        }
        Ok(ReportSlice { found, next })
    }

    /// The paths of the exports by the names that handles have.
    fn export_paths(&self) -> HashMap<u64, String> {
        let config = &self.in_force().config;
        let exports = config.exports.iter();
        exports
            .map(|export| (ExportId::of(&export.path).0, export.path.clone()))
            .collect()
    }
}

impl Nfs4Control for ServiceControl {
    fn clients(&self, page: ListPage) -> Result<Nfs4Clients, ControlError> {
        let part = self.gather(page, StateHome::report_clients)?;
        Ok(Nfs4Clients {
            clients: part.found.iter().map(client).collect(),
            next: part.next,
        })
    }

    fn client(&self, id: u64) -> Result<Option<Nfs4Client>, ControlError> {
        let report = self.ask_state(move |home, now| home.report_client(ClientId(id), now))?;
        Ok(report.as_ref().map(client))
    }

    fn end_client(&self, id: u64) -> Result<bool, ControlError> {
        self.ask_state(move |home, _| home.end_client(ClientId(id)))
    }

    fn states(&self, filter: &Nfs4StateFilter, page: ListPage) -> Result<Nfs4States, ControlError> {
        let filter = StateFilter {
            client: filter.client.map(ClientId),
            address: filter.address,
            export: filter.export.as_ref().map(|path| ExportId::of(path).0),
            kind: filter.kind.map(|kind| match kind {
                Nfs4StateKind::Open => StateKind::Open,
                Nfs4StateKind::Lock => StateKind::Lock,
                Nfs4StateKind::Delegation => StateKind::Delegation,
                Nfs4StateKind::Revoked => StateKind::Revoked,
            }),
        };
        let part = self.gather(page, move |home, first, most, now| {
            home.report_states(&filter, first, most, now)
        })?;
        let exports = self.export_paths();
        Ok(Nfs4States {
            states: part.found.iter().map(|one| state(one, &exports)).collect(),
            next: part.next,
        })
    }

    fn state(&self, stateid: [u8; 12]) -> Result<Option<Nfs4State>, ControlError> {
        let report = self.ask_state(move |home, now| home.report_state(stateid, now))?;
        Ok(report.map(|report| state(&report, &self.export_paths())))
    }

    fn revoke(&self, stateid: [u8; 12]) -> Result<bool, ControlError> {
        self.ask_state(move |home, _| home.revoke_named(stateid))
    }

    fn grace(&self) -> Result<GraceStatus, ControlError> {
        let report = self.ask_state(|home, now| home.report_grace(now))?;
        let report = report.map(|report| GraceStatus {
            active: true,
            left_seconds: report.left.as_secs_f64(),
            waits_for: report.waits_for as u64,
            awaited: report
                .awaited
                .iter()
                .map(|(owner, client)| AwaitedClient {
                    owner: owner.escape_ascii().to_string(),
                    client: client.map(client_name),
                })
                .collect(),
        });
        Ok(report.unwrap_or_default())
    }

    fn end_grace(&self) -> Result<bool, ControlError> {
        self.ask_state(|home, _| {
            let lasts = home.grace().is_some();
            home.end_grace();
            lasts
        })
    }
}

fn client_name(ClientId(id): ClientId) -> String {
    format!("{id:016x}")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn client(report: &ClientReport) -> Nfs4Client {
    let callbacks = match report.callbacks {
        CallbackHealth::Up => Nfs4Callbacks::Up,
        CallbackHealth::Down => Nfs4Callbacks::Down,
        CallbackHealth::Faulty => Nfs4Callbacks::Faulty,
        CallbackHealth::Never => Nfs4Callbacks::Never,
    };
    Nfs4Client {
        id: client_name(report.id),
        owner: report.owner.escape_ascii().to_string(),
        address: report.address.map(|address| address.to_string()),
        minor_version: report.minor_version,
        sessions: report.sessions as u64,
        connections: report.connections.clone(),
        callbacks,
        confirmed: report.is_confirmed,
        age_seconds: report.age.as_secs_f64(),
        lease_left_seconds: report.lease_left.as_secs_f64(),
        silent_seconds: report.silent.map(|silent| silent.as_secs_f64()),
        courtesy_left_seconds: report.courtesy_left.map(|left| left.as_secs_f64()),
        reclaims: report.reclaims,
        recorded: report.is_recorded,
        opens: report.counts.opens as u64,
        lock_owners: report.counts.lock_states as u64,
        locked_ranges: report.ranges as u64,
        delegations: report.counts.delegations as u64,
        revoked: report.revoked as u64,
    }
}

fn state(report: &StateReport, exports: &HashMap<u64, String>) -> Nfs4State {
    let mut state = Nfs4State {
        stateid: hexadecimal(&report.stateid.other),
        kind: Nfs4StateKind::Revoked,
        client: client_name(report.client),
        address: report.address.map(|address| address.to_string()),
        export: exports.get(&report.file.export).cloned(),
        file: hexadecimal(report.file.object.as_bytes()),
        age_seconds: report.age.as_secs_f64(),
        owner: None,
        access: None,
        deny: None,
        ranges: Vec::new(),
        range_count: 0,
        waiting: 0,
        recalled_seconds: None,
        return_within_seconds: None,
        revocation: None,
    };
    match &report.detail {
        StateReportDetail::Open {
            owner,
            access: allowed,
            deny,
        } => {
            state.kind = Nfs4StateKind::Open;
            state.owner = Some(owner.escape_ascii().to_string());
            state.access = Some(access(*allowed));
            state.deny = Some(access(*deny));
        }
        StateReportDetail::Lock {
            owner,
            ranges,
            range_count,
            waiters,
        } => {
            state.kind = Nfs4StateKind::Lock;
            state.owner = Some(owner.escape_ascii().to_string());
            state.ranges = ranges.iter().map(lock_range).collect();
            state.range_count = *range_count as u64;
            state.waiting = *waiters as u64;
        }
        StateReportDetail::Delegation { writes, recalled } => {
            state.kind = Nfs4StateKind::Delegation;
            state.access = Some(match writes {
                true => Nfs4Access::Both,
                false => Nfs4Access::Read,
            });
            state.recalled_seconds = recalled.map(|(ago, _)| ago.as_secs_f64());
            state.return_within_seconds = recalled.map(|(_, left)| left.as_secs_f64());
        }
        StateReportDetail::Revoked(reason) => {
            state.revocation = Some(match reason {
                Revocation::LeaseExpired => Nfs4Revocation::LeaseExpired,
                Revocation::Administrative => Nfs4Revocation::Administrative,
                Revocation::NotReturned => Nfs4Revocation::NotReturned,
            });
        }
    }
    state
}

fn access(mode: ShareMode) -> Nfs4Access {
    match (
        mode.includes(ShareMode::READ),
        mode.includes(ShareMode::WRITE),
    ) {
        (false, false) => Nfs4Access::None,
        (true, false) => Nfs4Access::Read,
        (false, true) => Nfs4Access::Write,
        (true, true) => Nfs4Access::Both,
    }
}

fn lock_range((range, mode): &(ByteRange, LockMode)) -> LockRange {
    LockRange {
        offset: range.offset(),
        length: (range.length() != u64::MAX).then(|| range.length()),
        exclusive: *mode == LockMode::Write,
    }
}
