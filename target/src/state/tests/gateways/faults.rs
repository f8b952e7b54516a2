//! What goes wrong, and how gateways return.

use super::gateway::{ControlStep, ControlWish, GatewayRun, SimulatedGateway};
use super::world::{GatewayWorld, WorldEvent};

impl GatewayWorld {
    /// A process ends, whatever it was doing.
    pub fn crash(&mut self, index: usize) {
        let gateway = &mut self.gateways[index];
        if gateway.control == ControlStep::Down {
            return;
        }
        let run = GatewayRun {
            gateway: index,
            run: gateway.run,
        };
        gateway.disk.crash(&mut self.dice);
        gateway.end();
        let session = gateway.session;
        for other in &mut self.gateways {
            other.taken_by = other.taken_by.filter(|by| *by != run);
        }
        if let Some(session) = session {
            self.at(self.session_time, WorldEvent::EndSession(session));
        }
        self.figures.crashes += 1;
        self.plan_return(index);
    }

    /// The session of a gateway has ended, which may be going on.
    pub fn lose_session(&mut self, index: usize) {
        if self.gateways[index].home.is_some() {
            self.gateways[index].lose_session();
            self.settle(index);
        }
    }

    /// A gateway that is gone starts again, or another one takes its place, or both.
    pub fn plan_return(&mut self, index: usize) {
        let (starts, is_replaced) = (!self.dice.once_in(3), self.dice.once_in(2));
        let long = match self.is_quiet {
            true => 20_000,
            false if starts && self.dice.once_in(2) => 3_000,
            false if starts => 40_000,
            false => 120_000,
        };
        let pause = self.dice.between(100, long);
        self.at(pause, WorldEvent::Start(index));
        if is_replaced && !self.is_quiet {
            let most = if self.dice.once_in(2) { 3_000 } else { 10_000 };
            let pause = self.dice.between(100, most);
            self.at(pause, WorldEvent::TakeOver(index));
        }
    }

    pub fn order_take_over(&mut self, of: usize) {
        if self.is_quiet || !self.may_be_replaced(of) {
            return;
        }
        let fits = |(index, one): (usize, &SimulatedGateway)| {
            let is_free = one.home.is_some() && one.wish.is_none() && one.stalled_until <= self.now;
            (index != of && is_free).then_some(index)
        };
        let free: Vec<usize> = self.gateways.iter().enumerate().filter_map(fits).collect();
        if free.is_empty() {
            self.at(2_000, WorldEvent::TakeOver(of));
            return;
        }
        let by = free[self.dice.index(free.len())];
        self.gateways[by].wish = Some(ControlWish::TakeOver(of));
    }

    /// A gateway that is doing something which a fault may cut short, or any.
    fn choose_gateway(&mut self) -> usize {
        let is_busy = |one: &SimulatedGateway| {
            let home = one.home.as_ref();
            let is_settled = home.is_none_or(|home| one.disk.is_settled(home));
            let is_idle = matches!(one.control, ControlStep::Poll | ControlStep::Down);
            !(is_idle && is_settled)
        };
        let all = self.gateways.iter().enumerate();
        let busy = all.filter_map(|(index, one)| is_busy(one).then_some(index));
        let busy: Vec<usize> = busy.collect();
        if busy.is_empty() || self.dice.once_in(2) {
            return self.dice.index(self.gateways.len());
        }
        busy[self.dice.index(busy.len())]
    }

    pub fn fault(&mut self) {
        let index = self.choose_gateway();
        match self.dice.below(20) {
            0..8 => {
                self.silence_clients(index);
                self.crash(index);
            }
            8..11 if self.gateways[index].home.is_some() => {
                self.gateways[index].wish = Some(ControlWish::Stop);
            }
            11..15 => {
                let stall = self.dice.between(1_000, 30_000);
                self.gateways[index].stalled_until = self.now + stall;
                if self.dice.once_in(2) {
                    let pause = self.dice.between(1, stall);
                    self.at(pause, WorldEvent::TakeOver(index));
                }
            }
            15..17 if self.gateways[index].home.is_some() => {
                if let Some(session) = self.gateways[index].session
                    && self.files.end_session(session)
                {
                    self.silence_clients(index);
                    self.lose_session(index);
                    if self.dice.once_in(2) {
                        let pause = self.dice.between(100, 5_000);
                        self.at(pause, WorldEvent::Crash(index));
                    }
                    self.figures.evictions += 1;
                }
            }
            17..19 => {
                let client = self.dice.index(self.clients.len());
                let silence = self.dice.between(10_000, 60_000);
                self.clients[client].silent_until = self.now + silence;
            }
            19 if self.dice.once_in(4) => {
                (0..self.gateways.len()).for_each(|index| self.crash(index));
            }
            _ => {}
        }
    }

    /// Some clients of a gateway do not learn at once what becomes of it.
    fn silence_clients(&mut self, gateway: usize) {
        for index in 0..self.clients.len() {
            if self.clients[index].is_of(gateway) && self.dice.once_in(3) {
                let silence = self.dice.between(2_000, 120_000);
                self.clients[index].silent_until = self.now + silence;
            }
        }
    }

    pub fn be_quiet(&mut self) {
        self.is_quiet = true;
        for index in 0..self.gateways.len() {
            self.gateways[index].stalled_until = 0;
            self.gateways[index].wish = None;
            let pause = self.dice.between(100, 20_000);
            self.at(pause, WorldEvent::Start(index));
        }
    }
}
