//! Serving of calls that came as records: a few long-lived tasks take them from one queue.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use millrace_mempool::{Class, Pool, Slice};
use millrace_wire::xdr::Padding;

use super::gather::HEADROOM;
use super::server::ConnectionId;
use super::{MESSAGE_MAX, RECORD_MAX};
use crate::call::{Answer, Call, Limits, NoBulk, Peer, Reply, ReplyParts, Serve};

/// Lists of memory kept for the next calls.
const SPARES_MAX: usize = 32;

/// A call to be served.
pub(super) struct Request {
    pub connection: ConnectionId,
    pub peer: Peer,
    pub arrived: Instant,
    pub record: Vec<u8>,
}

/// A call that was served.
pub(super) struct Served {
    pub connection: ConnectionId,
    pub answer: Answer,
    pub parts: ReplyParts,
}

/// What the server and its workers share.
#[derive(Default)]
pub(super) struct Queue {
    requests: RefCell<VecDeque<Request>>,
    served: RefCell<Vec<Served>>,
    idle: RefCell<Vec<(usize, Waker)>>,
    /// Bytes of the records that wait or are being served.
    held: Cell<usize>,
    /// Which connection each worker serves.
    serving: RefCell<Vec<Option<(ConnectionId, usize)>>>,
    spare_records: RefCell<Vec<Vec<u8>>>,
    spare_slices: RefCell<Vec<Vec<Slice>>>,
}

impl Queue {
    /// A number for a new worker.
    pub fn add_worker(&self) -> usize {
        let mut serving = self.serving.borrow_mut();
        serving.push(None);
        serving.len() - 1
    }

    /// How many calls would find no worker idle.
    pub fn shortage(&self) -> usize {
        self.requests
            .borrow()
            .len()
            .saturating_sub(self.idle.borrow().len())
    }

    /// Queues a call.
    pub fn push(&self, request: Request) {
        self.held.set(self.held.get() + request.record.len());
        self.requests.borrow_mut().push_back(request);
    }

    /// Wakes as many idle workers as there are calls.
    pub fn wake(&self) {
        let wanted = self.requests.borrow().len();
        let mut idle = self.idle.borrow_mut();
        let keep = idle.len().saturating_sub(wanted);
        for (_, waker) in idle.drain(keep..) {
            waker.wake();
        }
    }

    /// Bytes of the records that wait or are being served.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// The calls served since the last time, moved into `served`.
    pub fn take_served(&self, served: &mut Vec<Served>) {
        served.append(&mut self.served.borrow_mut());
    }

    /// Notes that a worker died of a panic. Returns whose call it served.
    pub fn bury(&self, worker: usize) -> Option<ConnectionId> {
        self.idle.borrow_mut().retain(|(idle, _)| *idle != worker);
        let (connection, length) = self.serving.borrow_mut().get_mut(worker)?.take()?;
        self.held.set(self.held.get() - length);
        Some(connection)
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
            match self.requests.borrow_mut().pop_front() {
                Some(request) => Poll::Ready(request),
                None => {
                    idle.push((worker, context.waker().clone()));
                    Poll::Pending
                }
            }
        })
    }
}

/// Serves calls for ever.
pub(super) async fn work<S: Serve>(worker: usize, queue: Rc<Queue>, pool: Pool, service: S) {
    let limits = Limits {
        headroom: HEADROOM,
        message: MESSAGE_MAX,
        apart: None,
        tells_shortage: false,
    };
    loop {
        let request = queue.next(worker).await;
        let length = request.record.len();
        queue.serving.borrow_mut()[worker] = Some((request.connection, length));
        let buffer = pool.acquire(Class::Control).await;
        let slices = queue.spare_slices.borrow_mut().pop().unwrap_or_default();
        let mut reply = Reply::new(&pool, buffer, limits, slices);
        let call = Call {
            peer: request.peer,
            arrived: request.arrived,
            message: &request.record,
            bulk: &[],
            padding: Padding::default(),
        };
        let answer = service.serve(call, &mut NoBulk, &mut reply).await;
        queue.serving.borrow_mut()[worker] = None;
        queue.held.set(queue.held.get() - length);
        let parts = reply.into_parts();
        let connection = request.connection;
        queue.keep_record(request.record);
        queue.served.borrow_mut().push(Served {
            connection,
            answer,
            parts,
        });
    }
}
