//! Fetching read chunks (RFC 5666 section 3.5).

use std::cell::Cell;
use std::rc::Rc;

use millrace_mempool::Slice;
use millrace_reactor::fabric::chain::{self, Direction, RemoteSegment};
use millrace_reactor::fabric::{WorkError, WorkRequest};
use millrace_wire::rpcrdma::{ReadChunk, Segment};

use super::message::ReducedItems;
use super::{RdmaConnection, ResponderShared};
use crate::call::{Broken, Bulk};

/// A segment in the form of work requests.
pub fn remote(segment: Segment) -> RemoteSegment {
    RemoteSegment::new(segment.handle, segment.offset, segment.length)
}

/// Appends to `chain` the RDMA Reads that fill `sinks` from a byte of a chunk on. Returns the bytes
/// that they fetch.
pub fn read(
    connection: &RdmaConnection,
    (chunk, skip): (ReadChunk<'_>, u64),
    sinks: &[Slice],
    chain: &mut Vec<WorkRequest>,
) -> u64 {
    let segments = chain::skip(chunk.segments().map(remote), skip);
    let slices = connection.read_slices();
    chain::transfer(Direction::FromPeer { slices }, sinks, segments, chain)
}

/// Fetches the chunks left in place.
pub struct Puller<'a, S> {
    shared: &'a ResponderShared<S>,
    connection: &'a Rc<RdmaConnection>,
    xid: u32,
    /// The items of the call left in chunks.
    pub reduced: ReducedItems<'a>,
    refused: Cell<bool>,
}

impl<'a, S> Puller<'a, S> {
    /// For one call, without any items yet.
    pub fn new(
        shared: &'a ResponderShared<S>,
        connection: &'a Rc<RdmaConnection>,
        xid: u32,
    ) -> Self {
        Self {
            shared,
            connection,
            xid,
            reduced: ReducedItems::default(),
            refused: Cell::new(false),
        }
    }

    /// Whether the client serves no RDMA Reads at all. Then nothing was fetched, but the connection
    /// is intact and the call can be answered.
    pub fn is_refused(&self) -> bool {
        self.refused.get()
    }

    /// The connection to fetch from.
    pub fn connection(&self) -> &'a Rc<RdmaConnection> {
        self.connection
    }

    /// Fills `sinks` from byte `skip` of a chunk on.
    pub async fn fetch(
        &self,
        chunk: ReadChunk<'_>,
        skip: u64,
        sinks: &[Slice],
    ) -> Result<(), Broken> {
        let mut chain = self.shared.chain();
        let bytes = read(self.connection, (chunk, skip), sinks, &mut chain);
        let outcome = self.connection.post_and_wait(self.shared, &mut chain).await;
        self.shared.recycle_chain(chain);
        match outcome {
            Ok(()) => {
                self.connection.counters().read_bytes.add(bytes);
                self.shared.counters.read_bytes.add(bytes);
                Ok(())
            }
            Err(WorkError::RemoteAccess) => {
                self.shared
                    .remote_access_failures
                    .remember(self.connection.peer().address, self.xid);
                Err(Broken)
            }
            Err(error) => {
                self.refused.set(error == WorkError::NoReads);
                Err(Broken)
            }
        }
    }
}

impl<S> Bulk for Puller<'_, S> {
    async fn pull(&mut self, index: usize, sinks: &[Slice]) -> Result<(), Broken> {
        match self.reduced.iter().nth(index) {
            Some((chunk, skip)) => self.fetch(chunk, u64::from(skip), sinks).await,
            None => Err(Broken),
        }
    }
}
