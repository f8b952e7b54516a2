//! Waiting for completions on the same core: a token for the completing side, a future for the
//! waiter.
//!
//! A [`Completions`] is a slab, so a completion finds its waiter by index. Tokens carry a
//! generation: completing the token of a dropped waiter returns the value, and never reaches a
//! later user of the same slot. The highest bit of a token is clear, so that others may mark theirs
//! by it.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const NONE: u32 = u32::MAX;
const GENERATIONS: u32 = u32::MAX >> 1;

/// Completions of one kind, on one core. Clones share them.
pub struct Completions<T> {
    slab: Rc<RefCell<Slab<T>>>,
}

struct Slab<T> {
    places: Vec<CompletionWaiter<T>>,
    free: u32,
    pending: usize,
}

struct CompletionWaiter<T> {
    generation: u32,
    state: CompletionState<T>,
}

enum CompletionState<T> {
    Free { next: u32 },
    Pending(Option<Waker>),
    Complete(T),
}

impl<T> Completions<T> {
    /// Empty; grows on demand, and never shrinks.
    pub fn new() -> Self {
        let slab = Slab {
            places: Vec::new(),
            free: NONE,
            pending: 0,
        };
        Self {
            slab: Rc::new(RefCell::new(slab)),
        }
    }

    /// A token to complete, and its waiter. Dropping the latter withdraws the token.
    pub fn register(&self) -> (u64, Wait<T>) {
        let slab = &mut *self.slab.borrow_mut();
        let state = CompletionState::Pending(None);
        let index = if slab.free == NONE {
            slab.places.push(CompletionWaiter {
                generation: 0,
                state,
            });
            u32::try_from(slab.places.len() - 1).expect("fewer than 2^32 waiters")
        } else {
            let index = slab.free;
            let free = std::mem::replace(&mut slab.places[index as usize].state, state);
            let CompletionState::Free { next } = free else {
                unreachable!("listed as free")
            };
            slab.free = next;
            index
        };
        slab.pending += 1;
        let generation = slab.places[index as usize].generation;
        let token = u64::from(generation) << 32 | u64::from(index);
        (
            token,
            Wait {
                slab: Rc::clone(&self.slab),
                index,
            },
        )
    }

    /// Completes a token and wakes its waiter.
    ///
    /// # Errors
    /// Returns the value if the token has no waiter (any more).
    #[allow(clippy::cast_possible_truncation)] // A token is two halves.
    pub fn complete(&self, token: u64, value: T) -> Result<(), T> {
        let (generation, index) = ((token >> 32) as u32, token as u32);
        let waker = {
            let slab = &mut *self.slab.borrow_mut();
            match slab.places.get_mut(index as usize) {
                Some(CompletionWaiter {
                    generation: ours,
                    state: state @ CompletionState::Pending(_),
                }) if *ours == generation => {
                    slab.pending -= 1;
                    let CompletionState::Pending(waker) =
                        std::mem::replace(state, CompletionState::Complete(value))
                    else {
                        unreachable!("just matched")
                    };
                    waker
                }
                _ => return Err(value),
            }
        };
        // Nothing is borrowed while other code runs.
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Tokens that are neither completed nor withdrawn.
    pub fn pending(&self) -> usize {
        self.slab.borrow().pending
    }
}

impl<T> Default for Completions<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Completions<T> {
    fn clone(&self) -> Self {
        Self {
            slab: Rc::clone(&self.slab),
        }
    }
}

impl<T> fmt::Debug for Completions<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Completions")
            .field("pending", &self.pending())
            .finish()
    }
}

/// Waits for one token of a [`Completions`].
#[must_use = "dropping it withdraws the token"]
pub struct Wait<T> {
    slab: Rc<RefCell<Slab<T>>>,
    /// `NONE` after the value was taken.
    index: u32,
}

impl<T> Wait<T> {
    /// The value, if available.
    pub fn try_take(&mut self) -> Option<T> {
        let slab = &mut *self.slab.borrow_mut();
        let place = slab.places.get(self.index as usize)?;
        if !matches!(place.state, CompletionState::Complete(_)) {
            return None;
        }
        match slab.release(std::mem::replace(&mut self.index, NONE)) {
            CompletionState::Complete(value) => Some(value),
            CompletionState::Pending(_) | CompletionState::Free { .. } => {
                unreachable!("just matched")
            }
        }
    }
}

impl<T> Future for Wait<T> {
    type Output = T;

    /// # Panics
    /// If polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(value) = self.try_take() {
            return Poll::Ready(value);
        }
        assert!(self.index != NONE, "polled after completion");
        let mut waker = Some(context.waker().clone());
        if let CompletionState::Pending(known) =
            &mut self.slab.borrow_mut().places[self.index as usize].state
        {
            // The earlier one is dropped after the borrow ends.
            std::mem::swap(known, &mut waker);
        }
        Poll::Pending
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        if self.index != NONE {
            let left = self.slab.borrow_mut().release(self.index);
            drop(left);
        }
    }
}

impl<T> fmt::Debug for Wait<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Wait").finish_non_exhaustive()
    }
}

impl<T> Slab<T> {
    fn release(&mut self, index: u32) -> CompletionState<T> {
        let place = &mut self.places[index as usize];
        let next = std::mem::replace(&mut self.free, index);
        place.generation = (place.generation + 1) & GENERATIONS;
        let state = std::mem::replace(&mut place.state, CompletionState::Free { next });
        if matches!(state, CompletionState::Pending(_)) {
            self.pending -= 1;
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::Completions;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_completion_reaches_its_waiter() {
        let completions = Completions::new();
        let (first, wait_first) = completions.register();
        let (second, wait_second) = completions.register();
        let (mut wait_first, mut wait_second) = (pin!(wait_first), pin!(wait_second));
        assert!(poll(wait_first.as_mut()).is_pending());
        assert_eq!(completions.complete(second, 2), Ok(()));
        assert!(poll(wait_first.as_mut()).is_pending());
        assert_eq!(poll(wait_second.as_mut()), Poll::Ready(2));
        assert_eq!(completions.complete(second, 3), Err(3), "only once");
        assert_eq!(completions.pending(), 1);
        assert_eq!(completions.complete(first, 1), Ok(()));
        assert_eq!(completions.complete(first, 4), Err(4));
        assert_eq!(poll(wait_first.as_mut()), Poll::Ready(1));
        assert_eq!(completions.pending(), 0);
    }

    #[test]
    fn a_late_completion_does_not_reach_the_next_user_of_the_place() {
        let completions = Completions::new();
        let (stale, wait) = completions.register();
        drop(wait);
        assert_eq!(completions.pending(), 0);
        let (fresh, mut wait) = completions.register();
        assert_ne!(stale, fresh);
        assert_eq!(completions.complete(stale, 1), Err(1));
        assert_eq!(wait.try_take(), None);
        assert_eq!(completions.complete(fresh, 2), Ok(()));
        assert_eq!(wait.try_take(), Some(2));
        assert_eq!(completions.complete(u64::MAX, 3), Err(3));
    }
}
