//! One client: it makes calls, keeps them over broken connections, and judges what comes back.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use millrace_bench::requester::{CallError, CallId, Completion, Connection, RequesterState};
use millrace_mempool::Pool;
use millrace_reactor::fabric::{ControlPath, DataPath, Event, QueuePairId};
use millrace_wire::nfs3::FileHandle;
use millrace_wire::rpcrdma::Version;

use super::dice::Dice;
use super::memory::Memory;
use super::model::{Model, Moment};
use super::operation::{Kind, Operation};
use super::options::ClientOptions;
use super::watch::Watched;

/// How a call ended: the reply's message, and what it tells of write chunks.
pub type Ended = Result<(Vec<u8>, Vec<Option<u32>>), CallError>;

/// Whether none of these connections lives at the server.
pub fn is_dead(lost: &[Carrier], alive: &HashSet<Carrier>) -> bool {
    !lost.iter().any(|carrier| alive.contains(carrier))
}

/// A client's end of a connection: its owner, and its queue pair.
pub type Carrier = (usize, QueuePairId);

/// What all clients use.
pub struct Context<'a> {
    pub now: Instant,
    pub model: &'a mut Model,
    pub root: FileHandle,
    pub files: &'a [FileHandle],
    pub address: SocketAddr,
    /// Connections that live at the server, by the client's end.
    pub alive: &'a HashSet<Carrier>,
}

/// A call under way.
pub struct Open {
    pub id: CallId,
    pub operation: Operation,
    pub began: Moment,
    pub made: Instant,
    pub memory: Option<Memory>,
    /// Connections that were lost while it was under way.
    pub lost: Vec<Carrier>,
    pub cancelled: bool,
}

/// A WRITE that was acknowledged while an earlier connection that carried it may still be alive at
/// the server.
pub struct Lingering {
    pub file: usize,
    pub write: u64,
    pub lost: Vec<Carrier>,
}

pub struct Client {
    pub index: usize,
    /// Whose its queue pairs are, where they are not named but once in the world.
    pub owner: usize,
    /// Where its connections come from.
    pub address: IpAddr,
    pub provider: Watched,
    pub pool: Pool,
    pub connection: Option<Connection>,
    pub options: ClientOptions,
    pub dice: Dice,
    pub open: BTreeMap<u64, Open>,
    pub lingering: Vec<Lingering>,
    /// Connections on which calls were cancelled.
    pub fenced: HashSet<QueuePairId>,
    /// How calls ended: what the trace is made of.
    pub outcomes: Vec<(u64, u64)>,
    /// Whether it has spoken version two.
    pub two: bool,
    pub left: usize,
    tokens: u64,
    next_call: Instant,
    retry: Option<Instant>,
    progress: (u64, Instant),
}

impl Client {
    pub fn new(
        index: usize,
        address: IpAddr,
        provider: Watched,
        pool: Pool,
        options: ClientOptions,
        dice: Dice,
        now: Instant,
    ) -> Self {
        let left = options.operations;
        Self {
            index,
            owner: 0,
            address,
            provider,
            pool,
            connection: None,
            options,
            dice,
            open: BTreeMap::new(),
            lingering: Vec::new(),
            fenced: HashSet::new(),
            outcomes: Vec::new(),
            two: false,
            left,
            tokens: 0,
            next_call: now,
            retry: Some(now),
            progress: (0, now),
        }
    }

    /// Whether it has made all its calls and they have ended.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.open.is_empty()
    }

    /// One turn. Returns the work done, or what is wrong.
    pub fn turn(&mut self, context: &mut Context<'_>) -> Result<usize, String> {
        let now = context.now;
        let mut work = self.connect(context)?;
        let mut events = Vec::with_capacity(1 + self.dice.below(16));
        work += self.provider.poll(now, &mut events);
        let mut ended: Vec<(u64, Ended)> = Vec::new();
        let mut lost = None;
        if let Some(connection) = &mut self.connection {
            let mut sink = |completion: Completion<'_>| {
                let result = completion.result;
                let owned = result.map(|reply| (reply.message.to_vec(), reply.written.to_vec()));
                ended.push((completion.token, owned));
            };
            for event in events {
                if let Event::Disconnected { queue_pair, .. } | Event::Rejected { queue_pair, .. } =
                    &event
                {
                    lost = Some(*queue_pair);
                }
                connection.handle(&mut self.provider, event, now, &mut sink);
            }
            work += connection.pump(&mut self.provider, &mut sink);
            connection.expire(&mut self.provider, now, &mut sink);
        }
        if let Some(lost) = lost {
            for open in self.open.values_mut() {
                open.lost.push((self.owner, lost));
            }
        }
        work += ended.len();
        for (token, result) in ended {
            let Some(open) = self.open.remove(&token) else {
                return Err(format!("call {token} ended twice"));
            };
            self.outcomes
                .push((token, super::operation::digest(&result)));
            self.judge(context, &open, result)?;
        }
        work += self.make_calls(context);
        work += self.break_off();
        if let Some(connection) = &mut self.connection {
            let mut misfits = 0;
            let mut sink = |_: Completion<'_>| misfits += 1;
            work += connection.pump(&mut self.provider, &mut sink);
            if misfits > 0 {
                return Err("a call fits in no form".to_owned());
            }
        }
        work += self.provider.flush(now);
        work += self.watch(now);
        self.check()?;
        Ok(work)
    }

    /// Connects, now and again.
    fn connect(&mut self, context: &Context<'_>) -> Result<usize, String> {
        let now = context.now;
        let down = match self.connection.as_ref().map(Connection::state) {
            Some(
                RequesterState::Connecting | RequesterState::Negotiating | RequesterState::Ready,
            ) => false,
            Some(_) | None => !self.is_done(),
        };
        if !down {
            self.retry = None;
            return Ok(0);
        }
        let pause = Duration::from_micros(self.dice.below(self.options.pause) as u64);
        if now < *self.retry.get_or_insert(now + pause) {
            return Ok(0);
        }
        self.retry = None;
        self.progress.1 = now;
        let made = match &mut self.connection {
            Some(connection) => connection.reconnect(&mut self.provider, now),
            None => {
                let settings = self.options.settings.clone();
                let (provider, address) = (&mut self.provider, context.address);
                Connection::connect(provider, &self.pool, address, settings, now)
                    .map(|connection| self.connection = Some(connection))
            }
        };
        made.map_err(|error| format!("cannot connect: {error}"))?;
        match self.connection.as_ref().map(Connection::state) {
            Some(RequesterState::Connecting) => Ok(1),
            state => Err(format!("connects, and is {state:?}")),
        }
    }

    fn make_calls(&mut self, context: &mut Context<'_>) -> usize {
        let mut made = 0;
        while self.may_call() && context.now >= self.next_call {
            let success = self.make_call(context);
            made += usize::from(success);
            // Without room, or without a free name, another call another time.
            if !success || self.dice.once_in(3) {
                let pause = Duration::from_micros(1 + self.dice.below(2000) as u64);
                self.next_call = context.now + pause;
            }
        }
        if made > 0 && self.dice.once_in(self.options.cancels) {
            self.cancel(context);
        }
        made
    }

    fn may_call(&self) -> bool {
        self.left > 0 && self.open.len() < self.options.depth && self.connection.is_some()
    }

    /// Makes one call, if there is room for it.
    fn make_call(&mut self, context: &mut Context<'_>) -> bool {
        let Some(connection) = &mut self.connection else {
            return false;
        };
        if connection.room() == 0 {
            return false;
        }
        let names = &context.model.names[self.index];
        let Some(kind) = Kind::choose(&mut self.dice, names, context.files.len()) else {
            return false;
        };
        let length = kind.length();
        let memory = match length {
            Some(length) => match Memory::new(&self.pool, &mut self.dice, length) {
                Some(memory) => Some(memory),
                None => return false,
            },
            None => None,
        };
        let began = context.model.now();
        let operation = Operation::begin(kind, context.model, self.index);
        let token = self.tokens;
        let submitted = operation.submit(token, connection, memory.as_ref(), context, self.index);
        let Ok(id) = submitted else {
            operation.withdraw(context.model, self.index);
            return false;
        };
        self.tokens += 1;
        self.left -= 1;
        operation.sent(context.model, began);
        let open = Open {
            id,
            operation,
            began,
            made: context.now,
            memory,
            lost: Vec::new(),
            cancelled: false,
        };
        self.open.insert(token, open);
        true
    }

    /// Cancels a call. Its keys die at once, and a server that still uses them breaks the
    /// connection.
    fn cancel(&mut self, context: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let mut open = self.open.iter_mut();
        let Some((&token, open)) = open.find(|(_, open)| !open.cancelled) else {
            return;
        };
        let mut told = 0;
        let mut sink = |_: Completion<'_>| told += 1;
        open.cancelled = connection.cancel(&mut self.provider, open.id, &mut sink);
        if open.cancelled {
            self.fenced.insert(connection.queue_pair());
        }
        if told == 1 {
            let open = self.open.remove(&token).expect("looked up before");
            self.outcomes.push((token, 0));
            open.operation.unknown(context.model, self.index, true);
        }
    }

    /// Breaks the connection for no reason. Returns whether it did.
    fn break_off(&mut self) -> usize {
        let Some(connection) = &mut self.connection else {
            return 0;
        };
        if self.open.is_empty() || !self.dice.once_in(self.options.breaks) {
            return 0;
        }
        if !matches!(
            connection.state(),
            RequesterState::Negotiating | RequesterState::Ready
        ) {
            return 0;
        }
        if self.dice.once_in(2) {
            self.provider.abort(connection.queue_pair());
        } else {
            connection.close(&mut self.provider);
        }
        1
    }

    fn activity(&self) -> u64 {
        let counters = self.connection.as_ref().map(Connection::counters);
        counters.map_or(0, |counters| {
            counters.replies + counters.errors + counters.sent
        })
    }

    /// Gives a connection up on which nothing happens. Returns whether it did.
    fn watch(&mut self, now: Instant) -> usize {
        let activity = self.activity();
        if activity != self.progress.0 || self.open.is_empty() {
            self.progress = (activity, now);
        }
        if let Some(connection) = &self.connection
            && connection.state() == &RequesterState::Ready
            && now >= self.progress.1 + self.options.timeout
        {
            self.progress.1 = now;
            self.provider.abort(connection.queue_pair());
            return 1;
        }
        0
    }

    /// What must always hold.
    fn check(&mut self) -> Result<(), String> {
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        self.two |= connection.version() == Some(Version::Two);
        let counters = connection.counters();
        // Every message of the server's is a reply that is awaited, or a call that is answered.
        if counters.dropped > 0 || counters.bad_replies > 0 {
            return Err(format!("messages that nobody asked for: {counters:?}"));
        }
        Ok(())
    }

    /// Ends WRITEs whose earlier copies are over.
    pub fn settle(&mut self, model: &mut Model, alive: &HashSet<Carrier>) {
        self.lingering.retain(|lingering| {
            let over = is_dead(&lingering.lost, alive);
            if over {
                let now = model.now();
                model.files[lingering.file].end_write(lingering.write, now);
            }
            !over
        });
    }

    /// Parts with the server.
    pub fn part(&mut self) {
        if let Some(connection) = &mut self.connection {
            if self.dice.once_in(2) {
                connection.close(&mut self.provider);
            } else {
                self.provider.abort(connection.queue_pair());
            }
        }
    }

    /// When it next has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let busy = !self.open.is_empty();
        let ready = matches!(
            self.connection.as_ref().map(Connection::state),
            Some(RequesterState::Ready)
        );
        let stuck = (ready && busy).then_some(self.progress.1 + self.options.timeout);
        let call = self.may_call().then_some(self.next_call);
        let own = self.connection.as_ref();
        let own = own.and_then(Connection::next_deadline);
        let all = [self.provider.next_deadline(), self.retry, stuck, call, own];
        all.into_iter().flatten().min()
    }
}
