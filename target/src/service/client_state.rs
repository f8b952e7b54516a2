//! The state of NFS version 4's clients in the service: the first reactor keeps it, others ask it
//! by message.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use millrace_admin::config::{Delegations, Nfs4};
use millrace_reactor::{Alarm, Clock, ReactorHandle, SendError};
use millrace_store::any::AnyVolume;

use super::client_records::{RecordBatches, RecordFolder, RecordWriter};
use super::gateways::ShareThreads;
use super::host_locks::{HostLockThreads, LockReport};
use super::lock::StateLock;
use super::metrics::client_state::StateGauges;
use super::worker::ReactorMessage;
use crate::exports::ExportId;
use crate::flow::policy::Pressure;
use crate::handle::{HandleKey, HandleSecrets};
use crate::nfs4::{CallbackSender, ClientState, ForReactor, ServerIdentity};
use crate::state::{
    CallbackOrder, HomeAnswer, HomeLink, HomeOutbox, HomeRequest, RecordProgress, RecoveredClients,
    SharedDenials, StateConfig, StateHome, StateTerms, StateViews,
};

/// The reactor that keeps the state.
pub(super) const HOME: usize = 0;

/// How often leases are looked at.
const LEASE_SCAN: Duration = Duration::from_secs(1);

/// What all reactors have in common.
#[derive(Clone, Debug)]
pub struct SharedClientState {
    config: StateConfig,
    identity: ServerIdentity,
    minor_versions: Vec<u32>,
    epoch: Instant,
    /// Set by the first reactor, which is built before the others.
    views: Arc<OnceLock<StateViews>>,
    /// Records of earlier starts, and the way to the thread that writes them, if there is a state
    /// directory.
    records: Option<(RecoveredClients, RecordBatches)>,
    progress: Arc<RecordProgress>,
    /// Whether other gateways have to agree before anything is granted.
    holds_grants: bool,
    /// Clients of other gateways, which are not recorded here yet.
    taken: Vec<RecoveredClients>,
    /// Where gateways announce what opens access and deny.
    announcements: Option<PathBuf>,
    gauges: Arc<StateGauges>,
    /// Of all reactors.
    alarms: Arc<Mutex<Vec<Alarm>>>,
}

/// What of the settings may change while clients are served.
#[must_use]
pub fn terms(settings: &Nfs4) -> StateTerms {
    StateTerms {
        lease: settings.lease,
        courtesy: settings.courtesy,
        delegations: settings.delegations == Delegations::Auto,
    }
}

impl SharedClientState {
    /// State for so many reactors, which nobody keeps yet.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(reactors: usize, settings: &Nfs4, identity: ServerIdentity) -> io::Result<Self> {
        let terms = terms(settings);
        let mut start = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut start)?;
        Ok(Self {
            config: StateConfig {
                start,
                reactors,
                lease: terms.lease,
                delegations: terms.delegations,
                courtesy: terms.courtesy,
                // Each has a slot for a reply of 8 KiB within `reply_cache`.
                sessions: 7500,
                sessions_per_client: 16,
                ..StateConfig::default()
            },
            identity,
            holds_grants: false,
            taken: Vec::new(),
            announcements: None,
            minor_versions: settings.minor_versions.clone(),
            epoch: Instant::now(),
            views: Arc::default(),
            records: None,
            progress: Arc::default(),
            gauges: Arc::default(),
            alarms: Arc::default(),
        })
    }

    /// The same with records of clients in a state directory.
    ///
    /// # Errors
    /// The records cannot be used.
    pub fn with_records(
        mut self,
        directory: &Path,
        lock: Option<Arc<StateLock>>,
    ) -> io::Result<Self> {
        let opened = RecordFolder::open(directory, self.config.lease)?;
        self.gauges.records.damaged.set(opened.damaged);
        if !opened.recovered.clients.is_empty() {
            let clients = opened.recovered.clients.len();
            tracing::info!(
                clients,
                "grace period: clients reclaim their opens and locks"
            );
        }
        let writer = RecordWriter::new(
            opened.folder,
            self.progress.clone(),
            self.gauges.records.clone(),
            self.alarms.clone(),
            lock,
        );
        self.records = Some((opened.recovered, writer.spawn()?));
        Ok(self)
    }

    /// The state of one of several gateways: it grants nothing until [`StateHome::hold_grants`] lets
    /// it. `taken`: clients of others that may reclaim here. `announcements`: where gateways announce
    /// what opens access and deny; without it, opens of shared files deny nothing.
    #[must_use]
    pub fn of_gateway(
        mut self,
        taken: Vec<RecoveredClients>,
        announcements: Option<PathBuf>,
    ) -> Self {
        self.holds_grants = true;
        self.config.shared_denials = match announcements {
            Some(_) => SharedDenials::Announced,
            None => SharedDenials::Refused,
        };
        self.taken = taken;
        self.announcements = announcements;
        self
    }

    /// With handles of these secrets. While there are several, there are no delegations: a client
    /// may know a file by another handle than the one by which it is recalled.
    #[must_use]
    pub fn with_handles_of(mut self, secrets: &HandleSecrets) -> Self {
        self.config.handles_vary = !secrets.others.is_empty();
        self
    }

    /// How much state there is.
    #[must_use]
    pub fn gauges(&self) -> Arc<StateGauges> {
        self.gauges.clone()
    }

    /// The state as one reactor asks for it. The first one keeps it.
    #[must_use]
    pub fn of_reactor(
        &self,
        reactor: usize,
        key: HandleKey,
        clock: &Clock,
        alarm: &Alarm,
    ) -> (ClientState, HomePost) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.push(alarm.clone());
        drop(alarms);
        let times = (self.epoch, clock.clone());
        let outbox = HomeOutbox::default();
        let link = if reactor == HOME {
            let mut home = StateHome::new(self.config.clone());
            if let Some((recovered, _)) = &self.records {
                let now = self.epoch.elapsed();
                home.recover(recovered.clone(), self.progress.clone(), now);
                for taken in &self.taken {
                    home.adopt(taken.clients.clone(), taken.lease, now);
                }
                self.gauges.set(&home.figures(now));
            }
            home.hold_grants(self.holds_grants);
            let (views, alarm) = (home.views(), alarm.clone());
            views.broken_leases.wake_by(move || alarm.ring());
            let _ = self.views.set(views);
            HomeLink::here(Rc::new(RefCell::new(home)), reactor, times)
        } else {
            HomeLink::elsewhere(Rc::clone(&outbox), reactor, times)
        };
        let views = self.views.get().cloned();
        let views = views.expect("the first reactor is built first");
        let sender = CallbackSender::new(reactor, key, clock, Some(alarm));
        let (identity, lease) = (self.identity.clone(), self.config.lease);
        let post = HomePost {
            outbox,
            answers: VecDeque::new(),
            callbacks: VecDeque::new(),
            scanned: self.epoch,
            gauges: self.gauges.clone(),
            host_locks: HostLockThreads::new(alarm.clone()),
            shares: self
                .announcements
                .clone()
                .map(|folder| ShareThreads::new(folder, alarm.clone())),
            batches: self.records.as_ref().map(|(_, batches)| batches.clone()),
            epoch: self.epoch,
            slots_most: self.config.fore_most.requests,
            slots: self.config.fore_most.requests,
        };
        let versions = self.minor_versions.clone();
        let state = ClientState::new(link, views, identity, lease, versions)
            .with_callbacks(sender)
            .with_records(self.progress.clone());
        let alarms = self.alarms.clone();
        state.wake_by(move || {
            let alarms = alarms.lock().unwrap_or_else(PoisonError::into_inner);
            alarms.iter().for_each(Alarm::ring);
        });
        (state, post)
    }
}

/// Questions and answers of a reactor that are on their way.
#[derive(Debug)]
pub struct HomePost {
    outbox: HomeOutbox,
    answers: VecDeque<(usize, HomeAnswer)>,
    /// Callbacks that other reactors have to send.
    callbacks: VecDeque<Box<CallbackOrder>>,
    scanned: Instant,
    gauges: Arc<StateGauges>,
    /// Takes locks on the host, once there are any.
    host_locks: HostLockThreads,
    /// Tells other gateways what opens access and deny.
    shares: Option<ShareThreads>,
    /// Where changes of records go.
    batches: Option<RecordBatches>,
    epoch: Instant,
    /// Most slots of a session, with all memory and with what there is now.
    slots_most: u32,
    slots: u32,
}

impl HomePost {
    /// Answers a question of another reactor.
    pub fn serve(&mut self, state: &ClientState, request: HomeRequest) {
        let from = request.from;
        let answer = state.link().serve(request);
        self.answers.extend(answer.map(|answer| (from, answer)));
    }

    /// Sends what is to be sent; what finds a full mailbox stays for a later turn.
    pub fn send(&mut self, peers: &[ReactorHandle<ReactorMessage>]) {
        let mut outbox = self.outbox.borrow_mut();
        while let Some(request) = outbox.pop_front() {
            let Some(home) = peers.get(HOME) else {
                return outbox.push_front(request);
            };
            if let Err(SendError::Full(ReactorMessage::AskHome(request))) =
                home.send(ReactorMessage::AskHome(request))
            {
                outbox.push_front(request);
                break;
            }
        }
        while let Some((peer, answer)) = self.answers.pop_front() {
            let Some(asker) = peers.get(peer) else {
                continue;
            };
            if let Err(SendError::Full(ReactorMessage::HomeAnswer(answer))) =
                asker.send(ReactorMessage::HomeAnswer(answer))
            {
                self.answers.push_front((peer, answer));
                break;
            }
        }
        while let Some(order) = self.callbacks.pop_front() {
            let Some(peer) = peers.get(order.path.reactor) else {
                continue;
            };
            let message = ReactorMessage::CallClient(order);
            if let Err(SendError::Full(ReactorMessage::CallClient(order))) = peer.send(message) {
                self.callbacks.push_front(order);
                break;
            }
        }
    }

    /// Goes on with callbacks. Returns the amount of work done.
    pub fn call_clients(&mut self, state: &ClientState) -> usize {
        state.link().end_waits();
        let (callbacks, answers) = (&mut self.callbacks, &mut self.answers);
        state.run_callbacks(|reactor, for_reactor| match for_reactor {
            ForReactor::Call(order) => callbacks.push_back(order),
            ForReactor::Answer(answer) => answers.push_back((reactor, answer)),
        })
    }

    /// Goes on with leases and locks of the host, where the state is kept. Returns the amount of
    /// work done.
    pub fn lock_on_host(
        &mut self,
        state: &ClientState,
        volume: impl Fn(ExportId) -> Option<AnyVolume>,
    ) -> usize {
        let link = state.link();
        let mut work = 0;
        while let Some(report) = self.host_locks.report() {
            let _ = link.ask_here(|home, now| match report {
                LockReport::Answer(ticket, answer) => home.host_answered(ticket, answer, now),
                LockReport::Lost(export) => {
                    tracing::warn!(
                        export = format!("{export:016x}"),
                        "the cluster has ended the session that locks of clients were taken in; \
                         they are revoked"
                    );
                    home.lose_host_locks(export);
                }
            });
            work += 1;
        }
        let settled = link.ask_here(|home, now| {
            home.end_broken_leases(now) + home.end_recalls(now) + home.sweep_states()
        });
        work += settled.unwrap_or_default();
        let _ = link.ask_here(StateHome::ask_host_again);
        while let Some(order) = link.ask_here(|home, _| home.take_host_order()).flatten() {
            let volume = volume(ExportId(order.file.export));
            self.host_locks.send(volume, order);
            work += 1;
        }
        work
    }

    /// Goes on with what other gateways are told of opens, where the state is kept. Returns the
    /// amount of work done.
    pub fn announce_shares(&mut self, state: &ClientState) -> usize {
        let (link, mut work) = (state.link(), 0);
        let Some(shares) = &mut self.shares else {
            return work;
        };
        while let Some((ticket, answer)) = shares.answer() {
            let _ = link.ask_here(|home, now| home.share_announced(ticket, answer, now));
            work += 1;
        }
        while let Some(order) = link.ask_here(|home, _| home.take_share_order()).flatten() {
            shares.send(order);
            work += 1;
        }
        work
    }

    /// Hands changes of records over, where the state is kept, and ends waits for them.
    pub fn record(&self, state: &ClientState) {
        if let Some(batches) = &self.batches {
            let changes = state.link().ask_here(|home, _| home.take_record_changes());
            if let Some(batch) = changes.flatten() {
                batches.send(batch);
            }
            state.record_waits().poll(state.link().now());
        }
    }

    /// When something is to be done without anything that arrives.
    pub fn next_deadline(&self, state: &ClientState) -> Option<Instant> {
        let next = state.record_waits().next_deadline();
        let next = next.into_iter().chain(state.link().next_deadline());
        let host = state.link().ask_here(|home, _| home.next_host_question());
        let next = next.chain(host.filter(|host| *host < Duration::MAX)).min();
        let next = next.map(|next| self.epoch + next);
        // An idle server shows how the grace period goes on, and ends it. Other reactors show clients
        // the conditions of their sessions.
        let watches = state.link().ask_here(|home, _| home.watches_contexts());
        let waits =
            self.gauges.is_in_grace() || self.gauges.are_grants_held() || watches == Some(true);
        let scan = waits && state.link().reactor() == HOME;
        let scan = scan.then(|| self.scanned + LEASE_SCAN);
        next.into_iter().chain(scan).min()
    }

    /// Whether something is to be sent.
    pub fn is_waiting(&self, state: &ClientState) -> bool {
        let changes = state.link().ask_here(|home, _| {
            home.has_record_changes()
                || home.has_host_orders()
                || home.has_share_orders()
                || home.has_sweeps()
        });
        let is_empty = self.callbacks.is_empty() && self.answers.is_empty();
        !is_empty || !self.outbox.borrow().is_empty() || changes == Some(true)
    }

    /// Ends what has outlived its lease, from time to time, where the state is kept.
    /// `pressure` is that of this reactor's memory.
    pub fn scan(&mut self, state: &ClientState, pressure: Pressure, now: Instant) {
        if now.saturating_duration_since(self.scanned) < LEASE_SCAN {
            return;
        }
        self.scanned = now;
        // Slots come and go in steps, as a shortage may be short. Calls that wait are no shortage.
        let pressure = Pressure {
            waiters: 0,
            ..pressure
        };
        let (before, most) = (self.slots, self.slots_most);
        let least = (before / 2).max(most / 16).max(1);
        let wanted = pressure.most(most).min(most);
        self.slots = wanted
            .clamp(least, before.saturating_mul(2).max(least))
            .min(most);
        let slots = match self.slots {
            slots if slots == self.slots_most => u32::MAX,
            slots => slots,
        };
        state.check_callback_contexts();
        let _ = state.link().ask_here(|home, now| {
            home.expire_clients(now);
            home.end_announcements(now);
            home.limit_slots(slots);
            home.divide_slots(now);
            home.relieve(now);
            let figures = home.figures(now);
            if self.gauges.is_in_grace() && figures.grace_clients == 0 {
                tracing::info!("the grace period has ended");
            }
            self.gauges.set(&figures);
        });
    }
}
