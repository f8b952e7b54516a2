//! How much one volume may have under way on one reactor.
//!
//! Whoever comes when that is reached waits in line while the volume makes progress. When nothing
//! has ended for a while, those in line and those who come are told to come again later: their
//! clients wait without holding memory and places that other volumes could use.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace_reactor::{Clock, Sleep};

use super::Counters;
use crate::{Result, StoreError};

/// A volume that ends nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(2);

/// One reactor's admission to one volume.
pub(super) struct Admission {
    operations: Box<dyn Fn() -> usize>,
    bytes: Box<dyn Fn() -> usize>,
    clock: Clock,
    counters: Arc<Counters>,
    under_way: Cell<usize>,
    bytes_under_way: Cell<usize>,
    /// When an operation ended last, or the first began after none was under way.
    progressed: Cell<Instant>,
    line: RefCell<Line>,
}

#[derive(Default)]
struct Line {
    order: VecDeque<usize>,
    waiters: Vec<Waiter>,
    free: Vec<usize>,
}

struct Waiter {
    bytes: usize,
    state: State,
}

enum State {
    Free,
    Waiting(Waker),
    In,
}

impl Admission {
    /// At most so many operations and bytes of memory at once; a single operation may have more
    /// bytes.
    pub fn new(
        operations: impl Fn() -> usize + 'static,
        bytes: impl Fn() -> usize + 'static,
        clock: &Clock,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            operations: Box::new(operations),
            bytes: Box::new(bytes),
            clock: clock.clone(),
            counters,
            under_way: Cell::new(0),
            bytes_under_way: Cell::new(0),
            progressed: Cell::new(clock.now()),
            line: RefCell::default(),
        }
    }

    /// Refuses whoever would have to wait for a volume that is stuck: to be asked before memory is
    /// taken for the operation.
    ///
    /// # Errors
    /// [`StoreError::Delay`].
    pub fn check(&self, bytes: usize) -> Result<()> {
        let free = self.line.borrow().order.is_empty() && self.has_room(bytes);
        if free || self.clock.now() < self.deadline() {
            return Ok(());
        }
        self.counters.delays.add(1);
        Err(StoreError::Delay)
    }

    /// Waits until an operation with so much memory may begin. Whoever has entered calls
    /// [`Admission::leave`].
    ///
    /// # Errors
    /// [`StoreError::Delay`]: the volume is stuck.
    pub fn enter(self: &Rc<Self>, bytes: usize) -> Enter {
        Enter {
            admission: Rc::clone(self),
            bytes,
            waiting: None,
        }
    }

    /// An operation ended, well or not: the volume is not stuck.
    pub fn progress(&self) {
        self.progressed.set(self.clock.now());
    }

    /// An operation that entered is gone.
    pub fn leave(&self, bytes: usize) {
        self.under_way.set(self.under_way.get() - 1);
        self.bytes_under_way.set(self.bytes_under_way.get() - bytes);
        self.advance();
    }

    fn deadline(&self) -> Instant {
        self.progressed.get() + PATIENCE
    }

    fn has_room(&self, bytes: usize) -> bool {
        let under_way = self.under_way.get();
        under_way == 0
            || under_way < (self.operations)().max(1)
                && self.bytes_under_way.get() + bytes <= (self.bytes)()
    }

    fn take(&self, bytes: usize) {
        if self.under_way.get() == 0 {
            self.progress();
        }
        self.under_way.set(self.under_way.get() + 1);
        self.bytes_under_way.set(self.bytes_under_way.get() + bytes);
        self.counters.operations.set(self.under_way.get() as u64);
    }

    /// Lets in whoever may.
    fn advance(&self) {
        let line = &mut *self.line.borrow_mut();
        while let Some(&number) = line.order.front() {
            let waiter = &mut line.waiters[number];
            if !self.has_room(waiter.bytes) {
                break;
            }
            self.take(waiter.bytes);
            if let State::Waiting(waker) = std::mem::replace(&mut waiter.state, State::In) {
                waker.wake();
            }
            line.order.pop_front();
        }
        self.count(line);
    }

    fn count(&self, line: &Line) {
        self.counters.operations.set(self.under_way.get() as u64);
        self.counters
            .waiting_operations
            .set(line.order.len() as u64);
    }
}

/// Waits for admission. Dropping it gives up the place.
#[must_use = "nobody enters unless awaited"]
pub(super) struct Enter {
    admission: Rc<Admission>,
    bytes: usize,
    waiting: Option<(usize, Sleep)>,
}

impl Future for Enter {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let admission = &*this.admission;
        let Some((number, sleep)) = &mut this.waiting else {
            let line = &mut *admission.line.borrow_mut();
            if line.order.is_empty() && admission.has_room(this.bytes) {
                admission.take(this.bytes);
                return Poll::Ready(Ok(()));
            }
            if admission.clock.now() >= admission.deadline() {
                admission.counters.delays.add(1);
                return Poll::Ready(Err(StoreError::Delay));
            }
            let number = line.join(this.bytes, context.waker());
            let mut sleep = admission.clock.sleep_until(admission.deadline());
            // It only wakes; the clock tells whether the time has come.
            let _ = Pin::new(&mut sleep).poll(context);
            this.waiting = Some((number, sleep));
            admission.count(line);
            return Poll::Pending;
        };
        let number = *number;
        let stuck = match &mut admission.line.borrow_mut().waiters[number].state {
            State::In => false,
            State::Waiting(waker) => {
                waker.clone_from(context.waker());
                let deadline = admission.deadline();
                let stuck = admission.clock.now() >= deadline;
                // The deadline may have moved since the sleep began.
                if !stuck && Pin::new(&mut *sleep).poll(context).is_ready() {
                    *sleep = admission.clock.sleep_until(deadline);
                    let _ = Pin::new(&mut *sleep).poll(context);
                }
                if !stuck {
                    return Poll::Pending;
                }
                true
            }
            State::Free => unreachable!("taken by this one"),
        };
        if stuck {
            admission.counters.delays.add(1);
            this.give_up();
            return Poll::Ready(Err(StoreError::Delay));
        }
        this.waiting = None;
        admission.line.borrow_mut().release(number);
        Poll::Ready(Ok(()))
    }
}

impl Enter {
    /// Leaves the line, or what it was let into unseen.
    fn give_up(&mut self) {
        let Some((number, _)) = self.waiting.take() else {
            return;
        };
        let state = {
            let line = &mut *self.admission.line.borrow_mut();
            line.order.retain(|&other| other != number);
            line.release(number)
        };
        if matches!(state, State::In) {
            self.admission.leave(self.bytes);
        } else {
            // Those behind may have waited for this one alone.
            self.admission.advance();
        }
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Line {
    fn join(&mut self, bytes: usize, waker: &Waker) -> usize {
        let waiter = Waiter {
            bytes,
            state: State::Waiting(waker.clone()),
        };
        let number = if let Some(number) = self.free.pop() {
            self.waiters[number] = waiter;
            number
        } else {
            self.waiters.push(waiter);
            self.waiters.len() - 1
        };
        self.order.push_back(number);
        number
    }

    fn release(&mut self, number: usize) -> State {
        self.free.push(number);
        std::mem::replace(&mut self.waiters[number].state, State::Free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(operations: usize, bytes: usize) -> (Rc<Admission>, Clock, Instant) {
        let start = Instant::now();
        let clock = Clock::new(start);
        let admission = Admission::new(move || operations, move || bytes, &clock, Arc::default());
        (Rc::new(admission), clock, start)
    }

    fn poll(enter: &mut Enter) -> Poll<Result<()>> {
        Pin::new(enter).poll(&mut Context::from_waker(Waker::noop()))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn those_who_wait_enter_in_turn_while_there_is_progress() {
        let (admission, clock, start) = admission(2, 100);
        for _ in 0..2 {
            assert!(poll(&mut admission.enter(10)).is_ready());
        }
        let mut line: Vec<_> = (0..6).map(|_| admission.enter(10)).collect();
        for enter in &mut line {
            assert!(poll(enter).is_pending());
        }
        assert_eq!(admission.counters.waiting_operations.get(), 6);
        for (turn, enter) in line.iter_mut().enumerate() {
            clock.turn(start + SECOND * (turn as u32 + 1));
            assert!(poll(enter).is_pending());
            admission.progress();
            admission.leave(10);
            assert_eq!(poll(enter), Poll::Ready(Ok(())));
        }
        assert_eq!(admission.counters.delays.get(), 0);
        assert_eq!(admission.counters.operations.get(), 2);
    }

    #[test]
    fn a_stuck_volume_sends_newcomers_away_and_takes_them_again_after_progress() {
        let (admission, clock, start) = admission(1, 100);
        assert!(poll(&mut admission.enter(1)).is_ready());
        let mut waiting = admission.enter(1);
        assert!(poll(&mut waiting).is_pending());
        assert_eq!(admission.check(1), Ok(()));
        clock.turn(start + PATIENCE);
        assert_eq!(poll(&mut waiting), Poll::Ready(Err(StoreError::Delay)));
        assert_eq!(admission.check(1), Err(StoreError::Delay));
        assert_eq!(
            poll(&mut admission.enter(1)),
            Poll::Ready(Err(StoreError::Delay))
        );
        assert_eq!(admission.counters.delays.get(), 3);
        admission.progress();
        admission.leave(1);
        assert_eq!(admission.check(1), Ok(()));
        assert!(poll(&mut admission.enter(1)).is_ready());
    }

    #[test]
    fn an_idle_volume_is_not_stuck_however_long_it_rests() {
        let (admission, clock, start) = admission(1, 100);
        clock.turn(start + PATIENCE * 10);
        assert_eq!(poll(&mut admission.enter(1)), Poll::Ready(Ok(())));
        assert!(poll(&mut admission.enter(1)).is_pending());
    }

    #[test]
    fn memory_bounds_as_operations_do_but_one_may_always_go() {
        let (admission, _clock, _) = admission(10, 100);
        assert!(poll(&mut admission.enter(1000)).is_ready());
        let mut small = admission.enter(1);
        assert!(poll(&mut small).is_pending());
        admission.leave(1000);
        assert!(poll(&mut small).is_ready());
        assert!(poll(&mut admission.enter(99)).is_ready());
        let mut big = admission.enter(2);
        assert!(poll(&mut big).is_pending());
        let mut behind = admission.enter(0);
        assert!(poll(&mut behind).is_pending(), "nobody passes");
        drop(big);
        assert!(poll(&mut behind).is_ready());
    }

    #[test]
    fn who_is_let_in_and_never_looks_leaves_again() {
        let (admission, _clock, _) = admission(1, 100);
        assert!(poll(&mut admission.enter(1)).is_ready());
        let mut waiting = admission.enter(1);
        assert!(poll(&mut waiting).is_pending());
        admission.leave(1);
        assert_eq!(admission.under_way.get(), 1);
        drop(waiting);
        assert_eq!(admission.under_way.get(), 0);
    }
}
