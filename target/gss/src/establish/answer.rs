//! The answer to a creation: written by a helper or at the deadline, waited for on any executor.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Establishment;
use crate::service::ServiceCore;
use crate::{EndReason, status};

/// The place of an answer.
#[derive(Default)]
pub struct Answer(Mutex<AnswerState>);

enum AnswerState {
    Awaited(Option<Waker>),
    Given(Establishment),
    /// Taken, or not wanted any more.
    Over,
}

impl Default for AnswerState {
    fn default() -> Self {
        Self::Awaited(None)
    }
}

impl Answer {
    /// Whether nobody waits for it any more.
    pub fn is_over(&self) -> bool {
        !matches!(*self.state(), AnswerState::Awaited(_))
    }

    /// Gives the answer; returns it if nobody waits for it any more.
    pub fn give(&self, establishment: Establishment) -> Option<Establishment> {
        self.give_and(establishment, || {})
    }

    /// The same. `count` is called if somebody waits, before they have the answer.
    fn give_and(
        &self,
        establishment: Establishment,
        count: impl FnOnce(),
    ) -> Option<Establishment> {
        let mut state = self.state();
        if !matches!(*state, AnswerState::Awaited(_)) {
            return Some(establishment);
        }
        let before = mem::replace(&mut *state, AnswerState::Given(establishment));
        count();
        drop(state);
        if let AnswerState::Awaited(Some(waker)) = before {
            waker.wake();
        }
        None
    }

    /// The deadline has passed. `count` is called if somebody waits, before they know of it.
    pub fn expire(&self, count: impl FnOnce()) {
        self.give_and(Establishment::failed(status::UNAVAILABLE, 0), count);
    }

    fn state(&self) -> MutexGuard<'_, AnswerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for an answer. Dropped before that, the context is ended, since its client will not learn
/// its handle.
pub struct Waiting {
    answer: Arc<Answer>,
    core: Arc<ServiceCore>,
}

impl Waiting {
    pub const fn new(answer: Arc<Answer>, core: Arc<ServiceCore>) -> Self {
        Self { answer, core }
    }
}

impl Future for Waiting {
    type Output = Establishment;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Establishment> {
        let mut state = self.answer.state();
        match mem::replace(&mut *state, AnswerState::Over) {
            AnswerState::Given(establishment) => Poll::Ready(establishment),
            AnswerState::Awaited(_) | AnswerState::Over => {
                *state = AnswerState::Awaited(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let state = mem::replace(&mut *self.answer.state(), AnswerState::Over);
        if let AnswerState::Given(Establishment {
            context: Some(context),
            ..
        }) = state
        {
            self.core.table.end(&context, EndReason::Abandoned);
        }
    }
}
