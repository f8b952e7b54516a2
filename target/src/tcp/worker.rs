//! Serving of calls that came as records: a few long-lived tasks take them from one queue.
//!
//! Calls may wait long for a limit of their client or their export. So each client has a line of
//! its own and a share of the tasks and of the memory for records, and the lines take turns; a
//! client of whose calls none is served can always have one served.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use millrace_mempool::{Class, Pool, Slice};
use millrace_wire::xdr::Padding;

use super::connection::ClientMemory;
use super::gather::HEADROOM;
use super::server::ConnectionId;
use super::{MESSAGE_MAX, RECORD_MAX, TcpConfig};
use crate::call::{
    Account, Answer, Call, Limits, NO_CHUNKS, NoBulk, Peer, Reply, ReplyParts, Serve,
};
use crate::flow::Flow;

/// Lists of memory kept for the next calls.
const SPARES_MAX: usize = 32;

/// A call to be served.
pub(super) struct Request {
    pub connection: ConnectionId,
    pub peer: Peer,
    pub arrived: Instant,
    pub record: Vec<u8>,
    /// What it is charged to, where clients have shares.
    pub memory: Option<ClientMemory>,
}

/// A call that was served.
pub(super) struct Served {
    pub connection: ConnectionId,
    pub arrived: Instant,
    /// It was a valid call.
    pub is_valid: bool,
    pub moved: Account,
    pub answer: Answer,
    /// None where there was no memory for a reply.
    pub parts: Option<ReplyParts>,
}

/// A client with calls.
struct Client {
    address: IpAddr,
    /// Calls that have a worker.
    serving: usize,
    /// Bytes of its records that wait or are being served.
    held: usize,
    waiting: VecDeque<Request>,
}

/// A call that has a worker.
#[derive(Clone, Copy)]
struct Serving {
    connection: ConnectionId,
    address: IpAddr,
    length: usize,
}

/// What the server and its workers share.
pub(super) struct Queue {
    /// Most calls served at once, but for one of each client.
    calls: usize,
    /// Most bytes of records, but for one record of each client.
    bytes: usize,
    /// Whose turn it is comes first.
    clients: RefCell<VecDeque<Client>>,
    served: RefCell<Vec<Served>>,
    idle: RefCell<Vec<(usize, Waker)>>,
    /// Bytes of the records that wait or are being served.
    held: Cell<usize>,
    /// What each worker serves.
    serving: RefCell<Vec<Option<Serving>>>,
    spare_records: RefCell<Vec<Vec<u8>>>,
    spare_slices: RefCell<Vec<Vec<Slice>>>,
}

impl Queue {
    /// Without calls.
    pub fn new(config: &TcpConfig) -> Self {
        Self {
            calls: config.calls,
            bytes: config.bytes,
            clients: RefCell::default(),
            served: RefCell::default(),
            idle: RefCell::default(),
            held: Cell::new(0),
            serving: RefCell::default(),
            spare_records: RefCell::default(),
            spare_slices: RefCell::default(),
        }
    }

    /// A number for a new worker.
    pub fn add_worker(&self) -> usize {
        let mut serving = self.serving.borrow_mut();
        serving.push(None);
        serving.len() - 1
    }

    /// A client's part of `all`. As much is left for one who comes next.
    fn share(clients: &VecDeque<Client>, all: usize) -> usize {
        (all / (clients.len() + 1)).max(1)
    }

    /// Calls that may be served beside those that are.
    fn wanted(&self) -> usize {
        let clients = self.clients.borrow();
        let share = Self::share(&clients, self.calls);
        let waits = |one: &&Client| one.serving == 0 && !one.waiting.is_empty();
        let first = clients.iter().filter(waits).count();
        let more = |one: &Client| one.waiting.len().min(share.saturating_sub(one.serving));
        let more: usize = clients.iter().map(more).sum();
        first.max(more.min(self.calls.saturating_sub(serving(&clients))))
    }

    /// How many calls would find no worker idle.
    pub fn shortage(&self) -> usize {
        self.wanted().saturating_sub(self.idle.borrow().len())
    }

    /// Whether a client may hold one more record.
    pub fn has_room(&self, address: IpAddr) -> bool {
        let clients = self.clients.borrow();
        let held = |one: &Client| (one.address == address).then_some(one.held);
        match clients.iter().find_map(held) {
            None | Some(0) => true,
            Some(held) => self.held.get() < self.bytes && held < Self::share(&clients, self.bytes),
        }
    }

    /// Queues a call.
    pub fn push(&self, request: Request) {
        let (address, length) = (request.peer.address, request.record.len());
        self.held.set(self.held.get() + length);
        let mut clients = self.clients.borrow_mut();
        let at = clients.iter().position(|one| one.address == address);
        let at = at.unwrap_or_else(|| {
            clients.push_back(Client {
                address,
                serving: 0,
                held: 0,
                waiting: VecDeque::new(),
            });
            clients.len() - 1
        });
        let client = &mut clients[at];
        client.held += length;
        client.waiting.push_back(request);
    }

    /// The next call of the next client that may have one more served; that client then comes after
    /// all others.
    fn pop(&self) -> Option<Request> {
        let mut clients = self.clients.borrow_mut();
        let share = Self::share(&clients, self.calls);
        let room = serving(&clients) < self.calls;
        let may = |one: &Client| {
            !one.waiting.is_empty() && (one.serving == 0 || (room && one.serving < share))
        };
        let at = clients.iter().position(may)?;
        let mut client = clients.remove(at)?;
        let request = client.waiting.pop_front();
        client.serving += usize::from(request.is_some());
        clients.push_back(client);
        request
    }

    /// Ends a worker's call. Returns whose it was.
    fn end(&self, worker: usize) -> Option<ConnectionId> {
        let ended = self.serving.borrow_mut().get_mut(worker)?.take()?;
        self.held.set(self.held.get() - ended.length);
        let mut clients = self.clients.borrow_mut();
        let at = clients.iter().position(|one| one.address == ended.address);
        if let Some(at) = at {
            let client = &mut clients[at];
            client.serving -= 1;
            client.held -= ended.length;
            if client.serving == 0 && client.waiting.is_empty() {
                clients.remove(at);
            }
        }
        Some(ended.connection)
    }

    /// Wakes as many idle workers as there are calls for them.
    pub fn wake(&self) {
        let wanted = self.wanted();
        let mut idle = self.idle.borrow_mut();
        let keep = idle.len().saturating_sub(wanted);
        for (_, waker) in idle.drain(keep..) {
            waker.wake();
        }
    }

    /// The calls served since the last time, moved into `served`.
    pub fn take_served(&self, served: &mut Vec<Served>) {
        served.append(&mut self.served.borrow_mut());
    }

    /// Whether a worker serves a call of a connection.
    pub fn serves(&self, worker: usize, connection: ConnectionId) -> bool {
        let serving = self.serving.borrow();
        let serving = serving.get(worker).copied().flatten();
        serving.is_some_and(|serving| serving.connection == connection)
    }

    /// Notes that a worker died of a panic. Returns whose call it served.
    pub fn bury(&self, worker: usize) -> Option<ConnectionId> {
        self.idle.borrow_mut().retain(|(idle, _)| *idle != worker);
        self.end(worker)
    }

    /// Memory for a record.
    pub fn spare_record(&self) -> Vec<u8> {
        self.spare_records.borrow_mut().pop().unwrap_or_default()
    }

    fn keep_record(&self, mut record: Vec<u8>) {
        let mut spares = self.spare_records.borrow_mut();
        if spares.len() < SPARES_MAX && record.capacity() <= 2 * RECORD_MAX {
            record.clear();
            spares.push(record);
        }
    }

    /// Keeps an emptied list for the next reply.
    pub fn keep_slices(&self, mut slices: Vec<Slice>) {
        slices.clear();
        let mut spares = self.spare_slices.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(slices);
        }
    }

    fn next(&self, worker: usize) -> impl Future<Output = Request> {
        poll_fn(move |context| {
            let mut idle = self.idle.borrow_mut();
            idle.retain(|(idle, _)| *idle != worker);
            match self.pop() {
                Some(request) => Poll::Ready(request),
                None => {
                    idle.push((worker, context.waker().clone()));
                    Poll::Pending
                }
            }
        })
    }
}

/// Calls that have a worker.
fn serving(clients: &VecDeque<Client>) -> usize {
    clients.iter().map(|one| one.serving).sum()
}

/// Serves calls for ever.
pub(super) async fn work<S: Serve>(
    worker: usize,
    queue: Rc<Queue>,
    pool: Pool,
    service: S,
    flow: Option<Flow>,
) {
    loop {
        let request = queue.next(worker).await;
        queue.serving.borrow_mut()[worker] = Some(Serving {
            connection: request.connection,
            address: request.peer.address,
            length: request.record.len(),
        });
        let served = {
            let call = pin!(serve(&queue, &pool, &service, &request));
            match (&flow, &request.memory) {
                (Some(flow), Some(ClientMemory { tenant, account })) => {
                    flow.charged(tenant, account, call).await
                }
                _ => call.await,
            }
        };
        queue.end(worker);
        queue.keep_record(request.record);
        queue.served.borrow_mut().push(served);
    }
}

async fn serve<S: Serve>(queue: &Queue, pool: &Pool, service: &S, request: &Request) -> Served {
    let limits = Limits {
        headroom: HEADROOM,
        message: MESSAGE_MAX,
        apart: NO_CHUNKS,
        tells_shortage: false,
    };
    let mut served = Served {
        connection: request.connection,
        arrived: request.arrived,
        is_valid: false,
        moved: Account::default(),
        answer: Answer::Broken,
        parts: None,
    };
    let Ok(buffer) = pool.obtain(Class::Control).await else {
        return served;
    };
    let slices = queue.spare_slices.borrow_mut().pop().unwrap_or_default();
    let mut reply = Reply::new(pool, buffer, limits, slices);
    let call = Call {
        peer: request.peer,
        arrived: request.arrived,
        message: &request.record,
        bulk: &[],
        padding: Padding::default(),
    };
    served.answer = service.serve(call, &mut NoBulk, &mut reply).await;
    (served.is_valid, served.moved) = (reply.is_call_valid, reply.account);
    served.parts = Some(reply.into_parts());
    served
}
