//! The operations of an engine: their progress, and the futures that wait for them.

use std::collections::VecDeque;
use std::io;
use std::task::Waker;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::machine::{Machine, Who};
use crate::ClientKey;
use crate::posix::client_waiters::ClientWaiters;
use crate::posix::hold::Hold;
use crate::posix::identity::Identity;
use crate::posix::sys::work::{HeldResources, Work, WorkEntry};

/// How often an operation is begun again that the kernel had no means for.
const ATTEMPTS: u8 = 100;

/// How long the end of an engine waits for what cannot be called back.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// No block of a device is smaller.
const BLOCK: usize = 512;

/// All operations of an engine. Each has a place as long as the kernel or a future needs it.
pub struct Operations {
    places: Vec<OperationSlot>,
    free: Vec<u32>,
    /// Those who wait for a place.
    pub waiters: ClientWaiters<(), u32>,
    pub machine: Machine,
    pub running: usize,
    /// What is to be told and let go once nobody uses this: all of that is others' code.
    pub endings: VecDeque<Ending>,
    /// Who is to be woken after that.
    pub wakers: VecDeque<Waker>,
}

/// What an operation is asked for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub work: Work,
    /// Where in the file.
    pub offset: u64,
    /// On whose behalf; None for the process itself.
    pub identity: Option<&'a Identity>,
    /// Whose turns it takes.
    pub client: ClientKey,
}

/// What is left of an operation.
pub struct Ending {
    hold: Option<Hold>,
    /// None if it never came to the kernel.
    outcome: Option<io::Result<usize>>,
    _held: HeldResources,
}

impl Ending {
    /// Tells who watches, and lets go.
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
    offset: u64,
    /// Bytes that are through.
    done: usize,
    /// Bytes that the kernel is at.
    asked: usize,
    /// Bytes in all.
    length: usize,
    attempts: u8,
    waker: Option<Waker>,
    /// Nobody waits for it any more.
    detached: bool,
    hold: Option<Hold>,
}

/// What comes of one answer of the kernel's.
enum Verdict {
    Ended(io::Result<usize>),
    /// Not over: so many bytes more are through.
    Onward(usize),
}

impl Operations {
    pub fn new(machine: Machine, places: u32) -> Self {
        Self {
            places: (0..places).map(|_| OperationSlot::default()).collect(),
            free: (0..places).rev().collect(),
            waiters: ClientWaiters::default(),
            machine,
            running: 0,
            endings: VecDeque::with_capacity(places as usize),
            wakers: VecDeque::with_capacity(places as usize),
        }
    }

    /// A place, unless all are taken or promised.
    pub fn free_place(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// A place is not needed any more: the next who waits gets it.
    pub fn vacate(&mut self, place: u32) {
        match self.waiters.serve(place) {
            Some(waker) => self.wakers.push_back(waker),
            None => self.free.push(place),
        }
    }

    /// Begins an operation in a place. Returns the place's generation.
    ///
    /// # Errors
    /// The identity is refused; the place is vacated then.
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
            offset: request.offset,
            done: 0,
            asked: 0,
            length: held.slice.as_ref().map_or(0, millrace_mempool::Slice::len),
            attempts: 0,
            waker: None,
            detached: false,
            hold,
        };
        running.start(&mut self.machine, place, held);
        let place = &mut self.places[place as usize];
        place.state = OperationState::Running(running);
        self.running += 1;
        Ok(place.generation)
    }

    /// The outcome of an operation, and its place is vacated; until then `waker` is who to wake.
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

    /// Nobody waits for an operation any more. It goes on by itself.
    pub fn detach(&mut self, place: u32, generation: u32) {
        let mine = &mut self.places[place as usize];
        if mine.generation != generation {
            return;
        }
        mine.generation = mine.generation.wrapping_add(1);
        if let OperationState::Running(running) = &mut mine.state {
            running.detached = true;
            // It is woken in vain, which lets go of it.
            self.wakers.extend(running.waker.take());
        } else {
            mine.state = OperationState::Free;
            self.vacate(place);
        }
    }

    /// Calls back what is under way, and waits for what cannot be called back, for a bounded time.
    pub fn wind_up(&mut self) {
        if self.running == 0 {
            return;
        }
        for place in &mut self.places {
            if let OperationState::Running(running) = &mut place.state {
                running.detached = true;
                self.wakers.extend(running.waker.take());
            }
        }
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        self.machine.call_back();
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
                    "a device does not end what it has begun; its memory is not used any more"
                );
                return;
            }
            self.machine.wait(left);
        }
    }

    /// Takes what has completed and begins anew what is not over. Returns how much that was.
    pub fn reap(&mut self) -> usize {
        let mut count = 0;
        while let Some((index, outcome, held)) = self.machine.take() {
            count += 1;
            let place = u32::try_from(index).expect("bounded");
            let OperationState::Running(running) = &mut self.places[index].state else {
                unreachable!("completions are for what is under way");
            };
            match running.judge(outcome, &held) {
                Verdict::Onward(bytes) => {
                    running.done += bytes;
                    running.start(&mut self.machine, place, held);
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
                // The kernel is not done with it, and never will be as far as we can tell.
                std::mem::forget(running.hold.take());
            }
        }
    }
}

/// The same again. Errors here are the kernel's or have a kind only.
fn copy(outcome: &io::Result<usize>) -> io::Result<usize> {
    match outcome {
        Ok(bytes) => Ok(*bytes),
        Err(error) => Err(error
            .raw_os_error()
            .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)),
    }
}

impl Running {
    fn start(&mut self, machine: &mut Machine, place: u32, held: HeldResources) {
        let entry = WorkEntry {
            work: self.work,
            offset: self.offset + self.done as u64,
            from: self.done,
            length: self.length - self.done,
        };
        self.asked = machine.start(place as usize, held, &entry, &self.who, self.client);
    }

    /// What an answer of the kernel's means: so many bytes, or an error as a negative number.
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
            // The kernel was asked for less than there is, and has done all of that.
            _ if bytes == self.asked => false,
            Work::Read { cached: true } => true,
            // Going on from within a block could not be direct; and only the file's end is there.
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
            // Where memory cannot be asked alone, it is taken to hold nothing.
            libc::EAGAIN | libc::EOPNOTSUPP if cached && self.done == 0 => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            libc::EAGAIN | libc::EOPNOTSUPP if cached => Ok(self.done),
            libc::EINTR | libc::EAGAIN if self.attempts < ATTEMPTS => {
                self.attempts += 1;
                return Verdict::Onward(0);
            }
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG if writing && self.done > 0 => Ok(self.done),
            // The file ended at a block that is smaller than what direct transfers take.
            libc::EINVAL if reading && self.done > 0 && is_direct(held) => Ok(self.done),
            _ => Err(io::Error::from_raw_os_error(error)),
        };
        Verdict::Ended(outcome)
    }
}

/// Whether a file passes the page cache by.
fn is_direct(held: &HeldResources) -> bool {
    rustix::fs::fcntl_getfl(&held.file).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
}
