//! What the control thread of a gateway does, step by step. A crash may come between two steps.

use super::LEASE;
use super::gateway::{ControlStep, ControlWish, GatewayRun};
use super::rules::BrokenRule;
use super::world::{GatewayWorld, WorldEvent};
use crate::state::StateHome;

/// How often a gateway looks at the records.
const POLL: u64 = 500;
/// How often it looks while it waits for others.
const PAUSE: u64 = 100;
/// How long a stop waits for others.
const STOP_WAIT: u64 = 5_000;
/// How long a take-over waits for others.
const OTHERS_WAIT: u64 = 20_000;

impl GatewayWorld {
    /// A gateway starts, if it is not running.
    pub fn start(&mut self, index: usize) {
        let gateway = &mut self.gateways[index];
        if gateway.control != ControlStep::Down {
            return;
        }
        let disk = &mut gateway.disk;
        disk.taken.retain(|_, taken| taken.is_proved);
        self.records.start(&gateway.name, disk.has_clients());
        gateway.control = ControlStep::AwaitStart;
        let run = self.run_of(index);
        self.figures.starts += 1;
        self.after_step(WorldEvent::Control(run));
    }

    /// The next step of a control thread.
    pub fn control(&mut self, run: GatewayRun) {
        let index = run.gateway;
        if self.run_of(index) != run || self.gateways[index].control == ControlStep::Down {
            return;
        }
        let stalled_until = self.gateways[index].stalled_until;
        if stalled_until > self.now {
            self.at(stalled_until - self.now, WorldEvent::Control(run));
            return;
        }
        let own = self.records.0[&self.gateways[index].name];
        if own.is_replaced && !self.breaks(BrokenRule::GoesOnReplaced) {
            self.crash(index);
            return;
        }
        let pause = match self.gateways[index].control {
            ControlStep::Down => return,
            ControlStep::AwaitStart | ControlStep::EndOld | ControlStep::Begin(_) => {
                self.start_step(index)
            }
            ControlStep::Serve => {
                self.serve(index);
                None
            }
            ControlStep::Poll => self.poll(index),
            ControlStep::Enforce => {
                let name = self.gateways[index].name.clone();
                match self.breaks(BrokenRule::EnforcesBeforeHolding) {
                    true => self.hold(index, true),
                    false => self.records.enforce(&name),
                }
                self.next(index, ControlStep::Poll)
            }
            ControlStep::LetGo => {
                let name = self.gateways[index].name.clone();
                match self.breaks(BrokenRule::GrantsBeforeResuming) {
                    true => drop(self.records.resume(&name)),
                    false => self.hold(index, false),
                }
                self.next(index, ControlStep::Poll)
            }
            ControlStep::Stop | ControlStep::AwaitStop(_) => self.stop_step(index),
            ControlStep::EndOwn => {
                if let Some(session) = self.gateways[index].session {
                    self.files.end_session(session);
                }
                self.gateways[index].disk.crash(&mut self.dice);
                self.gateways[index].end();
                self.figures.stops += 1;
                self.plan_return(index);
                return;
            }
            ControlStep::TakeOver(_)
            | ControlStep::AwaitOthers(..)
            | ControlStep::EndOther(..)
            | ControlStep::Fence(..)
            | ControlStep::Adopt(..) => self.take_over_step(index),
        };
        match pause {
            Some(pause) => self.at(pause, WorldEvent::Control(run)),
            None => self.after_step(WorldEvent::Control(run)),
        }
        self.look_at_grace();
        self.settle(index);
    }

    fn next(&mut self, index: usize, step: ControlStep) -> Option<u64> {
        self.gateways[index].control = step;
        None
    }

    fn hold(&mut self, index: usize, holds: bool) {
        if let Some(home) = &mut self.gateways[index].home {
            home.hold_grants(holds);
        }
    }

    /// Whether another gateway may grant something. For one that takes the place of another one,
    /// those that are replaced, or are to be, do not count.
    fn others_grant(&self, index: usize, replaces: Option<usize>) -> bool {
        let mut granting = self.records.granting(&self.gateways[index].name);
        let counts = |name| match replaces {
            Some(of) => name != self.gateways[of].name && !self.records.0[name].is_replaced,
            None => true,
        };
        granting.any(counts)
    }

    fn start_step(&mut self, index: usize) -> Option<u64> {
        match self.gateways[index].control {
            ControlStep::AwaitStart => {
                let waits = self.gateways[index].disk.has_clients()
                    && self.others_grant(index, None)
                    && !self.breaks(BrokenRule::StartsWithoutWaiting);
                if waits {
                    return Some(PAUSE);
                }
                self.next(index, ControlStep::EndOld)
            }
            ControlStep::EndOld => {
                let session = self.gateways[index].session;
                let was_kept = session.is_some_and(|session| self.files.end_session(session));
                if self.breaks(BrokenRule::OpensBeforeRecord) {
                    self.gateways[index].session = Some(self.files.open_session());
                }
                self.next(index, ControlStep::Begin(was_kept))
            }
            ControlStep::Begin(was_kept) => {
                let trusts = self.breaks(BrokenRule::TrustsLostSession);
                let drops = self.breaks(BrokenRule::DropsInMemory);
                let gateway = &mut self.gateways[index];
                let had_clients = gateway.disk.has_clients();
                let name = &gateway.name;
                if !self.records.begin_recovery(name, was_kept || trusts) {
                    self.figures.unproved += u64::from(had_clients);
                    // For good, before there is a session that the next start could find.
                    match drops {
                        true => gateway.disk.hide(),
                        false => gateway.disk.clear(),
                    }
                }
                gateway.disk.open(LEASE);
                self.next(index, ControlStep::Serve)
            }
            _ => None,
        }
    }

    fn serve(&mut self, index: usize) {
        let (clients, now) = (self.clients.len(), self.clock());
        if !self.breaks(BrokenRule::OpensBeforeRecord) {
            self.gateways[index].session = Some(self.files.open_session());
        }
        self.gateways[index].serve(index, clients, now);
        self.gateways[index].control = ControlStep::Poll;
    }

    fn poll(&mut self, index: usize) -> Option<u64> {
        let name = self.gateways[index].name.clone();
        match self.gateways[index].wish.take() {
            Some(ControlWish::Stop) => {
                self.hold(index, true);
                return self.next(index, ControlStep::Stop);
            }
            Some(ControlWish::TakeOver(of)) if self.may_be_replaced(of) => {
                self.hold(index, true);
                self.gateways[of].taken_by = Some(self.run_of(index));
                return self.next(index, ControlStep::TakeOver(of));
            }
            _ => {}
        }
        let (now, rule) = (self.clock(), self.rule);
        let gateway = &mut self.gateways[index];
        let home = gateway.home.as_mut()?;
        home.expire_clients(now);
        home.sweep_states();
        home.ask_host_again(now);
        let has_settled = home.are_records_durable();
        let has_ended = home.grace().is_none();
        self.reopen(index);
        let own = self.records.0[&name];
        if own.recovers && has_ended && (has_settled || rule == Some(BrokenRule::EndsUnrecorded)) {
            // Before others may grant what was not reclaimed.
            if rule != Some(BrokenRule::KeepsTaken) {
                self.gateways[index].disk.taken.clear();
            }
            self.records.end_recovery(&name);
        }
        let own = self.records.0[&name];
        if self.records.is_recovering() && !self.breaks(BrokenRule::ResumesUnasked) {
            if own.enforces {
                self.hold(index, true);
                return Some(POLL);
            }
            match self.breaks(BrokenRule::EnforcesBeforeHolding) {
                true => self.records.enforce(&name),
                false => self.hold(index, true),
            }
            return self.next(index, ControlStep::Enforce);
        }
        if !own.enforces {
            return Some(POLL);
        }
        let lets_go = match rule {
            Some(BrokenRule::ResumesUnasked) => {
                if let Some(record) = self.records.0.get_mut(&name) {
                    record.enforces = false;
                }
                true
            }
            Some(BrokenRule::GrantsBeforeResuming) => {
                self.hold(index, false);
                true
            }
            _ => self.records.resume(&name),
        };
        match lets_go {
            true => self.next(index, ControlStep::LetGo),
            false => Some(POLL),
        }
    }

    /// Opens another session if the last one has ended and nothing is left of it.
    pub fn reopen(&mut self, index: usize) {
        let gateway = &mut self.gateways[index];
        let has_session = |session| self.files.has_session(session);
        let is_ended = !gateway.session.is_some_and(has_session);
        if gateway.home.is_some() && is_ended && gateway.has_closed_all() {
            gateway.session = Some(self.files.open_session());
            self.figures.reopened += 1;
        }
    }

    fn stop_step(&mut self, index: usize) -> Option<u64> {
        let name = self.gateways[index].name.clone();
        let home = self.gateways[index].home.as_ref();
        let has_clients = home.is_some_and(StateHome::has_records);
        match self.gateways[index].control {
            ControlStep::Stop => {
                self.records.stop(&name, has_clients);
                let until = self.now + STOP_WAIT;
                self.next(index, ControlStep::AwaitStop(until))
            }
            ControlStep::AwaitStop(until) => {
                let waits = has_clients
                    && self.others_grant(index, None)
                    && !self.breaks(BrokenRule::StopsWithoutWaiting);
                if waits && self.now < until {
                    return Some(PAUSE);
                }
                if !waits {
                    self.records.prove(&name);
                }
                self.next(index, ControlStep::EndOwn)
            }
            _ => None,
        }
    }

    /// Whether the place of a gateway may be taken: it is off, or not getting on.
    pub fn may_be_replaced(&self, of: usize) -> bool {
        let gateway = &self.gateways[of];
        let is_gone = gateway.control == ControlStep::Down || gateway.stalled_until > self.now;
        is_gone && gateway.taken_by.is_none() && self.records.0.contains_key(&gateway.name)
    }

    fn take_over_step(&mut self, index: usize) -> Option<u64> {
        match self.gateways[index].control {
            ControlStep::TakeOver(of) => {
                self.records.begin_take_over(&self.gateways[index].name);
                let until = self.now + OTHERS_WAIT;
                self.next(index, ControlStep::AwaitOthers(of, until))
            }
            ControlStep::AwaitOthers(of, until) => {
                let trusts = self.breaks(BrokenRule::TakesOverWithoutWaiting);
                if trusts || !self.others_grant(index, Some(of)) {
                    return self.replace(index, of);
                }
                if self.now < until {
                    return Some(PAUSE);
                }
                self.gateways[of].taken_by = None;
                self.figures.given_up += 1;
                self.next(index, ControlStep::Poll)
            }
            ControlStep::EndOther(of, before) => {
                let session = self.gateways[of].session;
                let was_kept = session.is_some_and(|session| self.files.end_session(session));
                if was_kept {
                    self.lose_session(of);
                }
                self.next(index, ControlStep::Fence(of, before, was_kept))
            }
            ControlStep::Fence(of, before, was_kept) => {
                let is_that = self.records.fence(&self.gateways[of].name);
                // Others that are replaced and may be going on could take what is free now.
                let is_alone = !self.others_grant(index, None)
                    || self.breaks(BrokenRule::TakesOverWithoutWaiting)
                    || self.breaks(BrokenRule::TrustsReplaced);
                let is_proved = before.recovers && before.is_proved || was_kept && is_that;
                let may = is_proved && is_alone || self.breaks(BrokenRule::AdoptsUnproved);
                self.next(index, ControlStep::Adopt(of, may))
            }
            ControlStep::Adopt(of, may) => {
                let now = self.clock();
                let gateway = &mut self.gateways[index];
                if !may {
                    gateway.disk.taken.remove(&of);
                } else if let Some(taken) = gateway.disk.taken.get_mut(&of)
                    && let Some(home) = &mut gateway.home
                {
                    taken.is_proved = true;
                    self.figures.adopted += taken.clients.len() as u64;
                    home.adopt(taken.clients.clone(), taken.lease, now);
                }
                for address in &mut self.addresses {
                    if *address == of {
                        *address = index;
                    }
                }
                self.gateways[of].taken_by = None;
                self.figures.take_overs += 1;
                self.next(index, ControlStep::Poll)
            }
            _ => None,
        }
    }

    fn replace(&mut self, index: usize, of: usize) -> Option<u64> {
        let by = self.gateways[index].name.clone();
        let name = &self.gateways[of].name;
        let before = self.records.replace(name, &by).unwrap_or_default();
        if self.breaks(BrokenRule::TrustsReplaced) {
            self.records.fence(name);
        }
        let taken = self.gateways[of].disk.take_away();
        let known = self.gateways[index].disk.taken.entry(of).or_default();
        known.is_proved = false;
        known.lease = known.lease.max(taken.lease);
        known.clients.extend(taken.clients);
        self.next(index, ControlStep::EndOther(of, before))
    }
}
