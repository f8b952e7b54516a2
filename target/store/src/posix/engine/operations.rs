//! The operations of an engine: their progress, and the futures that wait for them.

use std::collections::VecDeque;
use std::io;
use std::task::Waker;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::machine::{Executor, Machine, Who};
use crate::ClientKey;
use crate::posix::client_waiters::ClientWaiters;
use crate::posix::hold::Hold;
use crate::posix::identity::Identity;
use crate::posix::sys::work::{HeldResources, Work, WorkEntry};

/// How often an operation is restarted that the kernel lacked resources for.
const ATTEMPTS: u8 = 100;

/// How long the shutdown of an engine waits for operations that cannot be cancelled.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a write may take before it is cancelled on the ring. A thread makes it if the kernel has
/// not begun it. Of the writes that wait for devices, the kernel executes one at a time for all
/// files whose inodes have the same hash, of 64 (`io_wq_hash_work`), so that one that hangs holds up
/// writes to other devices.
const OVERDUE: Duration = Duration::from_millis(250);

/// The smallest block of any device.
const BLOCK: usize = 512;

/// All operations of an engine. Each has a slot while the kernel or a future needs it.
pub struct Operations {
    places: Vec<OperationSlot>,
    free: Vec<u32>,
    /// The waiters for a slot.
    pub waiters: ClientWaiters<(), u32>,
    pub machine: Machine,
    pub running: usize,
    writes: RingWrites,
    /// Notifications to deliver and resources to drop once the operations are no longer borrowed:
    /// these may call back.
    pub endings: VecDeque<Ending>,
    /// Wakers to call after that.
    pub wakers: VecDeque<Waker>,
}

/// The writes that the ring has.
struct RingWrites {
    /// The time of this turn.
    now: Instant,
    count: usize,
    /// Of these, the ones that were cancelled and have not ended. While there are any, other writes are made by
    /// threads.
    overdue: usize,
    /// When they were last looked through for overdue ones, or the first of them began.
    checked: Instant,
}

impl RingWrites {
    fn begin(&mut self) {
        if self.count == 0 {
            self.checked = self.now;
        }
        self.count += 1;
    }

    fn end(&mut self, is_overdue: bool) {
        self.count -= 1;
        self.overdue -= usize::from(is_overdue);
    }
}

/// The parameters of an operation.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub work: Work,
    /// The offset in the file.
    pub offset: u64,
    /// The identity; None for the process itself.
    pub identity: Option<&'a Identity>,
    /// The client in whose turn it waits.
    pub client: ClientKey,
}

/// The remains of a completed operation.
pub struct Ending {
    hold: Option<Hold>,
    /// None if it was never submitted to the kernel.
    outcome: Option<io::Result<usize>>,
    _held: HeldResources,
}

impl Ending {
    /// Notifies the observer, and drops the resources.
    pub fn tell(self) {
        if let (Some(hold), Some(outcome)) = (self.hold, &self.outcome) {
            hold.end(outcome);
        }
    }
}

#[derive(Default)]
struct OperationSlot {
    state: OperationState,
    generation: u32,
}

#[derive(Default)]
enum OperationState {
    #[default]
    Free,
    Running(Running),
    Ended(io::Result<usize>),
}

struct Running {
    work: Work,
    who: Who,
    client: ClientKey,
    executor: Executor,
    begun: Instant,
    /// Whether it was cancelled on the ring, so that a thread makes what is left of it.
    is_cancelled: bool,
    offset: u64,
    /// Bytes completed.
    done: usize,
    /// Bytes requested of the kernel.
    asked: usize,
    /// Bytes in total.
    length: usize,
    attempts: u8,
    waker: Option<Waker>,
    /// Its future was dropped.
    detached: bool,
    hold: Option<Hold>,
}

/// The meaning of one completion of the kernel.
enum Verdict {
    Ended(io::Result<usize>),
    /// Not complete: this many more bytes are done.
    Onward(usize),
}

impl Operations {
    pub fn new(machine: Machine, places: u32) -> Self {
        let now = Instant::now();
        Self {
            places: (0..places).map(|_| OperationSlot::default()).collect(),
            free: (0..places).rev().collect(),
            waiters: ClientWaiters::default(),
            machine,
            running: 0,
            writes: RingWrites {
                now,
                count: 0,
                overdue: 0,
                checked: now,
            },
            endings: VecDeque::with_capacity(places as usize),
            wakers: VecDeque::with_capacity(places as usize),
        }
    }

    /// A slot, unless all are taken or promised.
    pub fn free_place(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Releases a slot: the next waiter gets it.
    pub fn vacate(&mut self, place: u32) {
        match self.waiters.serve(place) {
            Some(waker) => self.wakers.push_back(waker),
            None => self.free.push(place),
        }
    }

    /// Begins an operation in a slot. Returns the slot's generation.
    ///
    /// # Errors
    /// The identity is refused; the slot is released.
    pub fn begin(
        &mut self,
        place: u32,
        held: HeldResources,
        request: Request<'_>,
        hold: Option<Hold>,
    ) -> io::Result<u32> {
        let admitted = request
            .identity
            .map_or(Ok(Who::Own), |identity| self.machine.admit(identity));
        let who = match admitted {
            Ok(who) => who,
            Err(error) => {
                self.vacate(place);
                self.endings.push_back(Ending {
                    hold,
                    outcome: None,
                    _held: held,
                });
                return Err(error);
            }
        };
        let mut running = Running {
            work: request.work,
            who,
            client: request.client,
            executor: Executor::Threads,
            begun: self.writes.now,
            is_cancelled: false,
            offset: request.offset,
            done: 0,
            asked: 0,
            length: held.slice.as_ref().map_or(0, millrace_mempool::Slice::len),
            attempts: 0,
            waker: None,
            detached: false,
            hold,
        };
        running.start(&mut self.machine, &mut self.writes, place, held);
        let place = &mut self.places[place as usize];
        place.state = OperationState::Running(running);
        self.running += 1;
        Ok(place.generation)
    }

    /// The outcome of an operation, which releases its slot; until then `waker` is registered.
    pub fn poll(
        &mut self,
        place: u32,
        generation: u32,
        waker: &Waker,
    ) -> Option<io::Result<usize>> {
        let mine = &mut self.places[place as usize];
        assert_eq!(mine.generation, generation, "an operation's own place");
        if let OperationState::Running(running) = &mut mine.state {
            match &mut running.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
            return None;
        }
        mine.generation = mine.generation.wrapping_add(1);
        let OperationState::Ended(outcome) = std::mem::take(&mut mine.state) else {
            unreachable!("a place that is waited for is not free");
        };
        self.vacate(place);
        Some(outcome)
    }

    /// Detaches an operation from its future. It continues by itself.
    pub fn detach(&mut self, place: u32, generation: u32) {
        let mine = &mut self.places[place as usize];
        if mine.generation != generation {
            return;
        }
        mine.generation = mine.generation.wrapping_add(1);
        if let OperationState::Running(running) = &mut mine.state {
            running.detached = true;
            // Waking it without need drops it.
            self.wakers.extend(running.waker.take());
        } else {
            mine.state = OperationState::Free;
            self.vacate(place);
        }
    }

    /// Cancels operations in progress, and waits for those that cannot be cancelled, with a
    /// timeout.
    pub fn wind_up(&mut self) {
        if self.running == 0 {
            return;
        }
        for place in &mut self.places {
            if let OperationState::Running(running) = &mut place.state {
                running.detached = true;
                running.is_cancelled = false;
                self.wakers.extend(running.waker.take());
            }
        }
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        self.machine.cancel_all();
        loop {
            self.machine.turn();
            self.reap();
            let left = deadline.saturating_duration_since(Instant::now());
            if self.running == 0 {
                return;
            }
            if left.is_zero() {
                tracing::error!(
                    operations = self.running,
                    "a device does not complete operations; their memory is not reused"
                );
                return;
            }
            self.machine.wait(left);
        }
    }

    /// Begins a turn: cancels overdue writes.
    pub fn begin_turn(&mut self, now: Instant) {
        self.writes.now = now;
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        self.writes.checked = now;
        for (index, place) in self.places.iter_mut().enumerate() {
            let OperationState::Running(running) = &mut place.state else {
                continue;
            };
            let is_due = now.saturating_duration_since(running.begun) >= OVERDUE;
            if running.is_ring_write() && is_due && !running.is_cancelled {
                running.is_cancelled = true;
                self.writes.overdue += 1;
                self.machine.cancel(index);
            }
        }
    }

    /// When the next turn is due even if nothing completes.
    pub fn next_deadline(&self) -> Option<Instant> {
        (self.writes.count > self.writes.overdue).then(|| self.writes.checked + OVERDUE)
    }

    /// Collects completions and restarts incomplete operations. Returns the number of completions.
    pub fn reap(&mut self) -> usize {
        let mut count = 0;
        while let Some((index, outcome, held)) = self.machine.take() {
            count += 1;
            let place = u32::try_from(index).expect("bounded");
            let OperationState::Running(running) = &mut self.places[index].state else {
                unreachable!("completions are for what is under way");
            };
            if running.is_ring_write() {
                self.writes.end(running.is_cancelled);
            }
            match running.judge(outcome, &held) {
                Verdict::Onward(bytes) => {
                    running.done += bytes;
                    running.start(&mut self.machine, &mut self.writes, place, held);
                }
                Verdict::Ended(outcome) => {
                    self.machine.dismiss(&running.who);
                    let detached = running.detached;
                    self.running -= 1;
                    self.wakers.extend(running.waker.take());
                    self.endings.push_back(Ending {
                        hold: running.hold.take(),
                        outcome: Some(copy(&outcome)),
                        _held: held,
                    });
                    if detached {
                        self.places[index].state = OperationState::Free;
                        self.vacate(place);
                    } else {
                        self.places[index].state = OperationState::Ended(outcome);
                    }
                }
            }
        }
        count
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        for place in &mut self.places {
            if let OperationState::Running(running) = &mut place.state {
                // The kernel has not completed it, and possibly never will.
                std::mem::forget(running.hold.take());
            }
        }
    }
}

/// A copy. Errors here are the kernel's or have a kind only.
fn copy(outcome: &io::Result<usize>) -> io::Result<usize> {
    match outcome {
        Ok(bytes) => Ok(*bytes),
        Err(error) => Err(error
            .raw_os_error()
            .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)),
    }
}

impl Running {
    fn is_ring_write(&self) -> bool {
        self.executor == Executor::Ring && matches!(self.work, Work::Write(_))
    }

    fn start(
        &mut self,
        machine: &mut Machine,
        writes: &mut RingWrites,
        place: u32,
        held: HeldResources,
    ) {
        let entry = WorkEntry {
            work: self.work,
            offset: self.offset + self.done as u64,
            from: self.done,
            length: self.length - self.done,
        };
        let evades = matches!(self.work, Work::Write(_)) && writes.overdue > 0;
        self.executor = if machine.has_ring_for(&self.who) && !evades && !self.is_cancelled {
            Executor::Ring
        } else {
            Executor::Threads
        };
        self.begun = writes.now;
        if self.is_ring_write() {
            writes.begin();
        }
        let (executor, place) = (self.executor, place as usize);
        self.asked = machine.start(executor, place, held, &entry, &self.who, self.client);
    }

    /// The meaning of a completion: a number of bytes, or a negative error number.
    fn judge(&mut self, outcome: i32, held: &HeldResources) -> Verdict {
        match usize::try_from(outcome) {
            Ok(bytes) => self.judge_bytes(bytes, held),
            Err(_) => self.judge_error(outcome.wrapping_neg(), held),
        }
    }

    fn judge_bytes(&self, bytes: usize, held: &HeldResources) -> Verdict {
        let through = self.done + bytes;
        let over = match self.work {
            Work::Sync { .. } => true,
            _ if through >= self.length || bytes == 0 => true,
            // The kernel was asked for less than the whole, and has done all of that.
            _ if bytes == self.asked => false,
            Work::Read { cached: true } => true,
            // Continuing within a block could not be direct; and this happens only at the end of
            // the file.
            Work::Read { cached: false } => !bytes.is_multiple_of(BLOCK) && is_direct(held),
            Work::Write(_) => false,
        };
        if over {
            Verdict::Ended(Ok(through))
        } else {
            Verdict::Onward(bytes)
        }
    }

    fn judge_error(&mut self, error: i32, held: &HeldResources) -> Verdict {
        let cached = self.work == Work::Read { cached: true };
        let reading = matches!(self.work, Work::Read { .. });
        let writing = matches!(self.work, Work::Write(_));
        let outcome = match error {
            // Where the page cache cannot be queried alone, it is taken to be empty.
            libc::EAGAIN | libc::EOPNOTSUPP if cached && self.done == 0 => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            libc::EAGAIN | libc::EOPNOTSUPP if cached => Ok(self.done),
            libc::EINTR | libc::EAGAIN if self.attempts < ATTEMPTS => {
                self.attempts += 1;
                return Verdict::Onward(0);
            }
            libc::ECANCELED if self.is_cancelled => return Verdict::Onward(0),
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG if writing && self.done > 0 => Ok(self.done),
            // The file ended at a block smaller than the alignment of direct transfers.
            libc::EINVAL if reading && self.done > 0 && is_direct(held) => Ok(self.done),
            _ => Err(io::Error::from_raw_os_error(error)),
        };
        Verdict::Ended(outcome)
    }
}

/// Whether a file is open for direct I/O.
fn is_direct(held: &HeldResources) -> bool {
    rustix::fs::fcntl_getfl(&held.file).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}
