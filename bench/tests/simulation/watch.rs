//! A provider under watch: what a side sends and posts is checked at every moment, and mutants go
//! wrong here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Slice};
use millrace_reactor::fabric::testing::{Wired, Wrapper};
use millrace_reactor::fabric::{Event, Operation, PostError, Provider, QueuePairId, WorkRequest};

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Body, Header, Rules, Versions};

use super::dice::Dice;
use super::mischief::Mischief;
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

/// A provider under watch.
pub struct Watched {
    pub inner: Wired,
    role: Role,
    accounts: HashMap<QueuePairId, Account>,
    complaints: Complaints,
    mutant: Option<(Mutant, Dice)>,
    /// What goes wrong on devices.
    pub mischief: Option<Rc<RefCell<Mischief>>>,
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
    pub fn new(inner: Wired, role: Role, complaints: &Complaints) -> Self {
        Self {
            inner,
            role,
            accounts: HashMap::new(),
            complaints: Rc::clone(complaints),
            mutant: None,
            mischief: None,
            forgets_dones: false,
        }
    }

    pub fn infect(&mut self, mutant: Mutant, dice: Dice) {
        self.mutant = Some((mutant, dice));
    }

    fn complain(&self, what: String) {
        self.complaints.borrow_mut().push(what);
    }

    /// Lets go wrong what goes wrong by itself. Whether nobody looks at the provider now.
    fn plays(&mut self) -> bool {
        let Some(mischief) = self.mischief.clone() else {
            return false;
        };
        let mut mischief = mischief.borrow_mut();
        for (id, buffer) in mischief.late() {
            // Of a connection that has ended meanwhile nothing is wanted.
            let _ = self.inner_mut().post_receive(id, buffer);
        }
        if let Some(number) = mischief.aborts(self.accounts.len()) {
            let mut names: Vec<QueuePairId> = self.accounts.keys().copied().collect();
            names.sort_unstable_by_key(|name| (name.index, name.generation));
            self.inner_mut().abort(names[number]);
        }
        mischief.is_deaf()
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

impl Wrapper for Watched {
    fn inner(&self) -> &dyn Provider {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Provider {
        &mut self.inner
    }

    fn post_receive(&mut self, id: QueuePairId, buffer: Buffer) -> Result<(), (PostError, Buffer)> {
        if self.strikes(Mutant::LosesReceives) && self.accounts.contains_key(&id) {
            drop(buffer);
        } else if let Some(mischief) = &self.mischief
            && self.accounts.contains_key(&id)
            && mischief.borrow_mut().delays_receive()
        {
            mischief.borrow_mut().late.push((id, buffer));
        } else {
            self.inner_mut().post_receive(id, buffer)?;
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
        if self.inner().send_room(id) >= chain.len() {
            self.mutate(chain);
        }
        self.inner_mut().post(id, chain)?;
        for bytes in sends {
            self.sent(id, &bytes);
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        if self.plays() {
            return 0;
        }
        let before = events.len();
        let work = self.inner_mut().poll(now, events);
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
                Event::Disconnected { queue_pair, reason } => {
                    self.accounts.remove(queue_pair);
                    if let Some(mischief) = &self.mischief {
                        let ended = (*queue_pair, reason.clone());
                        mischief.borrow_mut().ended.push(ended);
                    }
                }
                Event::Rejected { queue_pair, .. } => {
                    self.accounts.remove(queue_pair);
                }
                _ => {}
            }
        }
        work
    }
}
