//! Replies with read chunks: their parts are fetched by RDMA Reads (RFC 5666 sections 3.5 and 3.8).
//!
//! No current server sends such replies. But the receiver of one has to fetch it and to send
//! RDMA_DONE, or the server's memory stays exposed. So this is always enabled.

use millrace_mempool::Buffer;
use millrace_reactor::fabric::{Operation, Provider, SLICES_MAX, WorkError, WorkRequest};
use millrace_wire::rpcrdma::{Body, Header, Lists, ReadChunk};

use super::assemble::{self, Arrangement, Base, Insert, Written};
use super::call::{CallError, Sink};
use super::connection::Connection;
use super::fetches::QueuedRead;
use super::memory::{buffers, put, range};
use super::slot::{Ending, Owner, Stage};

/// Why a fetch has not begun.
enum Refused {
    /// The pool has no memory now.
    NoMemory,
    /// The reply cannot be one to this call.
    Bad,
}

impl Connection {
    /// Handles a reply with read chunks. `written` describes its write chunks, unless they
    /// contradict the offered ones.
    pub(super) fn on_read_chunks(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        written: Option<Written>,
        (buffer, length): (Buffer, usize),
        sink: Sink<'_>,
    ) {
        self.counters.read_chunk_replies += 1;
        self.window.keep_room();
        self.window.owe_done();
        let slot = &mut self.slots[index as usize];
        match written {
            Some(written) => {
                slot.written = written;
                slot.stage = Stage::Arrived(buffer, length);
                self.fetches.arrived.push_back(index);
            }
            None => {
                self.repost(provider, buffer);
                self.forgo(provider, index, CallError::BadReply, sink);
            }
        }
    }

    /// Ends a call without its reply's chunks, which the server has back at once.
    fn forgo(&mut self, provider: &mut dyn Provider, index: u32, error: CallError, sink: Sink<'_>) {
        self.counters.bad_replies += u64::from(error == CallError::BadReply);
        self.finish_fetch(index);
        self.end(provider, index, Ending::Failed(error), sink);
    }

    /// Posts RDMA Reads and RDMA_DONEs as far as memory, read depth, send queue and credits allow.
    pub(super) fn pump_fetches(&mut self, provider: &mut dyn Provider, sink: Sink<'_>) -> usize {
        if self.fetches.is_idle() {
            return 0;
        }
        let mut work = 0;
        while let Some(&index) = self.fetches.arrived.front() {
            if !self.begin(provider, index, sink) {
                break;
            }
            self.fetches.arrived.pop_front();
            work += 1;
        }
        while self.fetches.open < self.read_limit() && provider.send_room(self.queue_pair) > 0 {
            let Some(read) = self.fetches.reads.pop_front() else {
                break;
            };
            self.scratch.chain.push(WorkRequest {
                token: u64::from(read.index),
                operation: Operation::Read(read.from),
                local: read.local,
                signalled: true,
            });
            if provider
                .post(self.queue_pair, &mut self.scratch.chain)
                .is_err()
            {
                if let Some(WorkRequest { local, .. }) = self.scratch.chain.pop() {
                    self.fetches.reads.push_front(QueuedRead { local, ..read });
                }
                break;
            }
            self.fetches.open += 1;
            self.counters.reads += 1;
            work += 1;
        }
        work + self.pump_dones(provider)
    }

    /// RDMA Reads that may be open at once.
    fn read_limit(&self) -> usize {
        let served = self.configuration.limits.map(|limits| limits.reads);
        usize::from(self.depths.ord).min(served.map_or(usize::MAX, |reads| reads as usize))
    }

    /// Decides where the parts of a reply go, and queues its RDMA Reads. False if there is no
    /// memory for them now.
    fn begin(&mut self, provider: &mut dyn Provider, index: u32, sink: Sink<'_>) -> bool {
        let slot = &mut self.slots[index as usize];
        let Stage::Arrived(buffer, length) = std::mem::take(&mut slot.stage) else {
            return true;
        };
        if slot.owner != Owner::Waits {
            self.repost(provider, buffer);
            self.forgo(provider, index, CallError::Cancelled, sink);
            return true;
        }
        let message = buffer.get(..length).unwrap_or_default();
        // Each Read is one work request here, so that they can be posted one by one.
        let slices = provider.read_slices(self.queue_pair).min(SLICES_MAX);
        let arranged = match Header::parse(message, &self.rules) {
            Ok(header) if self.read_limit() > 0 => self.arrange((index, slices), &header),
            _ => Err(Refused::Bad),
        };
        match arranged {
            Err(Refused::NoMemory) => {
                self.slots[index as usize].stage = Stage::Arrived(buffer, length);
                return false;
            }
            Err(Refused::Bad) => {
                self.repost(provider, buffer);
                self.forgo(provider, index, CallError::BadReply, sink);
                return true;
            }
            Ok(Some(inline)) => {
                let ending = Ending::Inline(buffer, length - inline, length);
                self.slots[index as usize].stage = Stage::Fetching(ending);
            }
            Ok(None) => self.repost(provider, buffer),
        }
        if self.slots[index as usize].reads == 0 {
            self.fetched(provider, index, sink);
        }
        true
    }

    /// Queues the RDMA Reads of a reply, each into at most so many slices. Returns the bytes of the
    /// inline message if that is the reply; otherwise the reply is put together in memory of ours.
    fn arrange(
        &mut self,
        (index, slices): (u32, usize),
        header: &Header<'_>,
    ) -> Result<Option<usize>, Refused> {
        let lists = header.lists();
        let slot = &self.slots[index as usize];
        let zero = lists.reads.chunk(0);
        let base = match (header.body, zero) {
            (Body::Message { message, .. }, None) => Base::Inline(message),
            (Body::NoMessage { .. }, Some(zero)) => {
                Base::Zero(assemble::length(&zero).ok_or(Refused::Bad)?)
            }
            _ => return Err(Refused::Bad),
        };
        let arrangement = assemble::arrange(&lists.reads, base, &slot.shape, &slot.written);
        match (arrangement.ok_or(Refused::Bad)?, base) {
            (Arrangement::Sinks(sinks), Base::Inline(message)) => {
                self.fetch_into_sinks((index, slices), &lists, &sinks);
                Ok(Some(message.len()))
            }
            (Arrangement::Whole { inserts, length }, base) => {
                self.fetch_whole((index, slices), &lists, base, (&inserts, length))?;
                Ok(None)
            }
            (Arrangement::Sinks(_), Base::Zero(_)) => Err(Refused::Bad),
        }
    }

    /// Results go straight to where they belong.
    fn fetch_into_sinks(
        &mut self,
        (index, slices): (u32, usize),
        lists: &Lists<'_>,
        sinks: &[usize],
    ) {
        let slot = &mut self.slots[index as usize];
        while slot.written.len() < slot.shape.sinks.len() {
            slot.written.push(None);
        }
        for (chunk, &sink) in lists.reads.chunks().zip(sinks) {
            let slot = &mut self.slots[index as usize];
            // Nothing else is to be put there any more.
            slot.bounce.retain(|(of, _)| *of != sink);
            // Every arranged chunk has fewer than 2^32 bytes.
            slot.written[sink] = assemble::length(&chunk).map(|bytes| bytes as u32);
            let most = slot.shape.sinks[sink].length;
            let memory = range(slot.sink(sink), 0, most);
            let segments = chunk.segments();
            self.fetches.queue((index, slices), segments, memory);
        }
        self.count_reads(index);
    }

    /// Everything is put together in memory of ours, payload without a copy.
    fn fetch_whole(
        &mut self,
        (index, slices): (u32, usize),
        lists: &Lists<'_>,
        base: Base<'_>,
        (inserts, length): (&[Insert], usize),
    ) -> Result<(), Refused> {
        let memory = buffers(&self.pool, length).ok_or(Refused::NoMemory)?;
        // The ranges between the chunks are those of the message.
        let ends = inserts.iter().map(|insert| insert.end());
        let starts = inserts.iter().map(|insert| insert.at).chain([length]);
        let gaps = std::iter::once(0).chain(ends).zip(starts);
        match base {
            Base::Inline(mut message) => {
                for (from, to) in gaps {
                    let (now, later) = message.split_at(to - from);
                    put(&memory, from, now);
                    message = later;
                }
            }
            Base::Zero(_) => {
                let ranges = gaps.flat_map(|(from, to)| range(&memory, from, to));
                let zero = lists.reads.chunk(0);
                let segments = zero.iter().flat_map(ReadChunk::segments);
                self.fetches.queue((index, slices), segments, ranges);
            }
        }
        let chunks = lists.reads.chunks().filter(|chunk| chunk.position > 0);
        for (chunk, insert) in chunks.zip(inserts) {
            let end = insert.at + insert.length;
            put(&memory, end, &[0; 3][..insert.end() - end]);
            let ranges = range(&memory, insert.at, end);
            let segments = chunk.segments();
            self.fetches.queue((index, slices), segments, ranges);
        }
        self.count_reads(index);
        let slot = &mut self.slots[index as usize];
        slot.gathered = memory;
        slot.stage = Stage::Fetching(Ending::Gathered(length));
        for (sink, bytes) in slot.written.iter_mut().enumerate() {
            // What did not go into a write chunk is in the stream again.
            if *bytes == Some(0) {
                *bytes = None;
                slot.bounce.retain(|(of, _)| *of != sink);
            }
        }
        Ok(())
    }

    fn count_reads(&mut self, index: u32) {
        let queued = self.fetches.reads.iter().rev();
        let mine = queued.take_while(|read| read.index == index).count();
        self.slots[index as usize].reads = mine;
    }

    /// A work request ended. Only RDMA Reads tell.
    pub(super) fn on_read(
        &mut self,
        provider: &mut dyn Provider,
        token: u64,
        result: Result<(), WorkError>,
        sink: Sink<'_>,
    ) {
        let index = u32::try_from(token).ok();
        let Some(index) = index.filter(|&index| (index as usize) < self.slots.len()) else {
            return;
        };
        self.fetches.open = self.fetches.open.saturating_sub(1);
        match result {
            Ok(()) => {
                let slot = &mut self.slots[index as usize];
                slot.reads = slot.reads.saturating_sub(1);
                if slot.reads == 0 {
                    self.fetched(provider, index, sink);
                }
            }
            // The server has taken its memory back, or the connection ended otherwise: it does in
            // both cases, and the call is repeated if that is wanted (RFC 5666 section 11).
            Err(WorkError::Flushed | WorkError::RemoteAccess) => {}
            Err(WorkError::LocalLength | WorkError::NoReads) => provider.abort(self.queue_pair),
        }
    }

    /// All of a reply is here.
    fn fetched(&mut self, provider: &mut dyn Provider, index: u32, sink: Sink<'_>) {
        let slot = &mut self.slots[index as usize];
        match std::mem::take(&mut slot.stage) {
            Stage::Fetching(ending) => {
                self.finish_fetch(index);
                self.end(provider, index, ending, sink);
            }
            other => slot.stage = other,
        }
    }
}
