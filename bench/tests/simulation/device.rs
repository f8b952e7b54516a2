//! A world on RDMA devices, in real time: the same calls, the same model and the same watch, and
//! what can be made to go wrong there. A seed decides the same calls again, not the same run.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_reactor::fabric::testing::Wire;
use millrace_reactor::fabric::{Ended, Terminate};

use super::client::Client;
use super::mischief::Mischief;
use super::world::World;

/// When everything becomes well, so that every call must come to its end.
const HEALED: Duration = Duration::from_millis(1500);
/// How long a client waits for anything to happen before it gives its connection up: devices that
/// are software are slow, and so are machines that are software.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a world may last, and how long its end may take.
const LAST: Duration = Duration::from_secs(120);

/// A refusal of memory: of a key, its bounds or its rights.
fn is_refusal(reason: &Ended) -> bool {
    let (Ended::TerminateReceived(found) | Ended::TerminateSent(found)) = reason else {
        return false;
    };
    matches!(
        found,
        Terminate {
            layer: 0,
            kind: 1,
            ..
        }
    )
}

impl World {
    /// Puts devices' faults and times in place.
    pub fn settle_on(&mut self, wire: &Wire) {
        // Two addresses, the first client's is one of them.
        self.server.limited = format!("{}/31", wire.source([192, 0, 2, 0].into()));
        for client in &mut self.clients {
            client.owner = client.index;
            client.options.timeout = PROGRESS_TIMEOUT;
            let mischief = Rc::new(RefCell::new(Mischief::new(self.dice.fork())));
            client.provider.mischief = Some(Rc::clone(&mischief));
            self.mischiefs.push(mischief);
        }
    }

    /// Lives to the end.
    pub fn live_on(&mut self, wire: &Wire) -> Result<(), String> {
        while !self.clients.iter().all(Client::is_done) {
            self.pass_on(wire)?;
            if self.now > self.start + LAST {
                return Err(self.stuck());
            }
        }
        self.heal();
        for client in &mut self.clients {
            client.part();
        }
        let parted = self.now;
        while wire.queue_pairs() > 0 || self.server.calls.len() > 0 {
            self.pass_on(wire)?;
            if self.now > parted + LAST {
                let left = wire.queue_pairs();
                return Err(format!("{left} queue pairs never end"));
            }
        }
        for mischief in &self.mischiefs {
            // Receives that were late for connections that have ended.
            mischief.borrow_mut().late.clear();
        }
        Ok(())
    }

    /// One turn of everybody, in any order.
    fn pass_on(&mut self, wire: &Wire) -> Result<(), String> {
        let mut parties: Vec<usize> = (0..=self.clients.len()).collect();
        self.dice.shuffle(&mut parties);
        let mut work = 0;
        for party in parties {
            self.now = Instant::now();
            work += self.turn(party)?;
            self.look_on(wire)?;
        }
        if work == 0 {
            // The kernel may have to move the messages on this very core.
            std::thread::yield_now();
        }
        if self.limits && self.dice.once_in(2000) {
            let limited = !self.healed && !self.dice.once_in(3);
            self.server.limit(limited, self.now);
        }
        if !self.healed && self.now > self.start + HEALED {
            self.server.limit(false, self.now);
            self.heal();
        }
        Ok(())
    }

    /// Nothing goes wrong any more.
    fn heal(&mut self) {
        self.healed = true;
        for client in &mut self.clients {
            client.options.breaks = usize::MAX;
        }
        for mischief in &self.mischiefs {
            let mut mischief = mischief.borrow_mut();
            mischief.end();
            self.run.injected += std::mem::take(&mut mischief.happened);
        }
    }

    /// Reads what happened.
    fn look_on(&mut self, wire: &Wire) -> Result<(), String> {
        if let Some(complaint) = self.complaints.borrow().first() {
            return Err(complaint.clone());
        }
        for client in &self.clients {
            let Some(connection) = &client.connection else {
                continue;
            };
            let carrier = (client.owner, connection.queue_pair());
            if !self.alive.contains(&carrier)
                && let Some(end) = wire.other_end(&client.provider.inner, carrier.1)
            {
                self.run.connections += 1;
                self.alive.insert(carrier);
                self.others.insert(carrier, end);
            }
        }
        self.judge_ends()?;
        let Self { alive, others, .. } = self;
        others.retain(|carrier, end| {
            let lives = wire.lives(*end);
            if !lives {
                alive.remove(carrier);
            }
            lives
        });
        for client in &mut self.clients {
            client.settle(&mut self.model, &self.alive);
        }
        Ok(())
    }

    /// Keys of cancelled calls are dead, whatever the server is at, and so are those of replies
    /// that were not fetched in time. All else that is refused is somebody's fault.
    fn judge_ends(&mut self) -> Result<(), String> {
        for (party, mischief) in self.mischiefs.iter().enumerate() {
            for (queue_pair, reason) in std::mem::take(&mut mischief.borrow_mut().ended) {
                if self.talks {
                    let at = self.now - self.start;
                    println!("{at:?} party {party}: {queue_pair:?} ended: {reason}");
                }
                self.run.resets += u64::from(party == 0 && reason != Ended::Local);
                let cancelled = match party.checked_sub(1) {
                    None => self.clients.iter().any(|client| !client.fenced.is_empty()),
                    Some(client) => self.clients[client].fenced.contains(&queue_pair),
                };
                if is_refusal(&reason) && !cancelled && !self.classic {
                    return Err(format!("a connection of party {party} ended: {reason}"));
                }
            }
        }
        Ok(())
    }
}
