//! A lock of a file with two modes: buffered writes through the page cache, and direct writes.
//!
//! The kernel keeps each kind coherent with itself. A page written by both kinds at once may end in
//! a state that neither wrote. So any number of writes of one mode may hold the lock together, and
//! never both modes. Other writes wait in one queue, in order. While the queue is empty, taking and
//! releasing the lock is one compare-exchange.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use millrace_primitives::{Departure, WaitQueue, Waiter};

/// The mode of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Bypassing the page cache.
    Direct,
    /// Into the page cache.
    Buffered,
}

impl Way {
    fn bit(self) -> u64 {
        match self {
            Self::Direct => 1,
            Self::Buffered => 0,
        }
    }
}

/// The queue is not empty; changed only under the queue's lock.
const LINE: u64 = 2;
/// One holder: the bits from here up count them, and the lowest bit is their mode.
const ONE: u64 = 4;

/// One file's lock, for all reactors.
#[derive(Default)]
pub(super) struct IoModeLock {
    word: AtomicU64,
    line: Mutex<IoModeQueue>,
}

#[derive(Default)]
struct IoModeQueue {
    /// `None` is a fence: it opens when all earlier holders have left.
    order: WaitQueue<(), Option<Way>>,
    fences: VecDeque<Waiter>,
}

fn count(word: u64) -> u64 {
    word / ONE
}

impl IoModeLock {
    /// Acquires the lock if that needs no waiting.
    pub fn try_enter(&self, way: Way) -> bool {
        let mut word = self.word.load(SeqCst);
        loop {
            let open = word & LINE == 0 && (count(word) == 0 || word & 1 == way.bit());
            if !open {
                return false;
            }
            let next = ((count(word) + 1) * ONE) | way.bit();
            match self.word.compare_exchange(word, next, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Acquires the lock in turn. Afterwards [`IoModeLock::leave`] must be called.
    pub fn enter<G: Deref<Target = Self>>(lock: G, way: Way) -> IoModeWait<G> {
        IoModeWait {
            lock,
            way,
            waiter: None,
        }
    }

    /// Releases the lock.
    pub fn leave(&self) {
        let word = self.word.fetch_sub(ONE, SeqCst) - ONE;
        if count(word) == 0 && word & LINE != 0 {
            self.advance(self.lock());
        }
    }

    /// Blocks new writes until all holders have left: an abandoned write is still in progress, and
    /// must not undo what its client does next.
    pub fn fence(&self) {
        let mut line = self.lock();
        let fence = line.order.join(None, Waker::noop().clone());
        line.fences.push_back(fence);
        self.word.fetch_or(LINE, SeqCst);
        self.advance(line);
    }

    /// Admits the writes at the front of the queue. The flag of the queue is set, or it is empty.
    fn advance(&self, mut line: MutexGuard<'_, IoModeQueue>) {
        let line = &mut *line;
        loop {
            let word = self.word.load(SeqCst);
            if word & LINE == 0 {
                return;
            }
            // While the queue is not empty, writes only leave, except for those admitted here.
            let empty = count(word) == 0;
            match line.order.first() {
                None => {
                    self.word.fetch_and(!LINE, SeqCst);
                    return;
                }
                Some(None) if empty => {
                    if let Some(fence) = line.fences.pop_front() {
                        line.order.leave(&fence);
                    }
                }
                Some(&Some(way)) if empty || word & 1 == way.bit() => {
                    if empty {
                        self.word.store(ONE | LINE | way.bit(), SeqCst);
                    } else {
                        self.word.fetch_add(ONE, SeqCst);
                    }
                    if let Ok(waker) = line.order.grant(()) {
                        // Wakers of tasks only set a mark.
                        waker.wake();
                    }
                }
                Some(_) => return,
            }
        }
    }

    /// Joins the queue.
    fn join(&self, way: Way, waker: &Waker) -> Waiter {
        let mut line = self.lock();
        // From here on the last holder to leave takes the queue's lock.
        self.word.fetch_or(LINE, SeqCst);
        let waiter = line.order.join(Some(way), waker.clone());
        // Holders may have left, or others have arrived, before the flag was set.
        self.advance(line);
        waiter
    }

    fn lock(&self) -> MutexGuard<'_, IoModeQueue> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the lock. Dropping it leaves the queue, or releases a lock that was granted but not
/// consumed.
#[must_use = "nobody enters unless awaited"]
pub(super) struct IoModeWait<G: Deref<Target = IoModeLock>> {
    lock: G,
    way: Way,
    waiter: Option<Waiter>,
}

impl<G: Deref<Target = IoModeLock> + Unpin> Future for IoModeWait<G> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let waiter = match &this.waiter {
            Some(waiter) => waiter,
            None if this.lock.try_enter(this.way) => return Poll::Ready(()),
            None => {
                let waiter = this.lock.join(this.way, context.waker());
                this.waiter.insert(waiter)
            }
        };
        let mut line = this.lock.lock();
        if line
            .order
            .poll(waiter, &mut context.waker().clone())
            .is_none()
        {
            return Poll::Pending;
        }
        this.waiter = None;
        Poll::Ready(())
    }
}

impl<G: Deref<Target = IoModeLock>> Drop for IoModeWait<G> {
    fn drop(&mut self) {
        let Some(waiter) = &self.waiter else {
            return;
        };
        let mut line = self.lock.lock();
        match line.order.leave(waiter) {
            Departure::Granted(()) => {
                drop(line);
                self.lock.leave();
            }
            // Waiters behind this one may have been blocked by it alone.
            Departure::Waiting(_) => self.lock.advance(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;
    use std::task::Wake;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Action {
        Come(bool),
        Poll(prop::sample::Index),
        Leave(prop::sample::Index),
        GiveUp(prop::sample::Index),
        Fence,
    }

    fn action() -> impl Strategy<Value = Action> {
        let which = any::<prop::sample::Index>;
        prop_oneof![
            4 => any::<bool>().prop_map(Action::Come),
            3 => which().prop_map(Action::Poll),
            3 => which().prop_map(Action::Leave),
            1 => which().prop_map(Action::GiveUp),
            1 => Just(Action::Fence),
        ]
    }

    struct Visitor<'a> {
        way: Way,
        /// The number of earlier fences.
        fences: u64,
        enter: Option<IoModeWait<&'a IoModeLock>>,
    }

    fn poll(visitor: &mut Visitor<'_>) -> bool {
        let Some(enter) = &mut visitor.enter else {
            return true;
        };
        let waker = Waker::noop();
        let done = Pin::new(enter)
            .poll(&mut Context::from_waker(waker))
            .is_ready();
        if done {
            visitor.enter = None;
        }
        done
    }

    /// The expected holders: in order of arrival, those compatible with the current holders.
    fn model(visitors: &[Visitor<'_>], inside: &[bool]) -> Vec<bool> {
        let mut inside = inside.to_vec();
        for index in 0..visitors.len() {
            if inside[index] {
                continue;
            }
            let fits = (0..visitors.len())
                .filter(|&other| inside[other])
                .all(|other| {
                    visitors[other].way == visitors[index].way
                        && visitors[other].fences == visitors[index].fences
                });
            if !fits {
                break;
            }
            inside[index] = true;
        }
        inside
    }

    proptest! {
        #[test]
        fn the_gate_lets_in_by_turn_and_never_both_ways(
            actions in prop::collection::vec(action(), 1..120)
        ) {
            let lock = IoModeLock::default();
            let mut visitors: Vec<Visitor<'_>> = Vec::new();
            let mut inside: Vec<bool> = Vec::new();
            let mut fences = 0;
            for action in actions {
                match action {
                    Action::Come(direct) => {
                        let way = if direct { Way::Direct } else { Way::Buffered };
                        let enter = Some(IoModeLock::enter(&lock, way));
                        let mut visitor = Visitor { way, fences, enter };
                        poll(&mut visitor);
                        visitors.push(visitor);
                        inside.push(false);
                    }
                    Action::Poll(index) if !visitors.is_empty() => {
                        let index = index.index(visitors.len());
                        poll(&mut visitors[index]);
                    }
                    Action::Leave(index) if !visitors.is_empty() => {
                        let index = index.index(visitors.len());
                        if inside[index] {
                            prop_assert!(poll(&mut visitors[index]), "it was let in");
                            visitors.remove(index);
                            inside.remove(index);
                            lock.leave();
                        }
                    }
                    Action::GiveUp(index) if !visitors.is_empty() => {
                        let index = index.index(visitors.len());
                        if visitors[index].enter.is_some() {
                            visitors.remove(index);
                            inside.remove(index);
                        }
                    }
                    Action::Fence => {
                        lock.fence();
                        // A fence without holders blocks nothing.
                        if !visitors.is_empty() {
                            fences += 1;
                        }
                    }
                    _ => {}
                }
                inside = model(&visitors, &inside);
                let word = lock.word.load(SeqCst);
                let expected = inside.iter().filter(|&&inside| inside).count() as u64;
                prop_assert_eq!(count(word), expected);
                prop_assert_eq!(word & LINE != 0, inside.iter().any(|&inside| !inside)
                    || visitors.iter().any(|visitor| visitor.fences < fences));
            }
            for (visitor, inside) in visitors.iter_mut().zip(&inside) {
                prop_assert_eq!(poll(visitor), *inside);
            }
        }
    }

    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn threads_are_never_in_by_both_ways_and_all_get_in() {
        const ROUNDS: usize = 20_000;
        let lock = IoModeLock::default();
        // Direct writes count up from zero, buffered ones down.
        let inside = AtomicI64::new(0);
        thread::scope(|scope| {
            for number in 0..4_usize {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    let waker = Waker::from(Arc::new(Unpark(thread::current())));
                    let mut context = Context::from_waker(&waker);
                    for round in 0..ROUNDS {
                        let direct = (round / (number + 1)).is_multiple_of(2);
                        let (way, step) = if direct {
                            (Way::Direct, 1)
                        } else {
                            (Way::Buffered, -1)
                        };
                        let mut enter = IoModeLock::enter(lock, way);
                        if round % 7 == number {
                            // One that is cancelled, granted or not.
                            if Pin::new(&mut enter).poll(&mut context).is_ready() {
                                lock.leave();
                            }
                            continue;
                        }
                        while Pin::new(&mut enter).poll(&mut context).is_pending() {
                            thread::park();
                        }
                        let before = inside.fetch_add(step, SeqCst);
                        assert!(before == 0 || before.signum() == step, "both ways at once");
                        if round % 1000 == number {
                            lock.fence();
                        }
                        inside.fetch_sub(step, SeqCst);
                        lock.leave();
                    }
                });
            }
        });
        assert_eq!(lock.word.load(SeqCst) & !1, 0, "nobody is in or in line");
    }
}
