//! A line in which tasks of one core wait, first come, first served.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Tasks in line. Whoever is at its head goes on when it can, and nobody passes it.
#[derive(Default)]
pub struct Queue {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    next: u64,
}

struct Entry {
    number: u64,
    waker: Option<Waker>,
}

impl Queue {
    /// Whether nobody is in line.
    pub fn is_empty(&self) -> bool {
        self.state.borrow().entries.is_empty()
    }

    /// Takes the last place.
    pub fn join(&self) -> Place<'_> {
        let state = &mut *self.state.borrow_mut();
        let number = state.next;
        state.next += 1;
        let waker = None;
        state.entries.push_back(Entry { number, waker });
        Place {
            queue: self,
            number,
        }
    }

    /// Lets the head look again at what it waits for.
    pub fn wake(&self) {
        let head = |state: &mut State| state.entries.front_mut().and_then(|e| e.waker.take());
        let waker = head(&mut self.state.borrow_mut());
        // Nothing is borrowed while foreign code runs.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place in line, given up when dropped.
pub struct Place<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Place<'_> {
    /// Waits for the head of the line, and there until `ready` gives something. It is asked anew
    /// after every [`Queue::wake`], and whenever it woke its task itself.
    pub async fn until<T>(&self, mut ready: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|context| {
            if self.is_head()
                && let Poll::Ready(value) = ready(context)
            {
                return Poll::Ready(value);
            }
            let state = &mut *self.queue.state.borrow_mut();
            if let Some(entry) = state.entries.iter_mut().find(|e| e.number == self.number) {
                entry.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn is_head(&self) -> bool {
        let state = self.queue.state.borrow();
        let head = state.entries.front();
        head.is_some_and(|entry| entry.number == self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let was_head = self.is_head();
        let left = |state: &mut State| {
            let at = state.entries.iter().position(|e| e.number == self.number)?;
            state.entries.remove(at)
        };
        let left = left(&mut self.queue.state.borrow_mut());
        drop(left);
        if was_head {
            self.queue.wake();
        }
    }
}
