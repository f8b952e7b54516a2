//! The limit on operations of one volume in flight on one reactor.
//!
//! Operations beyond the limit wait while the volume makes progress, client by client in turn. So a
//! client with many operations delays another client by those in flight and one more. When no
//! operation has completed for a while, waiting and new operations are refused with a delay
//! ([`StoreError::Delay`]), so that they do not hold memory and slots that other volumes could use.
//! When too many wait, the latest operation of the client with the most is refused in this way.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use millrace_reactor::{Clock, Sleep};

use super::Counters;
use crate::posix::client_waiters::ClientWaiters;
use crate::{ClientKey, Result, StoreError};

/// A volume without a completion for this time is stuck.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The most operations that wait.
const WAITING_MAX: usize = 4096;

/// One reactor's admission to one volume.
pub(super) struct Admission {
    operations: Box<dyn Fn() -> usize>,
    bytes: Box<dyn Fn() -> usize>,
    clock: Clock,
    counters: Arc<Counters>,
    in_flight: Cell<usize>,
    bytes_under_way: Cell<usize>,
    /// The time of the last completion, or of the first begin after there was none in progress.
    progressed: Cell<Instant>,
    /// The waiters, with the memory that each needs.
    waiters: RefCell<ClientWaiters<usize, Result<()>>>,
}

impl Admission {
    /// Limits the operations and the bytes of memory at once; a single operation may have more
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
            in_flight: Cell::new(0),
            bytes_under_way: Cell::new(0),
            progressed: Cell::new(clock.now()),
            waiters: RefCell::default(),
        }
    }

    /// Refuses an operation that would have to wait for a stuck volume. To be called before memory
    /// is allocated for the operation.
    ///
    /// # Errors
    /// [`StoreError::Delay`].
    pub fn check(&self, bytes: usize) -> Result<()> {
        let free = self.waiters.borrow().len() == 0 && self.has_room(bytes);
        if free || self.clock.now() < self.deadline() {
            return Ok(());
        }
        self.counters.delays.add(1);
        Err(StoreError::Delay)
    }

    /// Waits until a client's operation with this much memory may begin. Afterwards
    /// [`Admission::leave`] must be called.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: the volume is stuck, or too many wait.
    pub fn enter(self: &Rc<Self>, client: ClientKey, bytes: usize) -> AdmissionWait {
        AdmissionWait {
            admission: Rc::clone(self),
            client,
            bytes,
            waiting: None,
        }
    }

    /// Records that an operation completed, with or without success: the volume is not stuck.
    pub fn progress(&self) {
        self.progressed.set(self.clock.now());
    }

    /// Removes an admitted operation.
    pub fn leave(&self, bytes: usize) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.bytes_under_way.set(self.bytes_under_way.get() - bytes);
        self.advance();
    }

    fn deadline(&self) -> Instant {
        self.progressed.get() + STALL_TIMEOUT
    }

    fn has_room(&self, bytes: usize) -> bool {
        let in_flight = self.in_flight.get();
        in_flight == 0
            || in_flight < (self.operations)().max(1)
                && self.bytes_under_way.get() + bytes <= (self.bytes)()
    }

    fn take(&self, bytes: usize) {
        if self.in_flight.get() == 0 {
            self.progress();
        }
        self.in_flight.set(self.in_flight.get() + 1);
        self.bytes_under_way.set(self.bytes_under_way.get() + bytes);
        self.counters.operations.set(self.in_flight.get() as u64);
    }

    /// Admits waiting operations up to the limit.
    fn advance(&self) {
        let waiters = &mut *self.waiters.borrow_mut();
        while let Some(&bytes) = waiters.demand()
            && self.has_room(bytes)
        {
            self.take(bytes);
            if let Some(waker) = waiters.serve(Ok(())) {
                waker.wake();
            }
        }
        self.count(waiters.len());
    }

    fn count(&self, waiting: usize) {
        self.counters.operations.set(self.in_flight.get() as u64);
        self.counters.waiting_operations.set(waiting as u64);
    }

    fn refuse(&self) -> Poll<Result<()>> {
        self.counters.delays.add(1);
        Poll::Ready(Err(StoreError::Delay))
    }
}

/// Waits for admission. Dropping it leaves the queue.
#[must_use = "nobody enters unless awaited"]
pub(super) struct AdmissionWait {
    admission: Rc<Admission>,
    client: ClientKey,
    bytes: usize,
    waiting: Option<(usize, Sleep)>,
}

impl Future for AdmissionWait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let admission = &*this.admission;
        let Some((number, sleep)) = &mut this.waiting else {
            return this.begin(context);
        };
        let granted = admission
            .waiters
            .borrow_mut()
            .poll(*number, context.waker());
        if let Some(granted) = granted {
            this.waiting = None;
            if granted.is_err() {
                return admission.refuse();
            }
            return Poll::Ready(granted);
        }
        let deadline = admission.deadline();
        if admission.clock.now() >= deadline {
            this.give_up();
            return this.admission.refuse();
        }
        // The deadline may have moved since the sleep began.
        if Pin::new(&mut *sleep).poll(context).is_ready() {
            *sleep = admission.clock.sleep_until(deadline);
            let _ = Pin::new(&mut *sleep).poll(context);
        }
        Poll::Pending
    }
}

impl AdmissionWait {
    /// Enters at once, or joins the queue.
    fn begin(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let admission = &*self.admission;
        let waiters = &mut *admission.waiters.borrow_mut();
        if waiters.len() == 0 && admission.has_room(self.bytes) {
            admission.take(self.bytes);
            return Poll::Ready(Ok(()));
        }
        if admission.clock.now() >= admission.deadline() {
            return admission.refuse();
        }
        if waiters.len() >= WAITING_MAX {
            let Some(refused) = waiters.make_room(self.client, Err(StoreError::Delay)) else {
                return admission.refuse();
            };
            refused.wake();
        }
        let number = waiters.join(self.client, self.bytes, context.waker());
        let mut sleep = admission.clock.sleep_until(admission.deadline());
        // The sleep only wakes; the clock decides whether the deadline has passed.
        let _ = Pin::new(&mut sleep).poll(context);
        self.waiting = Some((number, sleep));
        admission.count(waiters.len());
        Poll::Pending
    }

    /// Leaves the queue, or returns an admission that was not consumed yet.
    fn give_up(&mut self) {
        let Some((number, _)) = self.waiting.take() else {
            return;
        };
        let granted = self.admission.waiters.borrow_mut().leave(number);
        if let Some(Ok(())) = granted {
            self.admission.leave(self.bytes);
        } else {
            // Waiters behind this one may have been blocked by it alone.
            self.admission.advance();
        }
    }
}

impl Drop for AdmissionWait {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn admission(operations: usize, bytes: usize) -> (Rc<Admission>, Clock, Instant) {
        let start = Instant::now();
        let clock = Clock::new(start);
        let admission = Admission::new(move || operations, move || bytes, &clock, Arc::default());
        (Rc::new(admission), clock, start)
    }

    fn poll(enter: &mut AdmissionWait) -> Poll<Result<()>> {
        Pin::new(enter).poll(&mut Context::from_waker(Waker::noop()))
    }

    const ONE: ClientKey = ClientKey::new(1);
    const OTHER: ClientKey = ClientKey::new(2);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn those_who_wait_enter_in_turn_while_there_is_progress() {
        let (admission, clock, start) = admission(2, 100);
        for _ in 0..2 {
            assert!(poll(&mut admission.enter(ONE, 10)).is_ready());
        }
        let mut line: Vec<_> = (0..6).map(|_| admission.enter(ONE, 10)).collect();
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
        assert!(poll(&mut admission.enter(ONE, 1)).is_ready());
        let mut waiting = admission.enter(ONE, 1);
        assert!(poll(&mut waiting).is_pending());
        assert_eq!(admission.check(1), Ok(()));
        clock.turn(start + STALL_TIMEOUT);
        assert_eq!(poll(&mut waiting), Poll::Ready(Err(StoreError::Delay)));
        assert_eq!(admission.check(1), Err(StoreError::Delay));
        assert_eq!(
            poll(&mut admission.enter(ONE, 1)),
            Poll::Ready(Err(StoreError::Delay))
        );
        assert_eq!(admission.counters.delays.get(), 3);
        admission.progress();
        admission.leave(1);
        assert_eq!(admission.check(1), Ok(()));
        assert!(poll(&mut admission.enter(ONE, 1)).is_ready());
    }

    #[test]
    fn an_idle_volume_is_not_stuck_however_long_it_rests() {
        let (admission, clock, start) = admission(1, 100);
        clock.turn(start + STALL_TIMEOUT * 10);
        assert_eq!(poll(&mut admission.enter(ONE, 1)), Poll::Ready(Ok(())));
        assert!(poll(&mut admission.enter(ONE, 1)).is_pending());
    }

    #[test]
    fn memory_bounds_as_operations_do_but_one_may_always_go() {
        let (admission, _clock, _) = admission(10, 100);
        assert!(poll(&mut admission.enter(ONE, 1000)).is_ready());
        let mut small = admission.enter(ONE, 1);
        assert!(poll(&mut small).is_pending());
        admission.leave(1000);
        assert!(poll(&mut small).is_ready());
        assert!(poll(&mut admission.enter(ONE, 99)).is_ready());
        let mut big = admission.enter(ONE, 2);
        assert!(poll(&mut big).is_pending());
        let mut behind = admission.enter(ONE, 0);
        assert!(poll(&mut behind).is_pending(), "nobody passes");
        drop(big);
        assert!(poll(&mut behind).is_ready());
    }

    #[test]
    fn who_is_let_in_and_never_looks_leaves_again() {
        let (admission, _clock, _) = admission(1, 100);
        assert!(poll(&mut admission.enter(ONE, 1)).is_ready());
        let mut waiting = admission.enter(ONE, 1);
        assert!(poll(&mut waiting).is_pending());
        admission.leave(1);
        assert_eq!(admission.in_flight.get(), 1);
        drop(waiting);
        assert_eq!(admission.in_flight.get(), 0);
    }

    #[test]
    fn one_with_many_waiting_holds_up_another_for_one_operation() {
        let (admission, ..) = admission(2, 100);
        for _ in 0..2 {
            assert!(poll(&mut admission.enter(ONE, 1)).is_ready());
        }
        let mut many: Vec<_> = (0..3000).map(|_| admission.enter(ONE, 1)).collect();
        for enter in &mut many {
            assert!(poll(enter).is_pending());
        }
        let mut other = admission.enter(OTHER, 1);
        assert!(poll(&mut other).is_pending());
        for _ in 0..2 {
            admission.leave(1);
        }
        assert!(poll(&mut other).is_ready());
        let entered = many.iter_mut().filter_map(|enter| match poll(enter) {
            Poll::Ready(entered) => Some(entered),
            Poll::Pending => None,
        });
        assert_eq!(entered.collect::<Vec<_>>(), [Ok(())]);
    }

    #[test]
    fn when_too_many_wait_the_client_with_the_most_is_told_to_come_again() {
        let (admission, ..) = admission(1, 100);
        assert!(poll(&mut admission.enter(ONE, 1)).is_ready());
        let mut many: Vec<_> = (0..WAITING_MAX).map(|_| admission.enter(ONE, 1)).collect();
        for enter in &mut many {
            assert!(poll(enter).is_pending());
        }
        let delay = Poll::Ready(Err(StoreError::Delay));
        assert_eq!(poll(&mut admission.enter(ONE, 1)), delay, "its own is full");
        let mut other = admission.enter(OTHER, 1);
        assert!(poll(&mut other).is_pending());
        assert_eq!(poll(many.last_mut().unwrap()), delay);
        assert_eq!(admission.counters.delays.get(), 2);
        let waiting = admission.counters.waiting_operations.get();
        assert_eq!(waiting, WAITING_MAX as u64);
    }
}
