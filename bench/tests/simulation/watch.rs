//! A provider under watch: what a side sends and posts is checked at every moment, and mutants go
//! wrong here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Slice};
use millrace_reactor::fabric::loopback::Loopback;
use millrace_reactor::fabric::{
    Access, ConnectParameters, Event, ExposeError, Exposure, Incoming, Invalidation, Key,
    ListenerId, Operation, PostError, Provider, QueuePairId, QueuePairLimits, Revoked, Slices,
    WorkRequest,
};

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Body, Header, Rules, Versions};

use super::dice::Dice;
use super::mutant::Mutant;

/// What is wrong, in words; the first thing counts.
pub type Complaints = Rc<RefCell<Vec<String>>>;

/// Whose provider it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Requester,
    Responder,
}

/// The credits and receives of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    posted: u32,
    /// Calls received and answered, or sent and answered.
    calls: u32,
    answers: u32,
    /// The latest grant, once a good reply came.
    grant: Option<u32>,
}

/// A loopback provider under watch.
pub struct Watched {
    pub inner: Loopback,
    role: Role,
    accounts: HashMap<QueuePairId, Account>,
    complaints: Complaints,
    mutant: Option<(Mutant, Dice)>,
    /// Sends no RDMA_DONE.
    pub forgets_dones: bool,
}

/// What a message is to whom it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Call,
    /// Whether it is a good one.
    Answer(bool),
    Done,
    /// Of the other direction, or of none.
    Other,
}

/// Nothing that either side sends breaks these.
const RULES: Rules = Rules {
    versions: Versions::BOTH,
    segments_per_chunk: usize::MAX,
    read_chunks: usize::MAX,
    write_chunks: usize::MAX,
    read_bytes: u64::MAX,
    padding: true,
    same_xid: false,
};

/// The credits of a message of a requester or responder, and what it is.
fn sort(message: &[u8], from: Role) -> Option<(u32, Sort)> {
    let header = Header::parse(message, &RULES).ok()?;
    let forward = match header.direction() {
        None => true,
        Some(MessageType::Call) => from == Role::Requester,
        Some(MessageType::Reply) => from == Role::Responder,
    };
    let sort = match (&header.body, from) {
        (Body::Done, _) => Sort::Done,
        _ if !forward => Sort::Other,
        (Body::Message { .. } | Body::NoMessage { .. }, Role::Requester) => Sort::Call,
        (Body::Message { .. } | Body::NoMessage { .. }, Role::Responder) => Sort::Answer(true),
        (Body::Error(_), Role::Responder) => Sort::Answer(false),
        (Body::Error(_) | Body::Optional(_), _) => Sort::Other,
    };
    Some((header.words.credits, sort))
}

fn gather(slices: &[Slice]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for slice in slices {
        let start = bytes.len();
        bytes.resize(start + slice.len(), 0);
        slice.copy_to(0, &mut bytes[start..]);
    }
    bytes
}

impl Watched {
    pub fn new(inner: Loopback, role: Role, complaints: &Complaints) -> Self {
        Self {
            inner,
            role,
            accounts: HashMap::new(),
            complaints: Rc::clone(complaints),
            mutant: None,
            forgets_dones: false,
        }
    }

    pub fn infect(&mut self, mutant: Mutant, dice: Dice) {
        self.mutant = Some((mutant, dice));
    }

    fn complain(&self, what: String) {
        self.complaints.borrow_mut().push(what);
    }

    /// Whether the mutant strikes now.
    fn strikes(&mut self, wanted: Mutant) -> bool {
        match &mut self.mutant {
            Some((mutant, dice)) if *mutant == wanted => dice.once_in(4),
            _ => false,
        }
    }

    fn sent(&mut self, queue_pair: QueuePairId, bytes: &[u8]) {
        let Some((credits, sort)) = sort(bytes, self.role) else {
            return self.complain(format!("a message that does not parse: {bytes:x?}"));
        };
        let account = self.accounts.entry(queue_pair).or_default();
        let before = *account;
        match sort {
            Sort::Answer(_) => {
                account.answers += 1;
                let in_service = account.calls.saturating_sub(account.answers);
                if account.answers > account.calls {
                    self.complain(format!("an answer to no call: {before:?}"));
                } else if credits == 0 || account.posted + in_service < credits {
                    self.complain(format!("{credits} credits are not covered: {before:?}"));
                }
            }
            Sort::Call => {
                account.calls += 1;
                let out = before.calls - before.answers;
                let limit = before.grant.unwrap_or(1).min(credits).max(1);
                if out >= limit || account.posted <= out {
                    self.complain(format!("a call beyond {limit} credits: {before:?}"));
                }
            }
            Sort::Done | Sort::Other => {}
        }
    }

    fn received(&mut self, queue_pair: QueuePairId, bytes: &[u8]) {
        let peer = match self.role {
            Role::Requester => Role::Responder,
            Role::Responder => Role::Requester,
        };
        let account = self.accounts.entry(queue_pair).or_default();
        account.posted -= 1;
        match sort(bytes, peer) {
            Some((_, Sort::Call)) => account.calls += 1,
            Some((credits, Sort::Answer(good))) => {
                account.answers += 1;
                if good || account.grant.is_some() {
                    account.grant = Some(credits);
                }
            }
            _ => {}
        }
        if self.role == Role::Requester && account.answers > account.calls {
            let what = format!("an answer to nothing: {account:?}");
            self.complain(what);
        }
    }

    /// Leaves RDMA_DONEs out, as clients do that never send any.
    fn forget_dones(&mut self, chain: &mut Vec<WorkRequest>) {
        let (role, forgets) = (self.role, self.forgets_dones);
        chain.retain(|request| {
            let bytes = gather(&request.local);
            !forgets || !matches!(sort(&bytes, role), Some((_, Sort::Done)))
        });
    }

    /// Spoils a chain.
    fn mutate(&mut self, chain: &mut Vec<WorkRequest>) {
        let write = |request: &WorkRequest| matches!(request.operation, Operation::Write(_));
        let Some(at) = chain.iter().position(write) else {
            return;
        };
        if self.strikes(Mutant::DropsWrites) {
            chain.remove(at);
        } else if self.strikes(Mutant::SendsFirst) {
            let last = chain.len() - 1;
            chain.swap(at, last);
        } else if self.strikes(Mutant::WritesTooFar)
            && let Operation::Write(to) = &mut chain[at].operation
        {
            to.offset += 4;
        } else if self.strikes(Mutant::WritesOtherBytes) {
            for slice in &mut chain[at].local {
                *slice = slice.slice(slice.len() / 2..slice.len());
            }
        }
    }
}

impl Provider for Watched {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn exposure_slices(&self) -> usize {
        self.inner.exposure_slices()
    }

    fn remote_invalidation(&self) -> Invalidation {
        self.inner.remote_invalidation()
    }

    fn listen(
        &mut self,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        self.inner.listen(address, limits, hand_over)
    }

    fn adopt(&mut self, incoming: Incoming, now: Instant) -> io::Result<()> {
        self.inner.adopt(incoming, now)
    }

    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.inner.listener_address(listener)
    }

    fn connections(&self) -> usize {
        self.inner.connections()
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.inner.stop_listening(listener);
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        parameters: ConnectParameters,
        now: Instant,
    ) -> io::Result<QueuePairId> {
        self.inner.connect(address, parameters, now)
    }

    fn accept(&mut self, id: QueuePairId, parameters: ConnectParameters) -> Result<(), PostError> {
        self.inner.accept(id, parameters)
    }

    fn reject(&mut self, id: QueuePairId, private_data: &[u8]) {
        self.inner.reject(id, private_data);
    }

    fn post_receive(&mut self, id: QueuePairId, buffer: Buffer) -> Result<(), (PostError, Buffer)> {
        if self.strikes(Mutant::LosesReceives) && self.accounts.contains_key(&id) {
            drop(buffer);
        } else {
            self.inner.post_receive(id, buffer)?;
        }
        self.accounts.entry(id).or_default().posted += 1;
        Ok(())
    }

    fn post(&mut self, id: QueuePairId, chain: &mut Vec<WorkRequest>) -> Result<(), PostError> {
        if self.forgets_dones {
            self.forget_dones(chain);
        }
        let is_send = |request: &&WorkRequest| matches!(request.operation, Operation::Send { .. });
        let sends = chain.iter().filter(is_send);
        let sends: Vec<Vec<u8>> = sends.map(|request| gather(&request.local)).collect();
        if self.inner.send_room(id) >= chain.len() {
            self.mutate(chain);
        }
        self.inner.post(id, chain)?;
        for bytes in sends {
            self.sent(id, &bytes);
        }
        Ok(())
    }

    fn send_room(&self, id: QueuePairId) -> usize {
        self.inner.send_room(id)
    }

    fn expose(
        &mut self,
        id: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        self.inner.expose(id, local, access)
    }

    fn revoke(&mut self, id: QueuePairId, key: Key) -> Revoked {
        self.inner.revoke(id, key)
    }

    fn limit_reads(&mut self, id: QueuePairId, reads: u16) {
        self.inner.limit_reads(id, reads);
    }

    fn close(&mut self, id: QueuePairId) {
        self.inner.close(id);
    }

    fn abort(&mut self, id: QueuePairId) {
        self.inner.abort(id);
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let work = self.inner.poll(now, events);
        for event in &events[before..] {
            match event {
                Event::Received {
                    queue_pair,
                    buffer,
                    length,
                    ..
                } => self.received(*queue_pair, &buffer[..*length as usize]),
                Event::Completed { local, .. } if self.strikes(Mutant::KeepsMemory) => {
                    std::mem::forget(local.clone());
                }
                Event::Disconnected { queue_pair, .. } | Event::Rejected { queue_pair, .. } => {
                    self.accounts.remove(queue_pair);
                }
                _ => {}
            }
        }
        work
    }

    fn flush(&mut self, now: Instant) -> usize {
        self.inner.flush(now)
    }

    fn wake_descriptor(&self) -> Option<RawFd> {
        self.inner.wake_descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }
}
