//! Fetching read chunks (RFC 5666 section 3.5).

use std::cell::Cell;
use std::rc::Rc;

use millrace_mempool::Slice;
use millrace_reactor::fabric::chain::{self, Direction, RemoteSegment};
use millrace_reactor::fabric::{Key, RemoteAddress, WorkError};
use millrace_wire::rpcrdma::{ReadChunk, Segment};

use super::{Connection, Shared};
use crate::call::{Broken, Bulk, BulkArgument};

/// A segment as work requests name it.
pub fn remote(segment: Segment) -> RemoteSegment {
    let address = RemoteAddress {
        key: Key(segment.handle),
        offset: segment.offset,
    };
    RemoteSegment {
        address,
        length: segment.length,
    }
}

/// Fetches the chunks that a call left apart.
pub struct Puller<'a, S> {
    shared: &'a Shared<S>,
    connection: &'a Rc<Connection>,
    xid: u32,
    apart: &'a [(BulkArgument, ReadChunk<'a>, u64)],
    refused: Cell<bool>,
}

impl<'a, S> Puller<'a, S> {
    /// For one call; `apart` are its chunks, and the bytes of each that were fetched already.
    pub fn new(
        shared: &'a Shared<S>,
        connection: &'a Rc<Connection>,
        xid: u32,
        apart: &'a [(BulkArgument, ReadChunk<'a>, u64)],
    ) -> Self {
        Self {
            shared,
            connection,
            xid,
            apart,
            refused: Cell::new(false),
        }
    }

    /// Whether the client serves no RDMA Reads at all. Then nothing was fetched, but the connection
    /// stands and the call can be answered.
    pub fn is_refused(&self) -> bool {
        self.refused.get()
    }

    /// Whom it fetches from.
    pub fn connection(&self) -> &'a Rc<Connection> {
        self.connection
    }

    /// Fills `sinks` from a chunk's byte `skip` on.
    pub async fn fetch(
        &self,
        chunk: ReadChunk<'_>,
        skip: u64,
        sinks: &[Slice],
    ) -> Result<(), Broken> {
        let mut chain = self.shared.chain();
        let segments = chain::skip(chunk.segments().map(remote), skip);
        let slices = self.connection.read_slices();
        let direction = Direction::FromPeer { slices };
        let bytes = chain::transfer(direction, sinks, segments, &mut chain);
        let outcome = self.connection.post_and_wait(self.shared, &mut chain).await;
        self.shared.recycle_chain(chain);
        match outcome {
            Ok(_) => {
                self.connection.counters().read_bytes.add(bytes);
                self.shared.counters.read_bytes.add(bytes);
                Ok(())
            }
            Err(WorkError::RemoteAccess) => {
                self.shared
                    .poisoned
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
        match self.apart.get(index) {
            Some(&(_, chunk, skip)) => self.fetch(chunk, skip, sinks).await,
            None => Err(Broken),
        }
    }

    fn is_broken(&self) -> bool {
        self.connection.is_broken()
    }
}
