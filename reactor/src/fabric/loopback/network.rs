//! The network of loopback providers: listeners, pairs of ends, and due frames.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::end::{Exposed, Frame, LoopbackEnd, LoopbackPhase, RemoteSource};
use super::faults::Faults;
use super::log::Record;
use super::provider::Loopback;
use super::scatter;
use crate::fabric::{
    Ended, Event, Key, ListenerId, Operation, PrivateData, QueuePairId, QueuePairLimits, WorkError,
};

/// Connects the loopback providers of one thread. Clones are the same network.
#[derive(Clone)]
pub struct Network {
    state: Rc<RefCell<NetworkState>>,
}

impl Network {
    /// An empty network without latency.
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// A network whose keys, offsets and [`Faults`] come from `seed`.
    pub fn with_seed(seed: u64) -> Self {
        let state = NetworkState {
            clock: None,
            latency: Duration::ZERO,
            defer_revocations: false,
            faults: Faults::default(),
            random: ChaCha8Rng::seed_from_u64(seed),
            chaos: ChaCha8Rng::seed_from_u64(!seed),
            log: None,
            next_port: 49152,
            providers: Vec::new(),
            ends: Vec::new(),
            free: Vec::new(),
        };
        Self {
            state: Rc::new(RefCell::new(state)),
        }
    }

    /// A new provider on this network.
    pub fn provider(&self) -> Loopback {
        self.provider_at(Ipv4Addr::LOCALHOST)
    }

    /// A new provider on this network, whose connections come from this address.
    pub fn provider_at(&self, address: Ipv4Addr) -> Loopback {
        let mut state = self.state.borrow_mut();
        state.providers.push(Port::new(address));
        Loopback::new(Rc::clone(&self.state), state.providers.len() - 1)
    }

    /// Sets the latency of everything sent from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.state.borrow_mut().latency = latency;
    }

    /// Sets whether revocations take effect later, as on fabrics that invalidate keys by a work
    /// request, instead of at once.
    pub fn set_defer_revocations(&self, defer: bool) {
        self.state.borrow_mut().defer_revocations = defer;
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.borrow_mut().faults = faults;
    }

    /// Starts a log.
    pub fn keep_log(&self) {
        self.state.borrow_mut().log.get_or_insert_default();
    }

    /// The events since the log was last taken, with their times.
    pub fn take_log(&self) -> Vec<(Instant, Record)> {
        let log = &mut self.state.borrow_mut().log;
        log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Live exposures, over all queue pairs.
    pub fn exposures(&self) -> usize {
        let state = self.state.borrow();
        state.ends.iter().map(|end| end.exposures.len()).sum()
    }

    /// Queue pairs that have not ended.
    pub fn queue_pairs(&self) -> usize {
        let state = self.state.borrow();
        let alive = |end: &&LoopbackEnd| end.phase != LoopbackPhase::Free;
        state.ends.iter().filter(alive).count()
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Network").finish_non_exhaustive()
    }
}

pub(super) struct NetworkState {
    /// The latest time passed to any provider.
    pub clock: Option<Instant>,
    pub latency: Duration,
    pub defer_revocations: bool,
    pub faults: Faults,
    pub random: ChaCha8Rng,
    /// The random source of faults.
    pub chaos: ChaCha8Rng,
    log: Option<Vec<(Instant, Record)>>,
    next_port: u16,
    pub providers: Vec<Port>,
    /// Of all providers; a queue pair's index is the index here.
    pub ends: Vec<LoopbackEnd>,
    free: Vec<usize>,
}

/// The state of one provider.
pub(super) struct Port {
    address: Ipv4Addr,
    pub events: VecDeque<Event>,
    pub requests: VecDeque<Request>,
    pub listeners: Vec<Option<LoopbackListener>>,
}

impl Port {
    fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            events: VecDeque::new(),
            requests: VecDeque::new(),
            listeners: Vec::new(),
        }
    }
}

pub(super) struct LoopbackListener {
    pub address: SocketAddr,
    pub limits: QueuePairLimits,
}

/// A connection request in flight to a listener.
pub(super) struct Request {
    pub due: Instant,
    pub from: QueuePairId,
    pub peer: SocketAddr,
    pub listener: ListenerId,
    pub private_data: PrivateData,
}

impl NetworkState {
    pub fn set_clock(&mut self, now: Instant) -> Instant {
        let clock = self.clock.map_or(now, |clock| clock.max(now));
        self.clock = Some(clock);
        clock
    }

    pub fn due(&self) -> Instant {
        self.clock
            .expect("set by the call that made the first connection")
            + self.latency
    }

    /// Adds to the log, if there is one.
    pub fn note(&mut self, record: Record) {
        if let (Some(log), Some(clock)) = (&mut self.log, self.clock) {
            log.push((clock, record));
        }
    }

    /// The index of a queue pair that has not ended, if it is this provider's.
    pub fn find(&self, provider: usize, queue_pair: QueuePairId) -> Option<usize> {
        let index = self.locate(queue_pair)?;
        (self.ends[index].provider == provider).then_some(index)
    }

    /// The index of a queue pair that has not ended.
    pub fn locate(&self, queue_pair: QueuePairId) -> Option<usize> {
        let index = queue_pair.index as usize;
        let end = self.ends.get(index)?;
        (end.generation == queue_pair.generation && end.phase != LoopbackPhase::Free)
            .then_some(index)
    }

    pub fn id(&self, index: usize) -> QueuePairId {
        let generation = self.ends[index].generation;
        QueuePairId {
            index: u32::try_from(index).expect("fewer than 2^32 ends"),
            generation,
        }
    }

    pub fn add(&mut self, provider: usize, phase: LoopbackPhase, limits: QueuePairLimits) -> usize {
        if let Some(index) = self.free.pop() {
            let generation = self.ends[index].generation;
            self.ends[index] = LoopbackEnd::new(provider, generation, phase, limits);
            return index;
        }
        self.ends.push(LoopbackEnd::new(provider, 0, phase, limits));
        self.ends.len() - 1
    }

    pub fn report(&mut self, index: usize, event: Event) {
        let provider = self.ends[index].provider;
        self.providers[provider].events.push_back(event);
    }

    /// Sends to the other end, unless that has ended.
    pub fn send(&mut self, index: usize, frame: Frame) {
        let peer = self.ends[index].peer.and_then(|peer| self.locate(peer));
        let Some(peer) = peer else { return };
        let due = self.later();
        // Outcomes may overtake: they are still reported in order. Errors may not, as the end
        // follows them.
        let loose = self.faults.reorder && matches!(frame, Frame::Done { result: Ok(()), .. });
        let end = &mut self.ends[peer];
        if loose {
            end.loose.push((due, frame));
        } else {
            let due = end.arrivals.back().map_or(due, |(last, _)| due.max(*last));
            end.arrivals.push_back((due, frame));
        }
        if self.happens(self.faults.resets) {
            self.cut(index);
        }
    }

    /// Sends released work up to the read depth.
    pub fn pump(&mut self, index: usize) {
        loop {
            let end = &mut self.ends[index];
            let sequence = end.next;
            if sequence == end.released {
                return;
            }
            let ord = end.depths.ord.min(end.reads_most);
            let reads_open = end.reads_open;
            let entry = end.entry(sequence).expect("not yet sent, so still queued");
            let operation = entry.request.operation;
            if operation == Operation::ReadMore {
                // It continues no Read: its Read would have sent it.
                entry.result = Some(Err(WorkError::LocalLength));
                end.next += 1;
                self.complete(index);
                continue;
            }
            if matches!(operation, Operation::Read(_)) {
                let works = 1 + end.continuations(sequence) as u64;
                if ord == 0 {
                    end.finish_read(sequence, Err(WorkError::NoReads));
                    end.next += works;
                    self.complete(index);
                    continue;
                }
                if reads_open >= ord {
                    return;
                }
                end.reads_open += 1;
                end.next += works;
            } else {
                end.next += 1;
            }
            let is_read = matches!(operation, Operation::Read(_));
            if !is_read && self.happens(self.faults.early_completions) {
                self.send_early(index, sequence);
            } else {
                self.send(index, Frame::Work(RemoteSource::Queued(sequence)));
            }
        }
    }

    /// Sends work and completes it.
    fn send_early(&mut self, index: usize, sequence: u64) {
        let entry = self.ends[index].entry(sequence).expect("about to be sent");
        let mut bytes = vec![0; scatter::length(&entry.request.local)];
        scatter::gather(&entry.request.local, &mut bytes);
        entry.result = Some(Ok(()));
        let work = RemoteSource::Carried(entry.request.operation, bytes.into());
        self.send(index, Frame::Work(work));
        self.complete(index);
    }

    /// Reports completed work, in the order of posting.
    pub fn complete(&mut self, index: usize) {
        let queue_pair = self.id(index);
        if self.ends[index].withheld {
            return;
        }
        while let Some(&Some(result)) = self.ends[index]
            .send_queue
            .front()
            .map(|entry| &entry.result)
        {
            self.pop(index, queue_pair, result);
        }
    }

    /// Ends a queue pair: flushes all posted work, reports, and frees the slot.
    pub fn end(&mut self, index: usize, reason: Ended) {
        let queue_pair = self.id(index);
        while let Some(entry) = self.ends[index].send_queue.front() {
            let result = entry.result.unwrap_or(Err(WorkError::Flushed));
            self.pop(index, queue_pair, result);
        }
        for exposed in std::mem::take(&mut self.ends[index].exposures) {
            if exposed.dies.is_some() {
                self.revoked(index, exposed);
            }
        }
        let record = reason.clone();
        self.report(index, Event::Disconnected { queue_pair, reason });
        self.note(Record::Ended {
            queue_pair,
            reason: record,
        });
        self.release(index);
    }

    /// Reports that a revocation has taken effect.
    pub fn revoked(&mut self, index: usize, exposed: Exposed) {
        let queue_pair = self.id(index);
        let (key, local) = (exposed.exposure.key, exposed.local);
        self.report(
            index,
            Event::Revoked {
                queue_pair,
                key,
                local,
            },
        );
    }

    /// Frees the slot of a queue pair without an event.
    pub fn release(&mut self, index: usize) {
        let LoopbackEnd {
            generation,
            provider,
            limits,
            ..
        } = self.ends[index];
        self.ends[index] = LoopbackEnd::new(
            provider,
            generation.wrapping_add(1),
            LoopbackPhase::Free,
            limits,
        );
        self.free.push(index);
    }

    fn pop(&mut self, index: usize, queue_pair: QueuePairId, result: Result<(), WorkError>) {
        let end = &mut self.ends[index];
        let Some(entry) = end.send_queue.pop_front() else {
            return;
        };
        end.first += 1;
        if self.happens(self.faults.late_slots) {
            let free = self.later();
            self.ends[index].late_sends.push(free);
        }
        let request = entry.request;
        if request.signalled || result.is_err() {
            let (token, local) = (request.token, request.local);
            self.report(
                index,
                Event::Completed {
                    queue_pair,
                    token,
                    result,
                    local,
                },
            );
        }
    }

    pub fn listener(&self, address: SocketAddr) -> Option<(usize, ListenerId)> {
        self.providers
            .iter()
            .enumerate()
            .find_map(|(provider, port)| {
                let listens = |listener: &Option<LoopbackListener>| {
                    listener
                        .as_ref()
                        .is_some_and(|listener| listener.address == address)
                };
                let index = port.listeners.iter().position(listens)?;
                Some((provider, ListenerId(u32::try_from(index).ok()?)))
            })
    }

    /// The address to listen on, with port 0 replaced.
    pub fn bind(&mut self, mut address: SocketAddr) -> io::Result<SocketAddr> {
        if address.port() == 0 {
            address.set_port(self.take_port());
        }
        match self.listener(address) {
            Some(_) => Err(io::ErrorKind::AddrInUse.into()),
            None => Ok(address),
        }
    }

    /// An address for the connecting side.
    pub fn ephemeral(&mut self, provider: usize) -> SocketAddr {
        (self.providers[provider].address, self.take_port()).into()
    }

    fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(49152);
        port
    }

    /// A key unused by the end, and an unpredictable offset.
    pub fn new_key(&mut self, index: usize) -> (Key, u64) {
        loop {
            let key = Key(self.random.next_u32());
            if self.ends[index].exposed(key).is_none() {
                return (key, self.random.next_u64() >> 1);
            }
        }
    }
}
