//! The send queue: work requests from posting to completion, in order.

use std::collections::VecDeque;

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// One message into the peer's next posted receive.
    Send {
        /// Steering tag of the peer's to invalidate.
        invalidate: Option<u32>,
        /// Ask for an event at a sleeping peer.
        solicited: bool,
    },
    /// Into the peer's memory.
    Write {
        /// The peer's steering tag.
        key: u32,
        /// The peer's tagged offset.
        offset: u64,
    },
    /// From the peer's memory.
    Read {
        /// The peer's steering tag.
        key: u32,
        /// The peer's tagged offset.
        offset: u64,
        /// Names the sink on the wire; random.
        sink: u32,
    },
    /// More memory for the Read posted directly before it, or before others of this kind: one Read
    /// Request asks for what fills all of them, in order. All are posted before the next call of
    /// [`crate::Endpoint::stage`]. Without such a Read, it fails with [`WorkFault::Length`].
    ReadMore,
}

/// A work request.
#[derive(Debug)]
pub struct Request<L> {
    /// Given back on completion.
    pub token: u64,
    /// What to do.
    pub operation: Operation,
    /// Source of a Send or Write, sink of a Read.
    pub local: L,
    /// Whether success is reported.
    pub signalled: bool,
}

/// Why a work request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkFault {
    /// The stream ended first.
    Flushed,
    /// The peer refused its memory.
    RemoteAccess,
    /// More than a message can carry.
    Length,
    /// The outbound read depth is zero.
    NoReads,
}

/// A work request that ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<L> {
    /// The request's token.
    pub token: u64,
    /// How it ended.
    pub result: Result<(), WorkFault>,
    /// The request's memory.
    pub local: L,
}

/// What became of the work requests, or the receives, of one kind: numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Posted.
    pub posted: u64,
    /// Of these, carried out.
    pub completed: u64,
    /// Bytes that those moved.
    pub bytes: u64,
}

impl Tally {
    #[inline]
    pub(crate) fn complete(&mut self, bytes: u32) {
        self.count(1, bytes);
    }

    #[inline]
    fn count(&mut self, completed: u64, bytes: u32) {
        self.completed += completed;
        self.bytes += u64::from(bytes);
    }
}

/// Kinds of [`Operation`].
const KINDS: usize = 3;

impl Operation {
    /// Its place among tallies: Sends, Writes, Reads.
    const fn kind(self) -> usize {
        match self {
            Self::Send { .. } => 0,
            Self::Write { .. } => 1,
            Self::Read { .. } | Self::ReadMore => 2,
        }
    }

    /// Whether it is counted as one; its bytes count in any case.
    const fn is_counted(self) -> bool {
        !matches!(self, Self::ReadMore)
    }
}

#[derive(Debug)]
pub(crate) struct Work<L> {
    pub(crate) token: u64,
    pub(crate) operation: Operation,
    pub(crate) local: L,
    pub(crate) length: u32,
    signalled: bool,
    result: Option<Result<(), WorkFault>>,
}

/// Names one work request for as long as the queue lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkId(u64);

impl WorkId {
    /// The request posted `count` requests later.
    pub(crate) const fn plus(self, count: u32) -> Self {
        Self(self.0 + count as u64)
    }
}

/// A Read and the requests that continue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeRead {
    /// Work requests, including that of the Read.
    pub(crate) works: u32,
    /// Bytes of all their memory.
    pub(crate) length: u32,
}

/// Work requests in the order of posting. The front is the oldest not yet reported; a cursor
/// parts what has been put into segments from what has not.
#[derive(Debug)]
pub(crate) struct WorkQueue<L> {
    queue: VecDeque<Work<L>>,
    depth: usize,
    /// Id of the front.
    first: u64,
    /// Id of the next request to put into segments.
    cursor: u64,
    tallies: [Tally; KINDS],
}

impl<L> WorkQueue<L> {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            depth,
            first: 0,
            cursor: 0,
            tallies: [Tally::default(); KINDS],
        }
    }

    /// Takes the memory that the queue needs when it is full.
    pub(crate) fn reserve(&mut self) {
        self.queue.reserve_exact(self.room());
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// What became of Sends, Writes and Reads.
    pub(crate) fn tallies(&self) -> [Tally; KINDS] {
        self.tallies
    }

    pub(crate) fn room(&self) -> usize {
        self.depth - self.queue.len()
    }

    /// Whether every request has ended, reported or not.
    pub(crate) fn is_settled(&self) -> bool {
        self.queue.iter().all(|work| work.result.is_some())
    }

    /// Appends a request; the caller has asked for [`Self::room`]. `length` is `None` where the
    /// memory is longer than a message can be.
    #[inline]
    pub(crate) fn push(&mut self, request: Request<L>, length: Option<u32>) {
        debug_assert!(self.room() > 0);
        let Request {
            token,
            operation,
            local,
            signalled,
        } = request;
        self.tallies[operation.kind()].posted += u64::from(operation.is_counted());
        self.queue.push_back(Work {
            token,
            operation,
            local,
            length: length.unwrap_or(0),
            signalled,
            result: length.is_none().then_some(Err(WorkFault::Length)),
        });
    }

    /// The next request to put into segments.
    pub(crate) fn next(&mut self) -> Option<(WorkId, &Work<L>)> {
        loop {
            let index = usize::try_from(self.cursor - self.first).ok()?;
            if self.queue.get(index)?.result.is_none() {
                return Some((WorkId(self.cursor), &self.queue[index]));
            }
            self.cursor += 1;
        }
    }

    /// The request that [`Self::next`] gave is wholly in segments.
    pub(crate) fn step(&mut self) {
        self.step_over(1);
    }

    /// The same for so many requests.
    pub(crate) fn step_over(&mut self, works: u32) {
        self.cursor += u64::from(works);
    }

    /// The Read of this name with all that continues it; `None` if one Read cannot ask for so much.
    pub(crate) fn whole_read(&self, id: WorkId) -> Option<WholeRead> {
        let mut whole = WholeRead {
            works: 1,
            length: self.get(id)?.length,
        };
        while let Some(more) = self.get(id.plus(whole.works))
            && more.operation == Operation::ReadMore
        {
            if more.result.is_some() {
                return None;
            }
            whole.works += 1;
            whole.length = whole.length.checked_add(more.length)?;
        }
        Some(whole)
    }

    pub(crate) fn get(&self, id: WorkId) -> Option<&Work<L>> {
        self.queue
            .get(usize::try_from(id.0.checked_sub(self.first)?).ok()?)
    }

    /// The memory of the request appended last.
    #[inline]
    pub(crate) fn last_local(&mut self) -> Option<&mut L> {
        self.queue.back_mut().map(|work| &mut work.local)
    }

    /// Ends a request, if it has not ended yet, and drops unsignalled requests that succeeded from
    /// the front.
    pub(crate) fn finish(&mut self, id: WorkId, result: Result<(), WorkFault>) {
        self.mark(id, result);
        self.reap();
    }

    /// Ends a request, if it has not ended yet. [`Self::reap`] has to follow.
    pub(crate) fn mark(&mut self, id: WorkId, result: Result<(), WorkFault>) {
        let index =
            id.0.checked_sub(self.first)
                .and_then(|index| usize::try_from(index).ok());
        if let Some(work) = index.and_then(|index| self.queue.get_mut(index))
            && work.result.is_none()
        {
            work.result = Some(result);
            if result.is_ok() {
                let counted = u64::from(work.operation.is_counted());
                self.tallies[work.operation.kind()].count(counted, work.length);
            }
        }
    }

    /// Drops unsignalled requests that succeeded from the front, in place: moving them out costs
    /// more than everything else here.
    pub(crate) fn reap(&mut self) {
        let over = self
            .queue
            .iter()
            .take_while(|work| work.result == Some(Ok(())) && !work.signalled)
            .count();
        if over > 0 {
            self.queue.drain(..over);
            self.first += over as u64;
            self.cursor = self.cursor.max(self.first);
        }
    }

    fn pop(&mut self) -> Option<Work<L>> {
        let work = self.queue.pop_front()?;
        self.first += 1;
        self.cursor = self.cursor.max(self.first);
        Some(work)
    }

    /// Whether [`Self::take_completion`] has something.
    pub(crate) fn has_completion(&self) -> bool {
        self.queue.front().is_some_and(|work| work.result.is_some())
    }

    /// The oldest request, if it has ended and is to be reported.
    pub(crate) fn take_completion(&mut self) -> Option<Completion<L>> {
        let result = self.queue.front()?.result?;
        let Work { token, local, .. } = self.pop()?;
        self.reap();
        Some(Completion {
            token,
            result,
            local,
        })
    }

    /// Ends all that has not ended.
    pub(crate) fn flush(&mut self) {
        for work in &mut self.queue {
            work.result.get_or_insert(Err(WorkFault::Flushed));
        }
        self.reap();
    }
}
