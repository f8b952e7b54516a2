//! The loop itself.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::activity::{self, Activity};
use crate::alarm::Alarm;
use crate::counters::CoreCounters;
use crate::sleep;

/// Turns between checks of the mailbox while the worker is busy: a check costs as much as a memory
/// fence, and messages are rare.
const TURNS_PER_MAILBOX_LOOK: u32 = 16;

/// The most messages handled in one turn, so that many of them do not starve the worker.
const MESSAGES_PER_TURN: usize = 64;

/// How a reactor waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollMode {
    /// Never sleep.
    Busy,
    /// Sleep on the worker's descriptors after a time without work.
    Adaptive {
        /// That time. Waking from sleep costs tens of microseconds.
        idle_after: Duration,
    },
}

/// The polling mode of a reactor, which may be changed while it runs. Read only in turns without
/// work.
#[derive(Clone, Debug)]
pub(crate) struct Polling(Arc<AtomicU64>);

impl Polling {
    /// Represents [`PollMode::Busy`]; longer than any wait.
    const BUSY: u64 = u64::MAX;

    pub(crate) fn new(mode: PollMode) -> Self {
        let polling = Self(Arc::default());
        polling.set(mode);
        polling
    }

    fn set(&self, mode: PollMode) {
        let idle_after = match mode {
            PollMode::Busy => Self::BUSY,
            PollMode::Adaptive { idle_after } => nanoseconds(idle_after).min(Self::BUSY - 1),
        };
        self.0.store(idle_after, Ordering::Relaxed);
    }

    /// Whether a reactor may sleep after this idle time.
    fn sleeps_after(&self, idle: Duration) -> bool {
        let idle_after = self.0.load(Ordering::Relaxed);
        idle_after != Self::BUSY && nanoseconds(idle) >= idle_after
    }
}

/// The code that a reactor runs. Created on the reactor's own thread, and never leaves it.
pub trait Worker {
    /// Messages from other threads.
    type Message: Send + 'static;

    /// Names for [`Activity::enter`].
    const ACTIVITIES: &'static [&'static str] = &[];

    /// One pass: polls all sources, runs tasks, flushes. Returns the work done (0: idle).
    fn turn(&mut self, turn: &Turn) -> usize;

    /// Handles a message.
    fn message(&mut self, message: Self::Message, turn: &Turn);

    /// Appends the descriptors that become readable when there is work.
    fn descriptors(&self, list: &mut Vec<RawFd>);

    /// Called before a sleep on those descriptors: until the next turn, work makes one of them
    /// readable. False if there is work already.
    fn arm(&mut self) -> bool {
        true
    }

    /// The latest time of the next work for [`Worker::turn`].
    fn next_deadline(&self) -> Option<Instant>;

    /// True ends the loop.
    fn stopped(&self) -> bool;
}

/// One turn of the loop.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The turn's only time stamp.
    pub now: Instant,
}

/// The context for creating a worker.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) name: Arc<str>,
    pub(crate) core: Option<usize>,
    pub(crate) alarm: Alarm,
    pub(crate) counters: Arc<CoreCounters>,
    pub(crate) activity: Activity,
    pub(crate) polling: Polling,
}

impl Context {
    /// The reactor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The core that the reactor is pinned to.
    pub fn core(&self) -> Option<usize> {
        self.core
    }

    /// Wakes this reactor, for task sets and for threads with work for it.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// The counters, for work by source.
    pub fn counters(&self) -> &Arc<CoreCounters> {
        &self.counters
    }

    /// For recording the worker's activity.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Sets the polling mode from the next idle turn on.
    pub fn set_poll_mode(&self, mode: PollMode) {
        self.polling.set(mode);
    }
}

/// Runs turns until the worker stops.
pub(crate) fn run<W: Worker>(mut worker: W, context: &Context, mailbox: &Receiver<W::Message>) {
    let Context {
        alarm,
        counters,
        activity,
        polling,
        ..
    } = context;
    let start = Instant::now();
    counters.begin(start);
    let mut now = start;
    let mut idle_since = None;
    let mut turns_to_look = 0;
    let mut sleeper = Sleeper::default();
    while !worker.stopped() {
        let turn = Turn { now };
        let mut work = 0;
        if turns_to_look == 0 {
            activity.set(activity::MESSAGES);
            for message in mailbox.try_iter().take(MESSAGES_PER_TURN) {
                worker.message(message, &turn);
                work += 1;
            }
            counters.add_messages(work);
        }
        let mailbox_is_full = work == MESSAGES_PER_TURN;
        turns_to_look = match turns_to_look {
            0 if mailbox_is_full => 0,
            0 => TURNS_PER_MAILBOX_LOOK - 1,
            turns => turns - 1,
        };
        activity.set(activity::TURN);
        work += worker.turn(&turn);

        now = Instant::now();
        let busy = work > 0;
        counters.end_turn(nanoseconds(now - turn.now), nanoseconds(now - start), busy);
        if busy {
            idle_since = None;
        } else if polling.sleeps_after(now - *idle_since.get_or_insert(turn.now))
            && !worker.stopped()
        {
            activity.set(activity::SLEEPING);
            if sleeper.sleep(&mut worker, alarm, now) {
                let woken = Instant::now();
                counters.end_sleep(nanoseconds(woken - now));
                now = woken;
            }
            // The waker may have sent a message; and work often arrives together.
            turns_to_look = 0;
            idle_since = None;
        }
    }
    activity.set(activity::STOPPED);
}

#[derive(Default)]
struct Sleeper {
    descriptors: Vec<RawFd>,
    scratch: Vec<rustix::event::PollFd<'static>>,
}

impl Sleeper {
    /// False if there is a reason to stay awake.
    fn sleep<W: Worker>(&mut self, worker: &mut W, alarm: &Alarm, now: Instant) -> bool {
        let timeout = worker
            .next_deadline()
            .map(|at| at.saturating_duration_since(now));
        if timeout == Some(Duration::ZERO) {
            return false;
        }
        if !worker.arm() {
            return false;
        }
        self.descriptors.clear();
        self.descriptors.push(alarm.descriptor());
        worker.descriptors(&mut self.descriptors);
        let asleep = alarm.fall_asleep();
        if asleep {
            sleep::until_readable(&self.descriptors, &mut self.scratch, timeout);
            alarm.clear();
        }
        alarm.awake();
        asleep
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
