//! Work requests of a connection that its client has not completed yet, and the time limit for
//! them.
//!
//! A send queue completes its requests in the order of posting, including RDMA Reads. So its free
//! space determines which are complete, including those without a waiter.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use millrace_reactor::fabric::{Operation, WorkRequest};

use crate::transfer::{TransferLimits, TransferWindow};

/// The interval of checks.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// The initial capacity for chains.
const ORDINARY: usize = 64;

/// The direction of a chain's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferDirection {
    /// To the client.
    Sending,
    /// From the client, by RDMA Reads.
    Fetching,
}

/// The requests and bytes of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainSize {
    requests: u64,
    bytes: u64,
    course: TransferDirection,
}

impl ChainSize {
    /// Those of a chain that is not posted yet.
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

/// A posted chain.
#[derive(Debug)]
struct PostedChain {
    /// Requests posted up to its end, since the connection was made.
    end: u64,
    bytes: u64,
    course: TransferDirection,
}

/// Transfers that one connection's client has not completed yet.
#[derive(Debug)]
pub struct Transfers {
    /// Requests posted, and their bytes.
    requests: Cell<u64>,
    bytes: Cell<u64>,
    /// Bytes of completed chains.
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

    /// Records a posted chain. `in_queue` returns the number of requests in the send queue, and is
    /// called occasionally only.
    pub fn posted(&self, size: ChainSize, in_queue: impl FnOnce() -> usize) {
        let end = self.requests.get() + size.requests;
        self.requests.set(end);
        self.bytes.set(self.bytes.get() + size.bytes);
        let mut chains = self.chains.borrow_mut();
        if chains.len() == chains.capacity() {
            self.settle(&mut chains, in_queue());
        }
        chains.push_back(PostedChain {
            end,
            bytes: size.bytes,
            course: size.course,
        });
    }

    /// Removes completed chains.
    fn settle(&self, chains: &mut VecDeque<PostedChain>, in_queue: usize) {
        let over = self.requests.get().saturating_sub(in_queue as u64);
        while let Some(chain) = chains.pop_front_if(|chain| chain.end <= over) {
            self.moved.set(self.moved.get() + chain.bytes);
        }
    }

    /// The direction of its oldest chain, if the client has completed too little.
    pub fn too_slow(
        &self,
        in_queue: usize,
        now: Instant,
        limits: &TransferLimits,
    ) -> Option<TransferDirection> {
        let mut chains = self.chains.borrow_mut();
        self.settle(&mut chains, in_queue);
        let moved = self.moved.get();
        let mut window = self.window.get();
        let slow = window.is_too_slow(moved, self.bytes.get() - moved, now, limits);
        self.window.set(window);
        let oldest = chains.front().filter(|_| slow);
        oldest.map(|chain| chain.course)
    }

    /// Whether a chain is not complete, as far as known.
    pub fn has_some(&self) -> bool {
        !self.chains.borrow().is_empty()
    }
}

/// The schedule of checking the connections of a reactor.
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

    /// Whether a check is due. Afterwards [`TransferSchedule::looked`] schedules the next one.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.get().is_some_and(|next| now >= next)
    }

    /// Records whether a check found incomplete transfers.
    pub fn looked(&self, now: Instant, found: bool) {
        self.next.set(found.then_some(now + CHECK_AFTER));
    }

    /// The time of the next check, if there is one.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next.get()
    }
}
