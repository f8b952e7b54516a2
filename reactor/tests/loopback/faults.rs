//! Whatever goes wrong, the promises of the trait hold; and everything does go wrong sometimes.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use millrace_mempool::{Class, Pool, Slice};
use millrace_reactor::fabric::loopback::{CERTAIN, Faults, Loopback, Network, Pair, Record};
use millrace_reactor::fabric::{
    Access, ConnectParameters, ControlPath, DataPath, Ended, Event, Exposure, Operation,
    PrivateData, QueuePairId, QueuePairLimits, Revoked, Slices, WorkError, WorkRequest,
};

use crate::support::{SEND, at, bytes, pool, request};

const SEEDS: u64 = 300;
const CONNECTIONS: usize = 3;
const CHAINS: usize = 6;
/// Bytes of each memory that the peer may reach.
const MEMORY: usize = 2048;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) >> 11) % bound
    }
}

/// Faults of every kind, each on in some seeds.
fn faults(dice: &mut Dice) -> Faults {
    let mut chance = |most: u32| match dice.below(2) {
        0 => 0,
        _ => dice.below(u64::from(most)) as u32,
    };
    Faults {
        delay: Duration::from_micros(u64::from(chance(3000))),
        reorder: chance(2) == 1 || chance(2) == 1,
        stalls: chance(50_000),
        early_completions: chance(CERTAIN),
        resets: chance(20_000),
        refused_connections: chance(200_000),
        refused_reads: chance(60_000),
        missing_receives: chance(60_000),
        late_slots: chance(CERTAIN),
        late_revocations: chance(CERTAIN),
        withheld_completions: chance(40_000),
    }
}

/// One end of a connection, and what it is owed.
struct Side {
    queue_pair: QueuePairId,
    established: bool,
    ended: bool,
    sink: Slice,
    source: Slice,
    exposed: Option<[Exposure; 2]>,
    /// Posted work: token, whether signalled, what a Read must bring.
    owed: VecDeque<(u64, bool, Option<Vec<u8>>)>,
    /// Of each message on its way to this side: what stands in the sink when it is there.
    expected: VecDeque<Vec<(usize, Vec<u8>)>>,
    /// Messages sent to this side, and arrived.
    messages: (u64, u64),
    dying: HashSet<u32>,
    tokens: u64,
    chains: usize,
    place: usize,
}

impl Side {
    fn new(pool: &Pool, queue_pair: QueuePairId) -> Self {
        let memory = || {
            pool.try_acquire(Class::Control)
                .unwrap()
                .into_slice(0..MEMORY)
        };
        let (sink, source) = (memory(), memory());
        sink.fill_zero(0..MEMORY);
        source.copy_from(
            0,
            &(0..MEMORY).map(|at| (at % 251) as u8).collect::<Vec<_>>(),
        );
        Self {
            queue_pair,
            established: false,
            ended: false,
            sink,
            source,
            exposed: None,
            owed: VecDeque::new(),
            expected: VecDeque::new(),
            messages: (0, 0),
            dying: HashSet::new(),
            tokens: 0,
            chains: 0,
            place: 0,
        }
    }

    fn is_open(&self) -> bool {
        self.established && !self.ended
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Exposes memory and posts receives, once the connection stands.
    fn open(&mut self, provider: &mut Loopback, pool: &Pool) {
        self.established = true;
        for _ in 0..2 * CHAINS {
            let buffer = pool.try_acquire(Class::Control).unwrap();
            // It may have ended already.
            let _ = provider.post_receive(self.queue_pair, buffer);
        }
        let memory = [
            (&self.sink, Access::RemoteWrite),
            (&self.source, Access::RemoteRead),
        ];
        let exposed = memory.map(|(slice, access)| {
            let local = std::iter::once(slice.clone()).collect();
            provider.expose(self.queue_pair, local, access).ok()
        });
        if let [Some(sink), Some(source)] = exposed {
            self.exposed = Some([sink, source]);
        }
    }

    /// Takes an event in, and checks it.
    fn take(&mut self, event: Event) {
        assert!(!self.ended, "nothing comes after the end: {event:?}");
        match event {
            Event::Established { .. } => {}
            Event::Received { buffer, length, .. } => {
                assert!(self.established);
                let expected = self.expected.pop_front().expect("a message was sent");
                assert_eq!(length, 8);
                assert_eq!(
                    buffer[..8],
                    self.messages.1.to_be_bytes(),
                    "in the order sent"
                );
                self.messages.1 += 1;
                for (place, bytes) in expected {
                    let mut placed = vec![0; bytes.len()];
                    self.sink.copy_to(place, &mut placed);
                    assert_eq!(placed, bytes, "Writes are placed before the Send arrives");
                }
            }
            Event::Completed {
                token,
                result,
                local,
                ..
            } => self.completed(token, result, &local),
            Event::Revoked { key, .. } => assert!(self.dying.remove(&key.0), "revoked once"),
            Event::Disconnected { .. } => {
                let reported = |(_, signalled, _): &(u64, bool, _)| *signalled;
                assert!(
                    !self.owed.iter().any(reported),
                    "all signalled work was reported"
                );
                assert!(self.dying.is_empty(), "what was to be revoked is");
                self.ended = true;
            }
            event => panic!("unexpected: {event:?}"),
        }
    }

    fn completed(&mut self, token: u64, result: Result<(), WorkError>, local: &Slices) {
        loop {
            let (owed, signalled, read) = self.owed.pop_front().expect("posted");
            if owed == token {
                assert!(
                    signalled || result.is_err(),
                    "success that nobody asked about"
                );
                if let (Ok(()), Some(expected)) = (result, read) {
                    assert_eq!(bytes(local), expected, "what a Read brings");
                }
                return;
            }
            assert!(owed < token, "in the order of posting");
            assert!(!signalled, "{owed} was left out before {token}");
        }
    }
}

struct World {
    network: Network,
    /// The connecting sides' and the accepting sides'.
    providers: [Loopback; 2],
    sides: [Vec<Side>; 2],
    pool: Pool,
    dice: Dice,
    now: Instant,
    /// Which client's queue pair belongs to which server's.
    joined: Vec<(QueuePairId, QueuePairId)>,
}

impl World {
    fn new(seed: u64, pool: &Pool) -> Self {
        let mut dice = Dice(seed);
        let network = Network::with_seed(seed);
        network.keep_log();
        network.set_faults(faults(&mut dice));
        Self {
            providers: [network.provider(), network.provider()],
            network,
            sides: [Vec::new(), Vec::new()],
            pool: pool.clone(),
            dice,
            now: Instant::now(),
            joined: Vec::new(),
        }
    }

    fn limits(&mut self) -> QueuePairLimits {
        QueuePairLimits {
            send_depth: 4 + self.dice.below(12) as u32,
            ..Pair::LIMITS
        }
    }

    /// Posts some Writes, Reads and a Send, all of it or nothing.
    fn post(&mut self, which: usize, at_side: usize) {
        let mine = self.sides[which][at_side].queue_pair;
        let peer = self.peer(which, mine);
        let Some(peer) = peer.filter(|&peer| self.sides[1 - which][peer].exposed.is_some()) else {
            return;
        };
        let [sink, source] = self.sides[1 - which][peer].exposed.unwrap();
        let (mut chain, mut owed, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut place = self.sides[which][at_side].place;
        for _ in 0..self.dice.below(4) {
            let length = 1 + self.dice.below(60) as usize;
            let token = self.sides[which][at_side].token();
            let buffer = self.pool.try_acquire(Class::Control).unwrap();
            let (operation, read, local) = if self.dice.below(2) == 0 {
                let mut buffer = buffer;
                let value = self.dice.below(255) as u8 + 1;
                buffer[..length].fill(value);
                written.push((place, vec![value; length]));
                place += length;
                let to = at(&sink, (place - length) as u64);
                (Operation::Write(to), None, buffer.into_slice(0..length))
            } else {
                let from = self.dice.below((MEMORY - length) as u64);
                let expected = (from..from + length as u64).map(|at| (at % 251) as u8);
                let local = buffer.into_slice(0..length);
                (
                    Operation::Read(at(&source, from)),
                    Some(expected.collect()),
                    local,
                )
            };
            let signalled = self.dice.below(2) == 0;
            chain.push(WorkRequest {
                signalled,
                ..request(token, operation, std::iter::once(local).collect())
            });
            owed.push((token, signalled, read));
        }
        let token = self.sides[which][at_side].token();
        let number = self.sides[1 - which][peer].messages.0;
        let mut buffer = self.pool.try_acquire(Class::Control).unwrap();
        buffer[..8].copy_from_slice(&number.to_be_bytes());
        let local = std::iter::once(buffer.into_slice(0..8)).collect();
        chain.push(request(token, SEND, local));
        owed.push((token, true, None));
        let provider = &mut self.providers[which];
        let (room, length) = (provider.send_room(mine), chain.len());
        let posted = provider.post(mine, &mut chain);
        assert_eq!(
            posted.is_ok(),
            length <= room && room > 0,
            "room is what is said"
        );
        if posted.is_ok() {
            self.sides[1 - which][peer].expected.push_back(written);
            self.sides[1 - which][peer].messages.0 += 1;
            let side = &mut self.sides[which][at_side];
            side.owed.extend(owed);
            side.place = place;
            side.chains += 1;
        }
    }

    /// The place of the other side, once both stand.
    fn peer(&self, which: usize, queue_pair: QueuePairId) -> Option<usize> {
        let mut joined = self.joined.iter();
        let other = match which {
            0 => joined.find(|(client, _)| *client == queue_pair)?.1,
            _ => joined.find(|(_, server)| *server == queue_pair)?.0,
        };
        let mut sides = self.sides[1 - which].iter();
        sides.position(|side| side.queue_pair == other)
    }

    fn turn(&mut self) -> usize {
        let mut work = 0;
        for which in [0, 1] {
            let mut events = Vec::with_capacity(1 + self.dice.below(9) as usize);
            work += self.providers[which].poll(self.now, &mut events);
            for event in events {
                self.event(which, event);
            }
            for side in 0..self.sides[which].len() {
                let idle = self.sides[which][side].chains == CHAINS;
                if self.sides[which][side].is_open() && !idle && self.dice.below(3) == 0 {
                    self.post(which, side);
                }
            }
            work += self.providers[which].flush(self.now);
        }
        work
    }

    fn event(&mut self, which: usize, event: Event) {
        let id = match &event {
            Event::ConnectRequest { queue_pair, .. } => {
                self.sides[1].push(Side::new(&self.pool, *queue_pair));
                let parameters = parameters(self.limits());
                // The other side may have ended already.
                let _ = self.providers[1].accept(*queue_pair, parameters);
                return;
            }
            Event::Established { queue_pair, .. }
            | Event::Received { queue_pair, .. }
            | Event::Completed { queue_pair, .. }
            | Event::Revoked { queue_pair, .. }
            | Event::Disconnected { queue_pair, .. } => *queue_pair,
            event => panic!("unexpected: {event:?}"),
        };
        let mut sides = self.sides[which].iter_mut();
        let side = sides.find(|side| side.queue_pair == id).expect("known");
        if matches!(event, Event::Established { .. }) {
            side.open(&mut self.providers[which], &self.pool);
        }
        side.take(event);
    }

    /// Runs a seed to its end. Returns what happened.
    fn run(mut self) -> Vec<(Duration, Record)> {
        let start = self.now;
        let limits = self.limits();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = self.providers[1].listen(anywhere, limits, false).unwrap();
        let address = self.providers[1].listener_address(listener).unwrap();
        for _ in 0..CONNECTIONS {
            let parameters = parameters(self.limits());
            let id = self.providers[0]
                .connect(address, parameters, self.now)
                .unwrap();
            self.sides[0].push(Side::new(&self.pool, id));
        }
        let mut log = Vec::new();
        for round in 0..4000 {
            while self.turn() > 0 {}
            for (time, record) in self.network.take_log() {
                if let Record::Asked { client, server } = &record {
                    self.joined.push((*client, *server));
                }
                log.push((time - start, record));
            }
            if round == 60 {
                self.part();
            }
            let next = self.providers.iter().filter_map(DataPath::next_deadline);
            match next.min() {
                Some(next) => self.now = next.max(self.now),
                None if round > 60 => break,
                None => {}
            }
        }
        for side in self.sides.iter().flatten() {
            assert!(side.ended, "every connection ends");
        }
        assert_eq!(
            (self.network.exposures(), self.network.queue_pairs()),
            (0, 0)
        );
        self.sides = [Vec::new(), Vec::new()];
        assert_eq!(self.pool.gauges().in_use(), 0, "all memory came back");
        log
    }

    /// Revokes everything and ends all connections, one way or the other.
    fn part(&mut self) {
        for which in [0, 1] {
            for side in &mut self.sides[which] {
                let provider = &mut self.providers[which];
                for exposure in side.exposed.take().into_iter().flatten() {
                    if let Revoked::Later = provider.revoke(side.queue_pair, exposure.key) {
                        side.dying.insert(exposure.key.0);
                    }
                }
                match self.dice.below(2) {
                    0 => provider.close(side.queue_pair),
                    _ => provider.abort(side.queue_pair),
                }
            }
        }
    }
}

fn parameters(limits: QueuePairLimits) -> ConnectParameters {
    ConnectParameters {
        limits,
        private_data: PrivateData::new(),
    }
}

fn digest(log: &[(Duration, Record)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    log.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn the_promises_hold_under_all_faults() {
    let pool = pool();
    pool.grow(8 << 20).unwrap();
    let mut kinds = HashSet::new();
    for seed in 0..SEEDS {
        let log = catch_unwind(AssertUnwindSafe(|| World::new(seed, &pool).run()));
        let log = log.unwrap_or_else(|_| panic!("seed {seed}"));
        for (_, record) in log {
            kinds.insert(match record {
                Record::Fault {
                    injected: true,
                    terminate,
                    ..
                } => ("injected", u32::from(terminate.layer)),
                Record::Fault { terminate, .. } => ("fault", u32::from(terminate.layer)),
                Record::Reset { .. } => ("reset", 0),
                Record::Withheld { .. } => ("withheld", 0),
                Record::Ended {
                    reason: Ended::Local,
                    ..
                } => ("ended", 0),
                Record::Ended {
                    reason: Ended::Peer,
                    ..
                } => ("ended", 1),
                Record::Ended {
                    reason: Ended::Network(kind),
                    ..
                } => ("network", kind as u32),
                _ => continue,
            });
        }
    }
    // No fault of these peers' own but that they revoke what is still written to and read.
    for kind in [
        ("reset", 0),
        ("withheld", 0),
        ("injected", 0),
        ("injected", 1),
    ] {
        assert!(kinds.contains(&kind), "{kind:?} never happened: {kinds:?}");
    }
}

#[test]
fn a_seed_always_runs_the_same() {
    let pool = pool();
    pool.grow(8 << 20).unwrap();
    let mut digests = HashSet::new();
    for seed in 0..20 {
        let (first, second) = (World::new(seed, &pool).run(), World::new(seed, &pool).run());
        assert_eq!(first, second, "seed {seed}");
        digests.insert(digest(&first));
    }
    assert_eq!(digests.len(), 20, "seeds differ");
}
