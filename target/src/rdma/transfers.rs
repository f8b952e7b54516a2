//! Work requests of a connection that its client has not let go of yet, and how long they may take.
//!
//! A send queue ends its requests in the order of posting, RDMA Reads among them. So the room in it
//! tells which are over, also of those whose success nobody waits for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_reactor::fabric::{Operation, WorkRequest};

use crate::transfer::{TransferLimits, TransferWindow};

/// Time between two looks.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// Chains that there is storage for from the start.
const ORDINARY: usize = 64;

/// Which way a chain moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferDirection {
    /// To the client.
    Sending,
    /// From the client, by RDMA Reads.
    Fetching,
}

/// A chain of work requests: what it takes and moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainSize {
    requests: u64,
    bytes: u64,
    course: TransferDirection,
}

impl ChainSize {
    /// Of a chain that is not posted yet.
    pub fn of(chain: &[WorkRequest]) -> Self {
        let length = |request: &WorkRequest| -> u64 {
            let slices = request.local.iter();
            slices.map(|slice| slice.len() as u64).sum()
        };
        let reads = matches!(
            chain.first(),
            Some(WorkRequest {
                operation: Operation::Read(_),
                ..
            })
        );
        Self {
            requests: chain.len() as u64,
            bytes: chain.iter().map(length).sum::<u64>().max(1),
            course: if reads {
                TransferDirection::Fetching
            } else {
                TransferDirection::Sending
            },
        }
    }
}

/// A chain that was posted.
#[derive(Debug)]
struct PostedChain {
    /// Requests posted up to its end, since the connection began.
    end: u64,
    bytes: u64,
    course: TransferDirection,
}

/// What one connection's client has not let go of yet.
#[derive(Debug)]
pub struct Transfers {
    /// Requests posted, and their bytes.
    requests: Cell<u64>,
    bytes: Cell<u64>,
    /// Bytes of the chains that are over.
    moved: Cell<u64>,
    chains: RefCell<VecDeque<PostedChain>>,
    window: Cell<TransferWindow>,
}

impl Transfers {
    /// None yet.
    pub fn new() -> Self {
        Self {
            requests: Cell::new(0),
            bytes: Cell::new(0),
            moved: Cell::new(0),
            chains: RefCell::new(VecDeque::with_capacity(ORDINARY)),
            window: Cell::default(),
        }
    }

    /// Notes a chain that was posted. `in_queue` says how many requests the send queue holds, which
    /// is asked for now and then only.
    pub fn posted(&self, size: ChainSize, in_queue: impl FnOnce() -> usize) {
        let end = self.requests.get() + size.requests;
        self.requests.set(end);
        self.bytes.set(self.bytes.get() + size.bytes);
        if self.chains.borrow().len() == self.chains.borrow().capacity() {
            self.settle(in_queue());
        }
        self.chains.borrow_mut().push_back(PostedChain {
            end,
            bytes: size.bytes,
            course: size.course,
        });
    }

    /// Forgets the chains that are over.
    fn settle(&self, in_queue: usize) {
        let over = self.requests.get().saturating_sub(in_queue as u64);
        let mut chains = self.chains.borrow_mut();
        while let Some(chain) = chains.pop_front_if(|chain| chain.end <= over) {
            self.moved.set(self.moved.get() + chain.bytes);
        }
    }

    /// Which way its oldest chain goes, if the client has let go of too little.
    pub fn too_slow(
        &self,
        in_queue: usize,
        now: Instant,
        limits: &TransferLimits,
    ) -> Option<TransferDirection> {
        self.settle(in_queue);
        let moved = self.moved.get();
        let mut window = self.window.get();
        let slow = window.is_too_slow(moved, self.bytes.get() - moved, now, limits);
        self.window.set(window);
        let chains = self.chains.borrow();
        let oldest = chains.front().filter(|_| slow);
        oldest.map(|chain| chain.course)
    }

    /// Whether a chain is not over, as far as is known.
    pub fn has_some(&self) -> bool {
        !self.chains.borrow().is_empty()
    }
}

/// When to look at the connections of a reactor.
#[derive(Debug, Default)]
pub struct TransferSchedule {
    next: Cell<Option<Instant>>,
}

impl TransferSchedule {
    /// Something was posted.
    pub fn begin(&self, now: impl FnOnce() -> Instant) {
        if self.next.get().is_none() {
            self.next.set(Some(now() + CHECK_AFTER));
        }
    }

    /// Whether it is time to look. Then [`TransferSchedule::looked`] says whether there is a next
    /// time.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.get().is_some_and(|next| now >= next)
    }

    /// Whoever looked has found something that is not over, or nothing.
    pub fn looked(&self, now: Instant, found: bool) {
        self.next.set(found.then_some(now + CHECK_AFTER));
    }

    /// When to look next, if anything is to be looked at.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next.get()
    }
}
