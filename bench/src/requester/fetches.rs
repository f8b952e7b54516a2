//! Replies to fetch by RDMA Reads, in the order in which that happens.

use std::collections::VecDeque;

use millrace_mempool::Slice;
use millrace_reactor::fabric::chain::{self, Direction, RemoteSegment};
use millrace_reactor::fabric::{Operation, RemoteAddress, Slices};
use millrace_wire::rpcrdma::Segment;

/// The pending RDMA Reads and RDMA_DONEs of replies with read chunks.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    /// Calls with replies that have arrived and are not processed yet, in order of arrival.
    pub arrived: VecDeque<u32>,
    /// RDMA Reads to be posted.
    pub reads: VecDeque<QueuedRead>,
    /// RDMA Reads posted.
    pub open: usize,
    /// RDMA_DONEs to be sent.
    pub done: VecDeque<Slice>,
}

/// An RDMA Read for a call.
#[derive(Debug)]
pub(super) struct QueuedRead {
    pub index: u32,
    pub from: RemoteAddress,
    pub local: Slices,
}

impl Fetches {
    pub fn is_idle(&self) -> bool {
        self.open == 0 && self.arrived.is_empty() && self.reads.is_empty() && self.done.is_empty()
    }

    /// Forgets all, as the connection is gone.
    pub fn clear(&mut self) {
        self.arrived.clear();
        self.reads.clear();
        self.done.clear();
        self.open = 0;
    }

    /// Queues the RDMA Reads that fill some memory from segments. Bytes of the segments beyond the
    /// memory are not read.
    pub fn queue(
        &mut self,
        (index, slices): (u32, usize),
        segments: impl Iterator<Item = Segment>,
        memory: impl Iterator<Item = Slice>,
    ) {
        let memory: Vec<Slice> = memory.collect();
        let mut chain = Vec::new();
        let direction = Direction::FromPeer { slices };
        chain::transfer(
            direction,
            &memory,
            segments.map(|one| RemoteSegment::new(one.handle, one.offset, one.length)),
            &mut chain,
        );
        self.reads.extend(chain.into_iter().filter_map(|request| {
            let Operation::Read(from) = request.operation else {
                return None;
            };
            let local = request.local;
            Some(QueuedRead { index, from, local })
        }));
    }
}
