//! The side of a change on the requesting thread.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crossbeam_channel::Receiver;
use millrace_admin::config::{Config, Rpcbind};
use millrace_admin::control::{Applied, ApplyError};
use millrace_admin::status::ReactorOutcome;
use millrace_mempool::UnusedArena;
use millrace_store::Time;
use tracing_subscriber::EnvFilter;

use super::exports::{self, ExportVolumes};
use super::listeners::{Listener, Matched, matched};
use super::log::LogFilter;
use super::ticket::{
    Change, ChangeDecision, ChangeRefused, ChangeTicket, Commit, NewListener, ReactorAnswer, Ready,
};
use crate::exports::ExportId;
use crate::rdma::FabricId;
use crate::rpcbind::{Offers, Registration};
use crate::service::control::{REACTOR_ANSWER_TIMEOUT, ServiceControl};
use crate::service::worker::ReactorMessage;
use crate::service::{client_state, memory, plan};

/// The state in force; replaced as a whole.
#[derive(Clone)]
pub struct InForce {
    /// The configuration.
    pub config: Arc<Config>,
    /// The exports, in the order of the configuration.
    pub exports: ExportVolumes,
    /// Listeners, in the order of the configuration.
    pub listeners: Vec<Listener>,
    /// Removed listeners; some may have connections.
    pub former: Vec<Listener>,
    /// The address of RPC over TCP.
    pub rpc: Option<SocketAddr>,
}

impl InForce {
    /// The addresses for the port mapper.
    pub fn offers(&self) -> Offers {
        let fabric: Vec<_> = self.listeners.iter().map(|one| one.address).collect();
        Offers::of_service(&plan::versions(&self.config), self.rpc, &fabric)
    }
}

/// State used by one change at a time.
pub struct Changing {
    /// The identifier of the next listener.
    pub next_listener: u64,
    /// With the port mapper of this host.
    pub registration: Option<Registration>,
}

/// The parts of a change prepared on the requesting thread.
struct Prepared {
    exports: ExportVolumes,
    arenas: Vec<UnusedArena>,
    filter: Option<EnvFilter>,
    matched: Matched,
    rpc: Option<SocketAddr>,
    new: Vec<NewListener>,
}

impl ServiceControl {
    pub(in crate::service) fn lock_changes(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state in force now.
    pub(in crate::service) fn in_force(&self) -> Arc<InForce> {
        let in_force = self.in_force.lock();
        Arc::clone(&in_force.unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, next: InForce) {
        let in_force = self.in_force.lock();
        *in_force.unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }

    /// Applies a configuration on all reactors, or on none.
    pub(in crate::service) fn change(&self, next: &Arc<Config>) -> Result<Applied, ApplyError> {
        let mut changing = self.lock_changes();
        let before = self.in_force();
        let refused = |ChangeRefused { path, reason }| ApplyError {
            path,
            reason,
            reactors: Vec::new(),
        };
        let prepared = self
            .prepare(&before, next, &mut changing)
            .map_err(refused)?;
        let Prepared {
            exports,
            arenas,
            filter,
            matched,
            rpc,
            new,
        } = prepared;
        let change = Arc::new(Change {
            listeners: new,
            rpc,
            exports: (next.exports != before.config.exports).then(|| exports.clone()),
            made: Time::now(),
            devices: self.devices.get().cloned(),
            decision: OnceLock::new(),
        });
        let round = Round::begin(self, &change);
        let (round, mut ready) = match round.prepared() {
            Ok(ready) => ready,
            Err(error) => {
                // No other thread decides, so this is the decision.
                let _ = change.decision.set(ChangeDecision::Abort);
                self.ring();
                // Reactors may hold new stores for longer, and must not free them.
                self.reaper.take(exports::gone(&exports, &before.exports));
                return Err(error);
            }
        };
        let listeners = listeners(&before, &change, &matched, next, &ready);
        let rpc = ready.iter().find_map(|ready| ready.rpc).or(before.rpc);
        let gone = before.listeners.iter().chain(&before.former);
        let stays = |id: FabricId| listeners.iter().any(|listener| listener.id == id);
        let lives = |id| self.parts.iter().any(|one| one.providers.of(id).is_some());
        let in_force = InForce {
            config: Arc::clone(next),
            former: gone
                .filter(|one| !stays(one.id) && lives(one.id))
                .cloned()
                .collect(),
            exports,
            listeners,
            rpc,
        };
        let offers = in_force.offers();
        let offers_change = offers != before.offers();
        let limits = next.fabric.iter().zip(&matched.kept);
        let commit = Commit {
            settings: plan::settings(next),
            poll: plan::poll_mode(&next.reactors),
            arenas: arenas
                .into_iter()
                .map(|arena| Mutex::new(Some(arena)))
                .collect(),
            offers: offers_change.then(|| Arc::new(offers.clone())),
            removed: matched.removed.clone(),
            state_terms: client_state::terms(&next.nfs4),
            limits: limits
                .filter_map(|(fabric, id)| Some(((*id)?, plan::limits(next, fabric))))
                .collect(),
        };
        // From here on nothing fails.
        for (parts, ready) in self.parts.iter().zip(&mut ready) {
            parts.providers.add(std::mem::take(&mut ready.counters));
        }
        let (clients, export_limits) = plan::rates(next);
        self.clients
            .set_limits(&clients, export_limits, Instant::now());
        exports::adjust(&in_force.exports, next);
        let remains = exports::gone(&before.exports, &in_force.exports);
        self.replace(in_force);
        let _ = change
            .decision
            .set(ChangeDecision::Commit(Box::new(commit)));
        self.ring();
        let reactors = round.applied();
        drop(before);
        self.reaper.take(remains);
        let ids = next.exports.iter().map(|one| ExportId::of(&one.path));
        let ids: Vec<_> = ids.collect();
        self.spaces.retain(|id| ids.contains(&id));
        let log = filter.and_then(|filter| self.log.set(filter).err());
        let offers = offers_change.then(|| changing.register(next, offers).err());
        Ok(Applied {
            reactors,
            pending: log.into_iter().chain(offers.flatten()).collect(),
        })
    }

    /// Prepares everything that can fail and needs no reactor.
    fn prepare(
        &self,
        before: &InForce,
        next: &Config,
        changing: &mut Changing,
    ) -> Result<Prepared, ChangeRefused> {
        let phase = self.phase.get();
        let going_on = phase.check();
        going_on.map_err(|stops| ChangeRefused::new("", stops.to_string()))?;
        let matched = matched(&before.listeners, &next.fabric);
        let rpc = next.rpc.listen;
        let rpc = (rpc != before.config.rpc.listen).then_some(rpc);
        let moves = matched.kept.contains(&None) || !matched.removed.is_empty();
        if phase.deadline().is_some() && (moves || rpc.is_some()) {
            let path = if moves { "fabric" } else { "rpc.listen" };
            let reason = "nothing listens during a drain; cancel it first";
            return Err(ChangeRefused::new(path, reason));
        }
        let filter = (next.log != before.config.log)
            .then(|| LogFilter::read(&next.log))
            .transpose()?;
        memory::check_growth(&before.config, next, self.reactors.len())
            .map_err(ChangeRefused::from)?;
        if let Some(late) = self.late_devices(next) {
            return Err(late.into());
        }
        self.devices.open_for(next, &self.registry)?;
        let exports = exports::next_of(&before.exports, next, &self.registry)?;
        let arenas = self.more_memory(&before.config, next)?;
        let new = matched.kept.iter().zip(&matched.replaces).enumerate();
        let new = new.filter(|(_, (kept, _))| kept.is_none());
        let new = new.map(|(index, (_, &replaces))| {
            let id = FabricId(changing.next_listener);
            changing.next_listener += 1;
            let fabric = next.fabric[index].clone();
            let mut going = before.listeners.iter().filter(|one| {
                matched.removed.contains(&one.id) && one.address.port() == fabric.listen.port()
            });
            NewListener {
                behind: going.next().map(|one| one.address),
                id,
                index,
                limits: plan::limits(next, &fabric),
                fabric,
                replaces,
            }
        });
        Ok(Prepared {
            exports,
            arenas,
            filter,
            new: new.collect(),
            matched,
            rpc,
        })
    }

    /// Maps additional memory of the pools, one piece for each reactor.
    fn more_memory(
        &self,
        before: &Config,
        next: &Config,
    ) -> Result<Vec<UnusedArena>, ChangeRefused> {
        let [before, next] = [before, next].map(|config| config.mempool.size.bytes());
        let more = usize::try_from(next.saturating_sub(before)).unwrap_or(usize::MAX);
        if more == 0 {
            return Ok(Vec::new());
        }
        let arenas = self.reactors.iter().map(|_| self.registry.arena(more));
        arenas
            .collect::<Result<_, _>>()
            .map_err(|error| ChangeRefused::new("mempool.size", error.to_string()))
    }

    /// Wakes sleeping reactors to check a decision.
    fn ring(&self) {
        for reactor in &self.reactors {
            reactor.alarm().ring();
        }
    }
}

impl Changing {
    /// Registers with the port mapper of this host, if configured.
    ///
    /// # Errors
    /// Why it is not registered.
    fn register(&self, config: &Config, offers: Offers) -> Result<(), String> {
        if config.rpc.rpcbind != Rpcbind::Register {
            return Ok(());
        }
        let told = match &self.registration {
            Some(registration) => registration.replace(offers),
            None => Err("its thread could not be started".to_owned()),
        };
        told.map_err(|why| {
            format!(
                "rpc.rpcbind: the new addresses are not registered with the port mapper of this \
                 host: {why}"
            )
        })
    }
}

/// The listeners of the next configuration.
fn listeners(
    before: &InForce,
    change: &Change,
    matched: &Matched,
    next: &Config,
    ready: &[Ready],
) -> Vec<Listener> {
    let all = next.fabric.iter().zip(&matched.kept).enumerate();
    all.filter_map(|(index, (fabric, kept))| {
        let (id, address) = match kept {
            Some(id) => {
                let known = before.listeners.iter().find(|one| one.id == *id)?;
                (*id, known.address)
            }
            None => {
                let new = change.listeners.iter().find(|new| new.index == index)?;
                let mut bound = ready.iter().flat_map(|ready| &ready.fabric);
                let bound = bound.find(|(id, _)| *id == new.id);
                (new.id, bound.map_or(fabric.listen, |(_, address)| *address))
            }
        };
        Some(Listener {
            id,
            fabric: fabric.clone(),
            address,
        })
    })
    .collect()
}

/// One change sent to all reactors, each of which may take [`REACTOR_ANSWER_TIMEOUT`] for each of
/// the two steps.
struct Round<'a> {
    control: &'a ServiceControl,
    answers: Receiver<(usize, ReactorAnswer)>,
    since: Instant,
    /// Why the change could not be sent to a reactor.
    unasked: Vec<Option<&'static str>>,
}

impl<'a> Round<'a> {
    fn begin(control: &'a ServiceControl, change: &Arc<Change>) -> Self {
        let count = control.reactors.len();
        let (sender, answers) = crossbeam_channel::bounded(2 * count);
        let since = Instant::now();
        let asked = control.reactors.iter().enumerate();
        let unasked = asked.map(|(number, reactor)| {
            let ticket = ChangeTicket {
                change: Arc::clone(change),
                reactor: number,
                answers: sender.clone(),
            };
            let sent = reactor.send(ReactorMessage::Change(ticket));
            sent.err().map(|_| "does not accept messages")
        });
        Self {
            control,
            unasked: unasked.collect(),
            answers,
            since,
        }
    }

    /// Waits until all have prepared it.
    fn prepared(self) -> Result<(Self, Vec<Ready>), ApplyError> {
        let count = self.unasked.len();
        let mut seconds = vec![None; count];
        let mut ready: Vec<Option<Ready>> = (0..count).map(|_| None).collect();
        let mut refused: Vec<Option<ChangeRefused>> = vec![None; count];
        let mut left = if self.unasked.iter().any(Option::is_some) {
            0
        } else {
            count
        };
        while left > 0 {
            let Some((number, answer)) = self.next() else {
                break;
            };
            if let ReactorAnswer::Prepared(outcome) = answer {
                seconds[number] = Some(self.since.elapsed().as_secs_f64());
                match outcome {
                    Ok(made) => ready[number] = Some(made),
                    Err(why) => refused[number] = Some(why),
                }
                left -= 1;
            }
        }
        if ready.iter().all(Option::is_some) {
            return Ok((self, ready.into_iter().flatten().collect()));
        }
        let why = refused.iter().flatten().next().cloned();
        let missing = |number: usize| {
            let unasked = self.unasked.iter().any(Option::is_some);
            match self.unasked[number] {
                Some(reason) => Some(reason.to_owned()),
                None if unasked || ready[number].is_some() => None,
                None => match &refused[number] {
                    Some(refused) => Some(refused.reason.clone()),
                    None => Some(format!("did not answer within {REACTOR_ANSWER_TIMEOUT:?}")),
                },
            }
        };
        let outcomes: Vec<_> = (0..count)
            .map(|number| self.outcome(number, false, missing(number), seconds[number]))
            .collect();
        let why = why.unwrap_or_else(|| {
            let silent = outcomes.iter().find(|one| one.error.is_some());
            let text = silent.map(|one| {
                let error = one.error.as_deref().unwrap_or_default();
                format!("{} {error}", one.name)
            });
            ChangeRefused::new("reactors", text.unwrap_or_default())
        });
        Err(ApplyError {
            path: why.path,
            reason: why.reason,
            reactors: outcomes,
        })
    }

    /// Waits until all have applied it. A stuck reactor will, as soon as it continues.
    fn applied(mut self) -> Vec<ReactorOutcome> {
        let count = self.unasked.len();
        let mut seconds = vec![None; count];
        let began = std::mem::replace(&mut self.since, Instant::now());
        while seconds.contains(&None) {
            let Some((number, answer)) = self.next() else {
                break;
            };
            if matches!(answer, ReactorAnswer::Applied) {
                seconds[number] = Some(began.elapsed().as_secs_f64());
            }
        }
        (0..count)
            .map(|number| {
                let late = seconds[number].is_none().then(|| {
                    format!(
                        "did not answer within {REACTOR_ANSWER_TIMEOUT:?}; applies it once it is \
                         no longer stuck"
                    )
                });
                self.outcome(number, late.is_none(), late, seconds[number])
            })
            .collect()
    }

    fn next(&self) -> Option<(usize, ReactorAnswer)> {
        let left = (self.since + REACTOR_ANSWER_TIMEOUT).saturating_duration_since(Instant::now());
        self.answers.recv_timeout(left).ok()
    }

    fn outcome(
        &self,
        number: usize,
        applied: bool,
        error: Option<String>,
        seconds: Option<f64>,
    ) -> ReactorOutcome {
        let reactor = &self.control.reactors[number];
        ReactorOutcome {
            name: reactor.name().to_owned(),
            core: reactor.core(),
            applied,
            error,
            seconds: seconds.unwrap_or_else(|| self.since.elapsed().as_secs_f64()),
        }
    }
}
