//! The send queue of a connection from its poster's view: posted work, the part passed to the
//! device, and completed work.
//!
//! Work requests wait here until the connection is established and the device has space for them,
//! and stay until they are complete, as they own their memory. For the device they are *device
//! requests*, numbered from 0 on: a Read into more ranges than the device supports becomes several
//! of them. Reads split by [`crate::fabric::chain`] never do: it observes the number of ranges,
//! since it must know where each Read of the device ends. Few are signalled, so a completion also
//! covers those before it, except RDMA Reads: some devices (siw) complete a Send before an earlier
//! Read has received its bytes. So the last of consecutive Reads is always signalled.

use std::collections::VecDeque;

use millrace_mempool::Slice;

use crate::fabric::{Operation, Slices, WorkError, WorkRequest};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Posted by the application.
    Request {
        token: u64,
        operation: Operation,
        signalled: bool,
    },
    /// Opens an exposure's window, with this number in the exposures.
    Bind(u32),
    /// Ends the key of that exposure.
    Invalidate(u32),
}

/// Limits of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendLimits {
    /// The most work requests of the application posted and not complete.
    pub(super) depth: usize,
    /// The most device requests in the device's queue.
    pub(super) room: u32,
    /// The most local ranges of a device request that sends or writes.
    pub(super) ranges: usize,
    /// The most local ranges of a device request that reads.
    pub(super) read_ranges: usize,
    /// Whether all that sends or writes is signalled.
    pub(super) signals_sends: bool,
}

/// A device request being passed to the device.
#[derive(Debug)]
pub(super) struct Handed<'a> {
    /// Its number.
    pub(super) number: u64,
    /// The work that it is part of.
    pub(super) work: &'a Work,
    /// Bytes of the work request in earlier device requests.
    pub(super) skipped: u64,
    /// Its memory. Slices of length zero are to be skipped.
    pub(super) local: &'a [Slice],
    /// Whether its success is reported.
    pub(super) signalled: bool,
}

/// Completed work.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) work: Work,
    pub(super) local: Slices,
    pub(super) result: Result<(), WorkError>,
}

struct SendQueueEntry {
    work: Work,
    local: Slices,
    /// The number after its last device request, once all of it is passed.
    end: u64,
    /// Its own failure, if any.
    error: Option<WorkError>,
}

impl SendQueueEntry {
    /// Of an entry not completely passed to the device.
    const OPEN: u64 = u64::MAX;
}

/// One device request, determined but not yet passed.
#[derive(Clone, Copy)]
struct Step {
    number: u64,
    entry: usize,
    first: usize,
    end: usize,
    skipped: u64,
    is_read: bool,
    signalled: bool,
}

/// The initial capacity for work requests; it grows on demand, and never shrinks.
const ORDINARY_DEPTH: usize = 64;

/// Why no device request can be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// There is none, or the connection is not established.
    Nothing,
    /// The device's queue has no space.
    Room,
    /// The limit of open Reads is reached.
    Reads,
}

pub(super) struct SendQueue {
    limits: SendLimits,
    entries: VecDeque<SendQueueEntry>,
    /// Entries of the application.
    requests: usize,
    /// Entries, from the front, completely passed to the device.
    handed: usize,
    /// Of the entry after those: slices passed to the device, and their bytes.
    slice: usize,
    skipped: u64,
    /// The number of the next device request.
    next: u64,
    /// All device requests before this one, except open Reads, are complete.
    retired: u64,
    /// Reads held by the device, the oldest first.
    reads: VecDeque<u64>,
    /// Device requests since the last signalled one.
    unsignalled: u32,
    /// Reads at once permitted by the connection's setup; absent before.
    depth: Option<u16>,
    /// Reads at once permitted by the application.
    limit: Option<u16>,
    /// The first device request that failed; none after it succeeds.
    failed: Option<u64>,
    /// The device has no more requests, and gets none.
    is_over: bool,
}

impl SendQueue {
    pub(super) fn new(limits: SendLimits) -> Self {
        Self {
            limits,
            entries: VecDeque::new(),
            requests: 0,
            handed: 0,
            slice: 0,
            skipped: 0,
            next: 0,
            retired: 0,
            reads: VecDeque::new(),
            unsignalled: 0,
            depth: None,
            limit: None,
            failed: None,
            is_over: false,
        }
    }

    /// The device is known: its limits apply, except for the depth. Nothing may be passed before.
    pub(super) fn set_device(&mut self, device: SendLimits) {
        debug_assert_eq!(self.next, 0, "a connection has one device");
        self.limits = SendLimits {
            depth: self.limits.depth,
            ranges: device.ranges.max(1),
            read_ranges: device.read_ranges.max(1),
            ..device
        };
    }

    /// The connection is established, with this limit of open Reads.
    pub(super) fn open(&mut self, depth: u16) {
        self.depth = Some(depth);
        // Sufficient for most connections, so that few of them ever allocate while they work.
        let ordinary = self.limits.depth.min(ORDINARY_DEPTH);
        self.entries.reserve(ordinary);
        self.reads.reserve(ordinary);
    }

    /// Sets the application's limit of open Reads.
    pub(super) fn limit_reads(&mut self, limit: u16) {
        self.limit = Some(limit);
    }

    /// The local ranges that one device request can read into.
    pub(super) fn read_ranges(&self) -> usize {
        self.limits.read_ranges
    }

    /// Free entries for work requests.
    pub(super) fn room(&self) -> usize {
        self.limits.depth - self.requests
    }

    /// Adds a work request, for which there must be [space](Self::room).
    pub(super) fn post(&mut self, request: WorkRequest) {
        debug_assert!(self.room() > 0);
        self.requests += 1;
        let WorkRequest {
            token,
            operation,
            local,
            signalled,
        } = request;
        self.push(
            Work::Request {
                token,
                operation,
                signalled,
            },
            local,
        );
    }

    /// Adds work of the provider. Its number is limited by the exposures.
    pub(super) fn post_own(&mut self, work: Work) {
        self.push(work, Slices::new());
    }

    fn push(&mut self, work: Work, local: Slices) {
        self.entries.push_back(SendQueueEntry {
            work,
            local,
            end: SendQueueEntry::OPEN,
            error: None,
        });
    }

    /// Whether work waits to be passed.
    pub(super) fn has_waiting(&self) -> bool {
        self.handed < self.entries.len()
    }

    /// Whether all posted work is complete.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a device request failed or was not accepted.
    pub(super) fn is_broken(&self) -> bool {
        self.failed.is_some()
    }

    /// The number of the next device request.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Device requests held by the device.
    pub(super) fn outstanding(&self) -> u64 {
        self.next - self.done_before()
    }

    /// All device requests before this one are complete.
    pub(super) fn done_before(&self) -> u64 {
        let reads = self.reads.front().copied().unwrap_or(u64::MAX);
        reads.min(self.retired)
    }

    /// Passes what may be sent now, at most `most` device requests: each is passed to `hand`, in
    /// order, which returns whether it was accepted; if not, it and all after it stay for ever.
    /// Returns their number, and why it was not more.
    pub(super) fn hand_over(
        &mut self,
        most: usize,
        mut hand: impl FnMut(Handed<'_>) -> bool,
    ) -> (usize, Hold) {
        let mut count = 0;
        // One is delayed, until its successor is known.
        let mut last: Option<Step> = None;
        let hold = loop {
            if count + usize::from(last.is_some()) == most {
                break Hold::Room;
            }
            let step = match self.step() {
                Ok(step) => step,
                Err(hold) => break hold,
            };
            if let Some(mut before) = last.replace(step) {
                before.signalled |= before.is_read && !step.is_read;
                if !self.hand(before, &mut hand) {
                    return (count, Hold::Nothing);
                }
                count += 1;
            }
        };
        if let Some(mut last) = last {
            last.signalled = true;
            if !self.hand(last, &mut hand) {
                return (count, Hold::Nothing);
            }
            count += 1;
            self.unsignalled = 0;
        }
        (count, hold)
    }

    fn hand(&mut self, step: Step, hand: &mut impl FnMut(Handed<'_>) -> bool) -> bool {
        let entry = &self.entries[step.entry];
        let taken = hand(Handed {
            number: step.number,
            work: &entry.work,
            skipped: step.skipped,
            local: &entry.local[step.first..step.end],
            signalled: step.signalled,
        });
        if !taken {
            self.not_handed(step.number);
        }
        taken
    }

    /// The device did not accept the device requests from `number` on. The connection must end.
    pub(super) fn not_handed(&mut self, number: u64) {
        self.next = self.next.min(number);
        self.retired = self.retired.min(number);
        while self.reads.back().is_some_and(|&read| read >= number) {
            self.reads.pop_back();
        }
        self.failed = Some(self.failed.map_or(number, |failed| failed.min(number)));
    }

    /// Determines the next device request.
    fn step(&mut self) -> Result<Step, Hold> {
        let (Some(depth), None, false) = (self.depth, self.failed, self.is_over) else {
            return Err(Hold::Nothing);
        };
        let limit = self.limit.unwrap_or(u16::MAX);
        let allowed = usize::from(depth.min(limit));
        loop {
            let Some(entry) = self.entries.get_mut(self.handed) else {
                return Err(Hold::Nothing);
            };
            let (is_read, ranges) = match entry.work {
                Work::Request {
                    operation: Operation::Read(_),
                    ..
                } => (true, self.limits.read_ranges),
                _ => (false, self.limits.ranges),
            };
            let refused = if is_read && allowed == 0 {
                Some(WorkError::NoReads)
            } else if is_continuation(&entry.work)
                || (!can_be_cut(&entry.work) && pieces(&entry.local) > ranges)
            {
                Some(WorkError::LocalLength)
            } else {
                None
            };
            if refused.is_some() {
                // The part passed to the device completes first.
                entry.error = refused;
                entry.end = self.next;
                self.next_entry();
                continue;
            }
            // The device itself enforces the depth from the setup.
            let holds = limit < depth;
            if is_read && holds && self.reads.len() >= allowed {
                return Err(Hold::Reads);
            }
            if self.outstanding() >= u64::from(self.limits.room) {
                return Err(Hold::Room);
            }
            return Ok(self.take_step(is_read, is_read && holds, ranges));
        }
    }

    fn take_step(&mut self, is_read: bool, told: bool, ranges: usize) -> Step {
        let entry = &mut self.entries[self.handed];
        let number = self.next;
        let first = self.slice;
        let (mut end, mut taken, mut bytes) = (first, 0, 0);
        while let Some(slice) = entry.local.get(end)
            && (taken < ranges || slice.is_empty())
        {
            taken += usize::from(!slice.is_empty());
            bytes += slice.len() as u64;
            end += 1;
        }
        self.next += 1;
        if is_read {
            self.reads.push_back(number);
        }
        let is_last = end == entry.local.len();
        let asked = matches!(
            entry.work,
            Work::Request {
                signalled: true,
                ..
            } | Work::Invalidate(_)
        );
        self.unsignalled += 1;
        let signalled = told
            || (self.limits.signals_sends && !is_read)
            || (asked && is_last)
            || self.unsignalled >= (self.limits.room / 4).max(1);
        if signalled {
            self.unsignalled = 0;
        }
        let step = Step {
            number,
            entry: self.handed,
            first,
            end,
            skipped: self.skipped,
            is_read,
            signalled,
        };
        if is_last {
            entry.end = self.next;
            self.next_entry();
        } else {
            self.slice = end;
            self.skipped += bytes;
        }
        step
    }

    fn next_entry(&mut self) {
        self.handed += 1;
        self.slice = 0;
        self.skipped = 0;
    }

    /// The device has completed a device request: the newest one with this `number`, of which only
    /// the bits in `mask` are given. False if there is none.
    pub(super) fn complete(
        &mut self,
        number: u64,
        mask: u64,
        result: Result<(), WorkError>,
    ) -> bool {
        let done = self.done_before();
        let ahead = number.wrapping_sub(done) & mask;
        if ahead >= self.next - done {
            return false;
        }
        let number = done + ahead;
        let is_read = self.reads.binary_search(&number);
        if let Ok(position) = is_read {
            self.reads.drain(..=position);
        }
        self.retired = self.retired.max(number + 1);
        if let Err(error) = result {
            let at = self.entries.partition_point(|entry| entry.end <= number);
            if let Some(entry) = self.entries.get_mut(at) {
                entry.error.get_or_insert(error);
            }
            self.failed = Some(self.failed.map_or(number, |failed| failed.min(number)));
        }
        true
    }

    /// The device has released everything: the rest is flushed.
    pub(super) fn end(&mut self) {
        if self.is_over {
            return;
        }
        let done = self.done_before();
        self.failed = Some(self.failed.map_or(done, |failed| failed.min(done)));
        self.next = done;
        self.retired = done;
        self.reads.clear();
        self.is_over = true;
    }

    /// Whether [`SendQueue::pop`] returns something.
    pub(super) fn has_done(&self) -> bool {
        let done = self.done_before();
        self.entries
            .front()
            .is_some_and(|front| self.is_over || front.end <= done)
    }

    /// Removes the oldest work, if it is complete.
    pub(super) fn pop(&mut self) -> Option<Done> {
        if !self.has_done() {
            return None;
        }
        let SendQueueEntry {
            work,
            local,
            end,
            error,
        } = self.entries.pop_front()?;
        self.handed = self.handed.saturating_sub(1);
        self.requests -= usize::from(matches!(work, Work::Request { .. }));
        let result = match error {
            Some(error) => Err(error),
            None if self.failed.is_some_and(|failed| end > failed) => Err(WorkError::Flushed),
            None => Ok(()),
        };
        Some(Done {
            work,
            local,
            result,
        })
    }
}

/// Whether it is a continuation, which cannot be a device request.
fn is_continuation(work: &Work) -> bool {
    matches!(
        work,
        Work::Request {
            operation: Operation::ReadMore,
            ..
        }
    )
}

/// Whether it can be split into several device requests.
fn can_be_cut(work: &Work) -> bool {
    matches!(
        work,
        Work::Request {
            operation: Operation::Read(_) | Operation::Write(_),
            ..
        }
    )
}

/// The number of non-empty slices.
fn pieces(local: &[Slice]) -> usize {
    local.iter().filter(|slice| !slice.is_empty()).count()
}

#[cfg(test)]
mod tests;
