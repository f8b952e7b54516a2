//! All gateways and clients, and what happens to them in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::client::SimulatedClient;
use super::dice::GatewayDice;
use super::figures::GatewayFigures;
use super::gateway::{GatewayRun, SimulatedGateway};
use super::judge::GrantLog;
use super::rules::BrokenRule;
use super::shared_files::{SharedFiles, SharedSession};
use crate::state::GatewayRecords;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldEvent {
    /// A gateway starts.
    Start(usize),
    /// Another gateway is to take its place.
    TakeOver(usize),
    /// The control thread of a gateway gets on.
    Control(GatewayRun),
    /// Its thread for locks of files.
    Host(GatewayRun),
    /// Its thread for records.
    Disk(GatewayRun),
    /// A client does something.
    Client(usize),
    /// The cluster ends a session.
    EndSession(SharedSession),
    /// A gateway crashes, if the faults have not stopped.
    Crash(usize),
    /// Something goes wrong.
    Fault,
}

/// The size of a world, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorldSize {
    pub gateways: usize,
    pub clients: usize,
    /// Files that clients share.
    pub files: u32,
    /// Bytes of each that locks begin with.
    pub bytes: u64,
    /// Between two actions of a client, about.
    pub pause: u64,
    /// Between two faults, about.
    pub fault_pause: u64,
    /// How long there are faults.
    pub faults: u64,
}

/// How long it takes at most until everybody gets a lock when the faults have stopped.
const QUIET_MAX: u64 = 300_000;

/// The world.
#[derive(Debug)]
pub(super) struct GatewayWorld {
    pub now: u64,
    pub dice: GatewayDice,
    pub rule: Option<BrokenRule>,
    pub size: WorldSize,
    pub gateways: Vec<SimulatedGateway>,
    pub clients: Vec<SimulatedClient>,
    pub records: GatewayRecords,
    pub files: SharedFiles,
    pub log: GrantLog,
    /// The gateway that serves each address, or is to serve it again.
    pub addresses: Vec<usize>,
    pub figures: GatewayFigures,
    /// Whether the faults have stopped.
    pub is_quiet: bool,
    /// Clients that have got a lock since.
    pub served: usize,
    pub violation: Option<String>,
    /// How long the cluster keeps the session of a gateway that is gone.
    pub session_time: u64,
    /// How long it takes at most to write records.
    disk_time: u64,
    /// How often a step of a thread takes long, once in so many times, and how long at most.
    slowness: (u64, u64),
    recovering_since: Option<u64>,
    queue: BinaryHeap<Reverse<(u64, u64, WorldEvent)>>,
    serial: u64,
}

impl GatewayWorld {
    pub fn new(seed: u64, size: WorldSize, rule: Option<BrokenRule>) -> Self {
        let mut dice = GatewayDice::new(seed);
        let gateways = (0..size.gateways).map(SimulatedGateway::new).collect();
        let mounts = if rule == Some(BrokenRule::UsesTwoGateways) {
            2
        } else {
            1
        };
        let client = |index| SimulatedClient::new(index, size.gateways, mounts);
        let clients = (0..size.clients).map(client);
        let clients = clients.collect();
        let session_time = dice.between(2_000, 40_000);
        let disk_time = [20, 500, 20_000][dice.index(3)];
        let slowness = [(8, 2_000), (2, 2_000), (3, 8_000)][dice.index(3)];
        let mut world = Self {
            now: 1_000_000,
            dice,
            rule,
            size,
            gateways,
            clients,
            records: GatewayRecords::default(),
            files: SharedFiles::default(),
            log: GrantLog::default(),
            addresses: (0..size.gateways).collect(),
            figures: GatewayFigures::default(),
            is_quiet: false,
            served: 0,
            violation: None,
            session_time,
            disk_time,
            slowness,
            recovering_since: None,
            queue: BinaryHeap::new(),
            serial: 0,
        };
        for index in 0..size.gateways {
            world.at(0, WorldEvent::Start(index));
        }
        for index in 0..size.clients {
            world.at_random(size.pause, WorldEvent::Client(index));
        }
        world.at_random(size.fault_pause, WorldEvent::Fault);
        world
    }

    /// Lets everything happen.
    ///
    /// # Errors
    /// What must never happen.
    pub fn run(mut self) -> Result<GatewayFigures, String> {
        let quiet_from = self.now + self.size.faults;
        let most = quiet_from + QUIET_MAX;
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            if !self.is_quiet && at >= quiet_from {
                self.now = quiet_from;
                self.be_quiet();
            }
            if at > most {
                let waits = self.clients.iter().position(|client| !client.is_served);
                return Err(format!(
                    "client {waits:?} and others, {} in all, are stuck; {:?}",
                    self.clients.len() - self.served,
                    self.records
                ));
            }
            self.now = at;
            self.happen(event);
            if let Some(violation) = self.violation.take() {
                return Err(format!("{violation} at {at} ms; {:?}", self.records));
            }
            if self.served == self.clients.len() {
                break;
            }
        }
        self.figures.quiet = self.now.saturating_sub(quiet_from);
        Ok(self.figures)
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Start(index) => self.start(index),
            WorldEvent::TakeOver(of) => self.order_take_over(of),
            WorldEvent::Control(run) => self.control(run),
            WorldEvent::Host(run) if run == self.run_of(run.gateway) => self.host(run),
            WorldEvent::Disk(run) if run == self.run_of(run.gateway) => self.disk(run),
            WorldEvent::Host(_) | WorldEvent::Disk(_) => {}
            WorldEvent::Client(index) => {
                self.client_acts(index);
                let pause = match self.is_reclaiming(index) {
                    true => self.size.pause.min(1_000),
                    false => self.size.pause,
                };
                self.at_random(pause, WorldEvent::Client(index));
            }
            WorldEvent::EndSession(session) => {
                self.files.end_session(session);
            }
            WorldEvent::Crash(_) | WorldEvent::Fault if self.is_quiet => {}
            WorldEvent::Crash(index) => self.crash(index),
            WorldEvent::Fault => {
                self.fault();
                self.at_random(self.size.fault_pause, WorldEvent::Fault);
            }
        }
    }

    pub fn clock(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    pub fn breaks(&self, rule: BrokenRule) -> bool {
        self.rule == Some(rule)
    }

    pub fn run_of(&self, gateway: usize) -> GatewayRun {
        let run = self.gateways[gateway].run;
        GatewayRun { gateway, run }
    }

    pub fn at(&mut self, pause: u64, event: WorldEvent) {
        self.serial += 1;
        let at = self.now + pause;
        self.queue.push(Reverse((at, self.serial, event)));
    }

    pub fn at_random(&mut self, about: u64, event: WorldEvent) {
        let pause = self.dice.between(about / 2, about * 3 / 2);
        self.at(pause, event);
    }

    /// After a step of a thread, which sometimes takes long.
    pub fn after_step(&mut self, event: WorldEvent) {
        let (times, long) = self.slowness;
        let is_slow = !self.is_quiet && self.dice.once_in(times);
        let most = if is_slow { long } else { 20 };
        let pause = self.dice.between(1, most);
        self.at(pause, event);
    }

    /// Has the threads of a gateway do what its home asks for.
    pub fn settle(&mut self, index: usize) {
        let (now, run) = (self.clock(), self.run_of(index));
        let gateway = &mut self.gateways[index];
        let Some(home) = &mut gateway.home else {
            return;
        };
        while home.take_event(now).is_some() {}
        let writes = home.has_record_changes() || gateway.disk.is_writing();
        let asks = gateway.take_orders();
        if asks && !std::mem::replace(&mut gateway.host_is_due, true) {
            let pause = self.dice.between(1, 10);
            self.at(pause, WorldEvent::Host(run));
        }
        let gateway = &mut self.gateways[index];
        if writes && !std::mem::replace(&mut gateway.disk_is_due, true) {
            self.write_for(run);
        }
    }

    fn write_for(&mut self, run: GatewayRun) {
        let most = if self.is_quiet { 20 } else { self.disk_time };
        let pause = self.dice.between(1, most);
        self.at(pause, WorldEvent::Disk(run));
    }

    fn host(&mut self, run: GatewayRun) {
        let (now, index) = (self.clock(), run.gateway);
        self.gateways[index].host_is_due = false;
        for _ in 0..self.dice.between(1, 16) {
            let gateway = &mut self.gateways[index];
            if self.dice.once_in(2) {
                gateway.carry_out(&mut self.files);
            } else {
                gateway.report(now);
            }
            self.answer(run);
            self.gateways[index].take_orders();
        }
        if self.breaks(BrokenRule::ReopensUnasked) {
            self.reopen(index);
        }
        self.settle(index);
    }

    fn disk(&mut self, run: GatewayRun) {
        let gateway = &mut self.gateways[run.gateway];
        gateway.disk_is_due = false;
        let Some(home) = &mut gateway.home else {
            return;
        };
        if gateway.disk.is_writing() {
            gateway.disk.finish();
        }
        if gateway.disk.begin(home) {
            gateway.disk_is_due = true;
            self.write_for(run);
        }
    }

    /// Notes how long grants were held.
    pub fn look_at_grace(&mut self) {
        match (self.records.is_recovering(), self.recovering_since) {
            (true, None) => self.recovering_since = Some(self.now),
            (false, Some(since)) => {
                self.recovering_since = None;
                let longest = &mut self.figures.longest_grace;
                *longest = (*longest).max(self.now - since);
            }
            _ => {}
        }
    }
}
