//! A [`WaitQueue`] whose first waiter goes on when it finds that it can.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use crate::wait::{WaitQueue, Waiter};

/// Tasks of one core that go on one after the other. The first goes on when it can, and none
/// passes it.
#[derive(Debug, Default)]
pub struct TurnQueue {
    waiters: RefCell<WaitQueue>,
    has_ended: Cell<bool>,
}

impl TurnQueue {
    /// Whether no task has joined that has not left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    /// Joins the end of the queue.
    pub fn join(&self) -> Turn<'_> {
        let waker = Waker::noop().clone();
        Turn {
            queue: self,
            waiter: self.waiters.borrow_mut().join((), waker),
        }
    }

    /// Lets the first look again at what it waits for. When it leaves, the next one looks.
    pub fn wake(&self) {
        let waker = self.waiters.borrow().first_waker();
        // Nothing is borrowed while foreign code runs.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What was waited for is over: from here on none waits for its turn, and all look at once.
    pub fn end(&self) {
        self.has_ended.set(true);
        let wakers: Vec<Waker> = self.waiters.borrow().wakers().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A place in a [`TurnQueue`], given up when dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    queue: &'a TurnQueue,
    waiter: Waiter,
}

impl Turn<'_> {
    /// Waits to be the first, and then until `ready` gives something. It is asked anew after every
    /// [`TurnQueue::wake`], and whenever it woke its task itself.
    pub async fn until<T>(&self, mut ready: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|context| {
            // What a waker drops may come here, so none is dropped while the queue is borrowed.
            let mut waker = context.waker().clone();
            let may_look = {
                let waiters = &mut *self.queue.waiters.borrow_mut();
                let granted = waiters.poll(&self.waiter, &mut waker);
                debug_assert!(granted.is_none(), "turns are taken, not granted");
                waiters.is_first(&self.waiter) || self.queue.has_ended.get()
            };
            if may_look {
                return ready(context);
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let (was_first, left) = {
            let waiters = &mut *self.queue.waiters.borrow_mut();
            (waiters.is_first(&self.waiter), waiters.leave(&self.waiter))
        };
        drop(left);
        if was_first {
            self.queue.wake();
        }
    }
}
