//! Which calls of a transport are served when, on one reactor: clients in turn, and a bounded
//! number of calls side by side.

use std::future::Future;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Instant;

use millrace_reactor::Alarm;
use millrace_reactor::task::{TaskEnd, TaskId, TaskSet};

use super::backlog::Backlog;
use super::connection::ConnectionRef;
use super::serving_time::ServingTime;
use super::slot::{IdleSlots, RequestSlot, TasklessCalls};
use crate::flow::{Cause, ClientShare, Flow, TaskLimits};

/// Calls that waited and are begun in one turn. More would keep those waiting that arrive
/// meanwhile, of other clients too.
const STARTS: usize = 256;

/// A call that can wait.
pub trait ScheduledCall {
    /// The connection that it was received on.
    fn connection(&self) -> &ConnectionRef;

    /// When it arrived.
    fn arrived(&self) -> Instant;
}

/// The calls of one transport that wait or are being served. `F` is the future of a task, which
/// serves the calls of its slot for ever.
pub struct CallScheduler<C, F> {
    flow: Flow,
    limits: TaskLimits,
    work: Box<dyn Fn(Rc<RequestSlot<C>>) -> F>,
    tasks: TaskSet<F>,
    /// The slot of each task, by its index.
    slots: Vec<Option<Rc<RequestSlot<C>>>>,
    idle: IdleSlots,
    taskless: TasklessCalls,
    /// Calls that are not begun.
    backlog: Backlog<C>,
    /// Tasks that can go on, and since when.
    woken: Backlog<(TaskId, Instant)>,
    ended: Vec<TaskEnd<()>>,
    /// Connections with calls that made their tasks panic.
    failed: Vec<ConnectionRef>,
    time: ServingTime,
    /// Calls served and waiting, as counted last.
    counted: (u64, u64),
}

impl<C: ScheduledCall, F: Future<Output = ()>> CallScheduler<C, F> {
    /// Without calls. `work` makes the future of a task; `alarm` is rung when a task can go on,
    /// which a reactor that sleeps needs.
    pub fn new(
        flow: &Flow,
        limits: TaskLimits,
        work: impl Fn(Rc<RequestSlot<C>>) -> F + 'static,
        alarm: Option<&Alarm>,
    ) -> Self {
        let capacity = limits.capacity;
        Self {
            flow: flow.clone(),
            limits,
            work: Box::new(work),
            tasks: TaskSet::new(capacity, alarm),
            slots: Vec::with_capacity(capacity),
            idle: IdleSlots::default(),
            taskless: TasklessCalls::default(),
            backlog: Backlog::default(),
            woken: Backlog::default(),
            ended: Vec::with_capacity(capacity),
            failed: Vec::new(),
            time: ServingTime::received(),
            counted: (0, 0),
        }
    }

    /// Counts calls that `at_once` neither served nor returned, until they are resumed.
    #[must_use]
    pub fn taskless(&self) -> TasklessCalls {
        self.taskless.clone()
    }

    /// Has a call served by `at_once`, which returns it if it has to wait for something; it is then
    /// given to a task. A call is queued behind the other calls of its client until a task is free,
    /// until fewer of the client's calls are in service, or until the next turn.
    pub fn start(&mut self, call: C, at_once: impl FnOnce(C) -> Option<C>) {
        let share = call.connection().share();
        let may = self.flow.may_serve(share, &self.limits, self.calls())
            && (self.backlog.is_empty() || !self.backlog.holds(share))
            && !self.time.pass(&self.flow);
        let call = if may {
            self.begin(call, at_once)
        } else {
            Some(call)
        };
        if let Some(call) = call {
            self.backlog.push(&call.connection().clone(), call);
        }
    }

    /// Does something else between calls, such as sending: its time is not theirs.
    pub fn between<T>(&mut self, other: impl FnOnce() -> T) -> T {
        self.time.aside(self.flow.clock(), other)
    }

    /// Whether calls wait for time.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.backlog.is_empty() || !self.woken.is_empty()
    }

    /// Goes on with a call that was in service without a task, as [`start`](Self::start) does.
    pub fn resume(&mut self, call: C, at_once: impl FnOnce(C) -> Option<C>) {
        if let Some(call) = self.begin(call, at_once) {
            self.backlog.put_back(&call.connection().clone(), call);
        }
    }

    /// Serves a call at once if it need not wait: it has ended before the next one is begun, while
    /// its data is in the core's cache. Gives others to a task. Returns the call if there is no
    /// task for it.
    fn begin(&mut self, call: C, at_once: impl FnOnce(C) -> Option<C>) -> Option<C> {
        let connection = call.connection().clone();
        // As in a task, only the call's connection ends after a panic.
        match catch_unwind(AssertUnwindSafe(|| at_once(call))) {
            Ok(call) => self.give(call?),
            Err(_) => {
                self.note_panic(connection);
                None
            }
        }
    }

    /// Gives a call to an idle task or a new one, and lets the task begin. Returns the call if there
    /// is no task for it.
    fn give(&mut self, call: C) -> Option<C> {
        let idle = self.idle.borrow_mut().pop();
        let idle = idle.and_then(|index| self.slots[index as usize].clone());
        let slot = match idle {
            Some(slot) => slot,
            None if self.tasks.len() == self.tasks.capacity() => return Some(call),
            None => self.spawn(),
        };
        slot.put(call);
        if let Some(task) = slot.task() {
            self.tasks.run_one(task, &mut self.ended);
            if !self.ended.is_empty() {
                self.reap();
            }
        }
        None
    }

    /// A new task, whose slot is empty.
    fn spawn(&mut self) -> Rc<RequestSlot<C>> {
        let slot = Rc::new(RequestSlot::new(&self.idle));
        if let Ok(task) = self.tasks.spawn((self.work)(Rc::clone(&slot))) {
            slot.set_task(task);
            let index = task.index as usize;
            if index == self.slots.len() {
                self.slots.push(None);
            }
            self.slots[index] = Some(Rc::clone(&slot));
        }
        slot
    }

    /// Notes the connections whose calls made their tasks panic; no task ends otherwise.
    #[cold]
    fn reap(&mut self) {
        let mut all = std::mem::take(&mut self.ended);
        for ended in all.drain(..) {
            let slot = self.slots[ended.task.index as usize].take();
            if let Some(connection) = slot.and_then(|slot| slot.end_call()) {
                self.note_panic(connection);
            }
        }
        self.ended = all;
    }

    #[cold]
    fn note_panic(&mut self, connection: ConnectionRef) {
        self.flow.counters().panics.increment();
        tracing::error!(
            client = %connection.address(),
            "a request panicked; its connection is closed"
        );
        self.failed.push(connection);
    }

    /// Connections whose calls made their tasks panic since the last time. They are to be closed.
    pub fn failed(&mut self) -> std::vec::Drain<'_, ConnectionRef> {
        self.failed.drain(..)
    }

    /// Continues calls that can go on, and begins some that waited, as [`start`](Self::start) does.
    /// Others of both wait for the next turn. Returns the amount of work done.
    pub fn run(&mut self, at_once: impl FnMut(C) -> Option<C>) -> usize {
        let mut work = self.run_in_turn();
        if !self.ended.is_empty() {
            self.reap();
        }
        if !self.backlog.is_empty() {
            work += self.take_from_backlog(at_once);
        }
        self.time = ServingTime::received();
        self.count();
        work
    }

    /// Continues calls of the clients in turn, while there is time. Returns how many.
    fn run_in_turn(&mut self) -> usize {
        let Self { tasks, slots, .. } = self;
        let now = self.flow.clock().now();
        tasks.take_woken(|task| {
            // Tasks without a call need not run.
            if let Some(slot) = &slots[task.index as usize]
                && let Some(connection) = slot.connection()
                && !slot.set_queued(true)
            {
                self.woken.push(&connection, (task, now));
            }
        });
        if self.woken.is_empty() {
            return 0;
        }
        self.time = ServingTime::waiting(&self.flow);
        let mut continued = 0;
        while !self.time.pass(&self.flow)
            && let Some((task, since)) = self.woken.pop(|_| true)
        {
            if let Some(slot) = &self.slots[task.index as usize] {
                slot.set_queued(false);
                let waited = now.saturating_duration_since(since);
                if !waited.is_zero()
                    && let Some(connection) = slot.connection()
                {
                    self.flow
                        .throttled(connection.share(), Cause::Share, waited);
                }
            }
            self.tasks.run_one(task, &mut self.ended);
            continued += 1;
        }
        continued
    }

    fn count(&mut self) {
        let counted = (self.calls() as u64, self.backlog.len() as u64);
        if counted != self.counted {
            let counters = self.flow.counters();
            counters.tasks.add(counted.0);
            counters.tasks.sub(self.counted.0);
            counters.backlog.add(counted.1);
            counters.backlog.sub(self.counted.1);
            self.counted = counted;
        }
    }

    /// Begins calls that waited. Returns how many.
    fn take_from_backlog(&mut self, mut at_once: impl FnMut(C) -> Option<C>) -> usize {
        let now = self.flow.clock().now();
        let mut begun = 0;
        self.time = ServingTime::waiting(&self.flow);
        while begun < STARTS && !self.time.pass(&self.flow) {
            let served = self.calls();
            let Self { flow, limits, .. } = self;
            let may = |share: &ClientShare| flow.may_serve(share, limits, served);
            let Some(call) = self.backlog.pop(may) else {
                break;
            };
            let waited = now.saturating_duration_since(call.arrived());
            let share = Rc::clone(call.connection().share());
            if let Some(call) = self.begin(call, &mut at_once) {
                self.backlog.put_back(&call.connection().clone(), call);
                break;
            }
            self.flow.throttled(&share, Cause::Share, waited);
            begun += 1;
        }
        begun
    }

    /// Handles the end of a connection: wakes the tasks that serve its calls, because they may wait
    /// in vain, and removes its waiting calls.
    pub fn disconnected(&mut self, connection: &ConnectionRef, left: impl FnMut(C)) {
        for slot in self.slots.iter().flatten() {
            if slot.serves(connection)
                && let Some(task) = slot.task()
            {
                self.tasks.wake(task);
            }
        }
        self.backlog.leave(connection, left);
    }

    /// Removes all waiting calls.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = C> + use<C, F> {
        self.backlog.take()
    }

    /// How many calls of each client wait.
    pub fn waiting(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        let waiting = self.backlog.waiting();
        waiting.map(|(share, calls): (&Rc<ClientShare>, usize)| {
            let calls = u32::try_from(calls).unwrap_or(u32::MAX);
            (share.record().address(), calls)
        })
    }

    /// Calls that are being served.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.tasks.len() - self.idle.borrow().len() + self.taskless.len()
    }

    /// Whether no call is being served or waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls() == 0 && self.backlog.is_empty()
    }
}
