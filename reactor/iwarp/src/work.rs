//! The send queue: work requests from posting to completion, in order.

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

    /// Whether it fills local memory by RDMA Reads.
    #[inline]
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Read { .. } | Self::ReadMore)
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
    pub(crate) length: u32,
    signalled: bool,
    result: Option<Result<(), WorkFault>>,
    /// Stream position behind its last byte, once it is wholly in segments.
    end: u64,
    pub(crate) local: L,
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

/// Work requests in the order of posting, in a ring: request number `n` is in slot `n & mask`. Slots
/// are filled and emptied in place, as a request is expensive to move.
#[derive(Debug)]
pub(crate) struct WorkQueue<L> {
    /// Made when first used, in order.
    slots: Vec<Work<L>>,
    mask: u64,
    depth: u64,
    /// Number of the oldest request not yet reported.
    first: u64,
    /// Number of the oldest one whose bytes may not have been accepted yet.
    sent: u64,
    /// Number of the next one to put into segments.
    cursor: u64,
    /// Number of the next one to be posted.
    end: u64,
    tallies: [Tally; KINDS],
}

impl<L: Default> WorkQueue<L> {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            slots: Vec::new(),
            mask: depth.next_power_of_two() as u64 - 1,
            depth: depth as u64,
            first: 0,
            sent: 0,
            cursor: 0,
            end: 0,
            tallies: [Tally::default(); KINDS],
        }
    }

    /// Takes the memory that the queue needs when it is full.
    pub(crate) fn reserve(&mut self) {
        let slots = usize::try_from(self.mask + 1).unwrap_or(usize::MAX);
        self.slots.reserve_exact(slots - self.slots.len());
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// What became of Sends, Writes and Reads.
    pub(crate) fn tallies(&self) -> [Tally; KINDS] {
        self.tallies
    }

    #[inline]
    pub(crate) fn room(&self) -> usize {
        usize::try_from(self.depth - (self.end - self.first)).unwrap_or(0)
    }

    /// Whether every request has ended, reported or not.
    pub(crate) fn is_settled(&self) -> bool {
        (self.first..self.end).all(|number| self.slot(number).result.is_some())
    }

    #[inline]
    fn slot(&self, number: u64) -> &Work<L> {
        &self.slots[(number & self.mask) as usize]
    }

    #[inline]
    fn slot_mut(&mut self, number: u64) -> &mut Work<L> {
        &mut self.slots[(number & self.mask) as usize]
    }

    /// Appends a request without memory, and returns the place for that; the caller has asked for
    /// [`Self::room`]. `length` is `None` where the memory is longer than a message can be.
    #[inline(always)] // It is called in one place, and its arguments are as long as its body.
    pub(crate) fn push(
        &mut self,
        token: u64,
        operation: Operation,
        length: Option<u32>,
        signalled: bool,
    ) -> &mut L {
        debug_assert!(self.room() > 0);
        self.tallies[operation.kind()].posted += u64::from(operation.is_counted());
        let number = self.end;
        self.end += 1;
        if (number & self.mask) as usize == self.slots.len() {
            self.add_slot();
        }
        let work = self.slot_mut(number);
        work.token = token;
        work.operation = operation;
        work.length = length.unwrap_or(0);
        work.signalled = signalled;
        work.result = length.is_none().then_some(Err(WorkFault::Length));
        &mut work.local
    }

    #[cold]
    fn add_slot(&mut self) {
        self.slots.push(Work {
            token: 0,
            operation: Operation::ReadMore,
            length: 0,
            signalled: false,
            result: None,
            end: 0,
            local: L::default(),
        });
    }

    /// The next request to put into segments.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(WorkId, &Work<L>)> {
        while self.cursor < self.end {
            if self.slot(self.cursor).result.is_none() {
                return Some((WorkId(self.cursor), self.slot(self.cursor)));
            }
            self.cursor += 1;
        }
        None
    }

    /// The request that [`Self::next`] gave, and those that continue it, are wholly in segments,
    /// the last of which ends at `end` of the stream.
    #[inline]
    pub(crate) fn step_over(&mut self, works: u32, end: u64) {
        self.slot_mut(self.cursor).end = end;
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

    #[inline]
    pub(crate) fn get(&self, id: WorkId) -> Option<&Work<L>> {
        (self.first..self.end)
            .contains(&id.0)
            .then(|| self.slot(id.0))
    }

    /// The network has accepted the stream up to a position: ends the Sends and Writes whose last
    /// byte is before it.
    pub(crate) fn accepted(&mut self, position: u64) {
        while self.sent < self.cursor {
            let number = self.sent;
            let work = self.slot_mut(number);
            let is_read = matches!(work.operation, Operation::Read { .. } | Operation::ReadMore);
            if !is_read && work.result.is_none() {
                if work.end > position {
                    break;
                }
                work.result = Some(Ok(()));
                let (kind, length) = (work.operation.kind(), work.length);
                self.tallies[kind].complete(length);
            }
            self.sent += 1;
        }
        self.reap();
    }

    /// Ends a request, if it has not ended yet, and drops unsignalled requests that succeeded from
    /// the front.
    pub(crate) fn finish(&mut self, id: WorkId, result: Result<(), WorkFault>) {
        self.mark(id, result);
        self.reap();
    }

    /// Ends a request, if it has not ended yet. [`Self::reap`] has to follow.
    pub(crate) fn mark(&mut self, id: WorkId, result: Result<(), WorkFault>) {
        if self.get(id).is_none_or(|work| work.result.is_some()) {
            return;
        }
        let work = self.slot_mut(id.0);
        work.result = Some(result);
        if result.is_ok() {
            let counted = u64::from(work.operation.is_counted());
            let (kind, length) = (work.operation.kind(), work.length);
            self.tallies[kind].count(counted, length);
        }
    }

    /// Drops unsignalled requests that succeeded from the front.
    pub(crate) fn reap(&mut self) {
        while self.first < self.end {
            let work = self.slot_mut(self.first);
            if work.signalled || work.result != Some(Ok(())) {
                break;
            }
            work.local = L::default();
            self.step_first();
        }
    }

    /// The oldest request is reported or dropped.
    #[inline]
    fn step_first(&mut self) {
        self.first += 1;
        self.sent = self.sent.max(self.first);
        self.cursor = self.cursor.max(self.first);
    }

    /// Whether [`Self::completion`] has something.
    #[inline]
    pub(crate) fn has_completion(&self) -> bool {
        self.first < self.end && self.slot(self.first).result.is_some()
    }

    /// The token and result of the oldest request, if it has ended and is to be reported.
    #[inline]
    pub(crate) fn completion(&self) -> Option<(u64, Result<(), WorkFault>)> {
        if self.first == self.end {
            return None;
        }
        let work = self.slot(self.first);
        Some((work.token, work.result?))
    }

    /// Ends the request that [`Self::completion`] gave, and passes its memory on.
    pub(crate) fn take_completed(&mut self, take: impl FnOnce(&mut L)) {
        let work = self.slot_mut(self.first);
        take(&mut work.local);
        work.local = L::default();
        self.step_first();
        self.reap();
    }

    /// Ends all that has not ended.
    pub(crate) fn flush(&mut self) {
        for number in self.first..self.end {
            let work = self.slot_mut(number);
            work.result.get_or_insert(Err(WorkFault::Flushed));
        }
        self.reap();
    }
}
