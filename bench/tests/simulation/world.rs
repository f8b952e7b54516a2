//! A server, its clients, the network between them, and time.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_mempool::{Pool, PoolConfig, Registry};
use millrace_reactor::fabric::QueuePairId;
use millrace_reactor::fabric::loopback::{Faults, Network, Record};
use millrace_reactor::fabric::testing::{Wire, WireEnd, registry};

use super::client::{Carrier, Client, Context};
use super::dice::Dice;
use super::mischief::Mischief;
use super::model::Model;
use super::mutant::Mutant;
use super::options::Options;
use super::panics;
use super::server::{FILES, Server};
use super::watch::{Complaints, Role, Watched};

/// Names of each client.
const NAMES: usize = 5;
/// When everything becomes well, so that every call must come to its end.
const HEALED: Duration = Duration::from_secs(10);
/// Turns after which two sides that still have something to say to each other never stop.
const TURNS: usize = 200_000;
/// What every pool has.
const LEAST: usize = 2 << 20;

/// Memory that worlds use one after the other.
pub struct Grounds {
    registry: Registry,
    server: [Pool; 2],
    clients: Pool,
}

impl Grounds {
    pub fn new() -> Self {
        let registry = registry();
        let pool = |bytes| Pool::new(&registry, PoolConfig { bytes }).expect("memory");
        let server = [pool(LEAST), pool(LEAST + (4 << 20))];
        let clients = pool(16 << 20);
        Self {
            registry,
            server,
            clients,
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Of everything that happened.
    pub digest: u64,
    pub calls: u64,
    pub resets: u64,
    pub connections: u64,
    pub replayed: u64,
    /// Faults of the network's own.
    pub injected: u64,
    pub withheld: u64,
    /// Replies that were fetched by their clients, calls in each form, keys invalidated, and
    /// clients that spoke version two.
    pub fetched: u64,
    pub forms: [u64; 3],
    pub invalidated: u64,
    pub two: u64,
    /// Calls of the server's that clients answered.
    pub reversed: u64,
    pub time: Duration,
}

impl Run {
    /// Counts another run in.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.resets += other.resets;
        self.connections += other.connections;
        self.replayed += other.replayed;
        self.injected += other.injected;
        self.withheld += other.withheld;
        self.fetched += other.fetched;
        for (sum, calls) in self.forms.iter_mut().zip(other.forms) {
            *sum += calls;
        }
        self.invalidated += other.invalidated;
        self.two += other.two;
        self.reversed += other.reversed;
        self.time += other.time;
    }

    /// Whether everything has happened that is to happen.
    pub fn is_varied(&self) -> bool {
        let rare = [
            self.resets,
            self.replayed,
            self.injected,
            self.withheld,
            self.fetched,
            self.invalidated,
            self.two,
            self.reversed,
        ];
        rare.into_iter().chain(self.forms).all(|count| count > 0)
    }
}

/// What carries a world.
#[derive(Clone)]
pub enum Carries {
    /// A network in virtual time, of which everything is known.
    Network(Network),
    /// RDMA devices, in real time.
    Devices(Wire),
}

pub struct World {
    pub carries: Carries,
    pub server: Server,
    pub clients: Vec<Client>,
    pub model: Model,
    pub dice: Dice,
    pub start: Instant,
    pub now: Instant,
    pub complaints: Complaints,
    /// The client's end of each connection, by the server's; and those that live at the server.
    ends: HashMap<QueuePairId, Carrier>,
    pub alive: HashSet<Carrier>,
    /// On devices: the server's end of each connection that lives there.
    pub others: HashMap<Carrier, WireEnd>,
    hasher: DefaultHasher,
    pub run: Run,
    in_use: [u64; 2],
    grounds: [Pool; 2],
    pub healed: bool,
    /// Limits come and go.
    pub limits: bool,
    /// Replies may have read chunks.
    pub classic: bool,
    /// Tells what happens.
    pub talks: bool,
    /// What goes wrong on devices, around the server and each client.
    pub mischiefs: Vec<Rc<RefCell<Mischief>>>,
}

/// Runs a seed to its end.
///
/// # Errors
/// What is wrong.
pub fn run(seed: u64, mutant: Option<Mutant>, grounds: &Grounds) -> Result<Run, String> {
    let network = Network::with_seed(seed);
    network.keep_log();
    run_on(Carries::Network(network), seed, mutant, grounds)
}

/// The same on what carries it.
///
/// # Errors
/// What is wrong.
pub fn run_on(
    carries: Carries,
    seed: u64,
    mutant: Option<Mutant>,
    grounds: &Grounds,
) -> Result<Run, String> {
    panics::clear();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(carries, seed, mutant, grounds);
        let ran = match world.carries.clone() {
            Carries::Network(network) => world.live(&network).and_then(|()| world.part(&network)),
            Carries::Devices(wire) => world.live_on(&wire),
        };
        ran.map_err(|what| format!("at {:?}: {what}", world.now - world.start))?;
        world.finish()
    }));
    // A panic in a task of the responder's only ends a connection.
    if let Some(panic) = panics::first() {
        return Err(panic);
    }
    ran.unwrap_or_else(|_| Err("a panic".to_owned()))
}

impl World {
    fn new(carries: Carries, seed: u64, mutant: Option<Mutant>, grounds: &Grounds) -> Self {
        let mut dice = Dice::new(seed);
        let options = Options::new(&mut dice);
        let wire = match &carries {
            Carries::Network(network) => {
                network.set_faults(options.faults);
                network.clone().into()
            }
            Carries::Devices(wire) => wire.clone(),
        };
        // What measures time from its own making is made before anything happens.
        let now = Instant::now() + Duration::from_secs(1);
        let complaints = Complaints::default();
        let mut mischiefs = Vec::new();
        let mut provider = Watched::new(wire.provider(), Role::Responder, &complaints);
        if wire.is_real() {
            let mischief = Rc::new(RefCell::new(Mischief::new(dice.fork())));
            mischiefs.push(Rc::clone(&mischief));
            provider.mischief = Some(mischief);
        }
        if let Some(mutant) = mutant {
            provider.infect(mutant, dice.fork());
        }
        let pool = grounds.server[usize::from(options.server.grow > 0)].clone();
        let pools = [pool.clone(), grounds.clients.clone()];
        let in_use = [&pools[0], &pools[1]].map(|pool| pool.gauges().in_use());
        let server = Server::new(
            &grounds.registry,
            pool,
            provider,
            &options.server,
            mutant,
            dice.fork(),
            now,
        );
        let count = options.clients.len();
        let clients = options
            .clients
            .into_iter()
            .enumerate()
            .map(|(index, options)| {
                let address = Ipv4Addr::new(192, 0, 2, 1 + index as u8);
                let provider = wire.provider_at(address);
                let mut provider = Watched::new(provider, Role::Requester, &complaints);
                provider.forgets_dones = options.forgets_dones;
                Client::new(
                    index,
                    wire.source(address).into(),
                    provider,
                    grounds.clients.clone(),
                    options,
                    dice.fork(),
                    now,
                )
            });
        let clients = clients.collect();
        let mut world = Self {
            carries,
            server,
            clients,
            model: Model::new(FILES, count, NAMES),
            dice,
            start: now,
            now,
            complaints,
            ends: HashMap::new(),
            alive: HashSet::new(),
            others: HashMap::new(),
            hasher: DefaultHasher::new(),
            run: Run::default(),
            in_use,
            grounds: pools,
            healed: false,
            limits: options.server.limits,
            classic: options.server.classic,
            talks: std::env::var_os("MILLRACE_SIM_TRACE").is_some(),
            mischiefs,
        };
        if wire.is_real() {
            world.settle_on(&wire);
        }
        world
    }

    /// Lets everybody do what there is to do at this time, in any order. Whoever names a deadline
    /// has something to do by then; an idle core would else be awake for nothing.
    fn settle(&mut self, network: &Network) -> Result<(), String> {
        let mut parties: Vec<usize> = (0..=self.clients.len()).collect();
        let mut idle = false;
        for _ in 0..TURNS {
            let mut work = 0;
            self.dice.shuffle(&mut parties);
            for &party in &parties {
                work += self.turn(party)?;
                self.look(network)?;
            }
            if work > 0 {
                idle = false;
                continue;
            }
            let named = |&party: &usize| self.deadline(party).map(|due| (due, party));
            let first = parties.iter().filter_map(named).min();
            let Some((due, party)) = first.filter(|(due, _)| *due <= self.now) else {
                return Ok(());
            };
            // What a turn leaves for the next one is due at once.
            if idle || due < self.now {
                let since = self.now - due;
                return Err(format!(
                    "party {party} does nothing at its deadline, {since:?} ago"
                ));
            }
            idle = true;
        }
        Err("no rest".to_owned())
    }

    /// When a party next has something to do.
    fn deadline(&self, party: usize) -> Option<Instant> {
        match self.clients.get(party) {
            None => self.server.responder.next_deadline(),
            Some(client) => client.next_deadline(),
        }
    }

    pub fn turn(&mut self, party: usize) -> Result<usize, String> {
        match self.clients.get_mut(party) {
            None => {
                let takes = |client: &Client| client.options.settings.reverse_credits > 0;
                let clients = &self.clients;
                let may = |address| {
                    clients
                        .iter()
                        .any(|client| client.address == address && takes(client))
                };
                self.server.turn(self.now, &may)
            }
            Some(client) => client.turn(&mut Context {
                now: self.now,
                model: &mut self.model,
                root: self.server.root,
                files: &self.server.files,
                address: self.server.address,
                alive: &self.alive,
            }),
        }
    }

    /// Reads what happened.
    fn look(&mut self, network: &Network) -> Result<(), String> {
        if let Some(complaint) = self.complaints.borrow().first() {
            return Err(complaint.clone());
        }
        let log = network.take_log();
        if log.is_empty() {
            return Ok(());
        }
        for (time, record) in log {
            (time - self.start, &record).hash(&mut self.hasher);
            if self.talks {
                println!("{:?} {record:?}", time - self.start);
            }
            match record {
                Record::Asked { client, server } => {
                    self.run.connections += 1;
                    // The network names every end but once, whosever it is.
                    self.ends.insert(server, (0, client));
                    self.alive.insert((0, client));
                }
                Record::Ended { queue_pair, .. } => {
                    if let Some(client) = self.ends.remove(&queue_pair) {
                        self.alive.remove(&client);
                    }
                }
                Record::Reset { .. } => self.run.resets += 1,
                Record::Withheld { .. } => self.run.withheld += 1,
                Record::Fault { injected: true, .. } => self.run.injected += 1,
                // Keys of cancelled calls are dead, whatever the server is at, and so are those of
                // replies that were not fetched in time. All else is somebody's fault.
                Record::Fault {
                    queue_pair,
                    terminate,
                    ..
                } => {
                    let fenced = |client: &Client| client.fenced.contains(&queue_pair);
                    let late = self.classic && self.ends.contains_key(&queue_pair);
                    if terminate.kind != 1 || !(late || self.clients.iter().any(fenced)) {
                        return Err(format!("{record:?}"));
                    }
                }
                Record::Sent { .. } | Record::Placed { .. } | Record::Fetched { .. } => {}
            }
        }
        for client in &mut self.clients {
            client.settle(&mut self.model, &self.alive);
        }
        Ok(())
    }

    /// Goes on to when something happens next. False if nothing ever will.
    fn pass(&mut self, network: &Network) -> bool {
        let parties = 0..=self.clients.len();
        let next = parties.filter_map(|party| self.deadline(party)).min();
        if let Some(next) = next {
            self.now = next;
        }
        if self.limits && self.dice.once_in(40) {
            let limited = !self.healed && !self.dice.once_in(3);
            self.server.limit(limited, self.now);
        }
        if !self.healed && self.now > self.start + HEALED {
            self.healed = true;
            network.set_faults(Faults::default());
            for client in &mut self.clients {
                client.options.breaks = usize::MAX;
            }
        }
        next.is_some()
    }

    /// Until all calls have been made and have ended.
    fn live(&mut self, network: &Network) -> Result<(), String> {
        for _ in 0..TURNS {
            self.settle(network)?;
            if self.clients.iter().all(Client::is_done) {
                return Ok(());
            }
            if !self.pass(network) {
                break;
            }
        }
        Err(self.stuck())
    }

    /// What is known about calls that never end.
    pub fn stuck(&self) -> String {
        let open = self.clients.iter().map(|client| {
            let open: Vec<_> = client.open.values().map(|open| &open.operation).collect();
            let connection = client.connection.as_ref();
            let state = connection.map(|connection| (connection.state(), connection.window()));
            format!(
                "client {}: {} to make, {open:?}, {state:?}",
                client.index, client.left
            )
        });
        let open: Vec<_> = open.collect();
        let (responder, gauges) = (&self.server.responder, self.grounds[0].gauges());
        format!(
            "calls never end: {open:?}, {} calls in service by {} connections, {gauges:?}, {:?}",
            responder.calls(),
            responder.connections().len(),
            self.server.shared.settings.get(),
        )
    }

    /// Until all connections have ended.
    fn part(&mut self, network: &Network) -> Result<(), String> {
        for client in &mut self.clients {
            client.part();
        }
        for _ in 0..TURNS {
            self.settle(network)?;
            if network.queue_pairs() == 0 && self.server.calls.len() == 0 {
                return Ok(());
            }
            if !self.pass(network) {
                break;
            }
        }
        Err("connections never end".to_owned())
    }

    /// Nothing is left.
    fn finish(mut self) -> Result<Run, String> {
        let Server {
            responder, shared, ..
        } = &self.server;
        let counters = shared.programs.service.counters();
        let exposures = match &self.carries {
            Carries::Network(network) => network.exposures(),
            // They end with their connections, all of which have.
            Carries::Devices(_) => 0,
        };
        let left = [
            ("calls", responder.calls()),
            ("connections", responder.connections().len()),
            ("calls to clients", self.server.calls.len()),
            ("completions awaited", shared.completions.pending()),
            ("exposures", exposures),
        ];
        for (what, count) in left {
            if count != 0 {
                return Err(format!("{what} left: {count}"));
            }
        }
        for client in &self.clients {
            client.outcomes.hash(&mut self.hasher);
            if client
                .connection
                .as_ref()
                .is_some_and(|connection| connection.pending() > 0)
            {
                return Err(format!("client {} keeps calls", client.index));
            }
            self.run.calls += client.outcomes.len() as u64;
        }
        // A requester may keep a buffer of zeros for pads.
        let kept = self.grounds[1].gauges().in_use() - self.in_use[1];
        if kept > self.clients.len() as u64 {
            return Err(format!("{kept} buffers in use by requesters without calls"));
        }
        for client in &mut self.clients {
            let Some(connection) = client.connection.take() else {
                continue;
            };
            let counters = connection.counters();
            self.run.fetched += counters.read_chunk_replies;
            self.run.invalidated += counters.invalidated;
            self.run.two += u64::from(client.two);
            for (sum, calls) in self.run.forms.iter_mut().zip(counters.forms) {
                *sum += calls;
            }
        }
        for (pool, before) in self.grounds.iter().zip(self.in_use) {
            let in_use = pool.gauges().in_use();
            if in_use != before {
                return Err(format!(
                    "{in_use} buffers in use, {before} before: {:?}",
                    pool.gauges()
                ));
            }
        }
        self.check_executions()?;
        self.run.replayed = counters.replayed.get();
        self.run.reversed = self.server.calls.answered;
        self.run.time = self.now - self.start;
        self.run.digest = self.hasher.finish();
        Ok(self.run)
    }

    /// Nothing was executed more than once.
    fn check_executions(&self) -> Result<(), String> {
        let counters = self.server.shared.programs.service.counters();
        let procedures = [8, 12, 14];
        for (procedure, (known, open)) in procedures.into_iter().zip(self.model.changes) {
            let counters = &counters.programs[0].procedures[procedure];
            let done = counters.calls.get() - counters.errors.get();
            if done < known || done > known + open {
                return Err(format!(
                    "procedure {procedure} succeeded {done} times, known are {known} and perhaps \
                     {open}"
                ));
            }
        }
        Ok(())
    }
}
