//! How reactors ask the home of the state, which lives on one of them.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_reactor::Clock;
use millrace_reactor::completion::Completions;

use super::home::StateHome;

type HomeValue = Box<dyn Any + Send>;
type HomeQuestion = Box<dyn FnOnce(&mut StateHome, Duration) -> HomeValue + Send>;

/// A question of one reactor to the home on another one.
pub struct HomeRequest {
    /// The reactor that asks.
    pub from: usize,
    token: u64,
    run: HomeQuestion,
}

impl HomeRequest {
    /// Answers it. For the reactor that has the home.
    pub fn answer(self, home: &mut StateHome, now: Duration) -> HomeAnswer {
        HomeAnswer {
            token: self.token,
            value: (self.run)(home, now),
        }
    }
}

impl fmt::Debug for HomeRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HomeRequest")
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

/// The answer, for the reactor that has asked.
pub struct HomeAnswer {
    token: u64,
    value: HomeValue,
}

impl fmt::Debug for HomeAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HomeAnswer").finish_non_exhaustive()
    }
}

/// Questions of a reactor that have not been sent yet.
pub type HomeOutbox = Rc<RefCell<VecDeque<HomeRequest>>>;

enum HomePlace {
    Here(Rc<RefCell<StateHome>>),
    Elsewhere {
        outbox: HomeOutbox,
        answers: Completions<HomeValue>,
    },
}

/// The way of a reactor to the home.
pub struct HomeLink {
    /// Times count from here, the same instant on all reactors.
    epoch: Instant,
    clock: Clock,
    reactor: usize,
    place: HomePlace,
}

impl HomeLink {
    /// Of the reactor that has the home.
    #[must_use]
    pub fn here(
        home: Rc<RefCell<StateHome>>,
        reactor: usize,
        (epoch, clock): (Instant, Clock),
    ) -> Self {
        Self {
            epoch,
            clock,
            reactor,
            place: HomePlace::Here(home),
        }
    }

    /// The link of another reactor, which sends the content of `outbox`.
    #[must_use]
    pub fn elsewhere(outbox: HomeOutbox, reactor: usize, (epoch, clock): (Instant, Clock)) -> Self {
        let answers = Completions::new();
        Self {
            epoch,
            clock,
            reactor,
            place: HomePlace::Elsewhere { outbox, answers },
        }
    }

    /// The reactor that uses this link.
    #[must_use]
    pub fn reactor(&self) -> usize {
        self.reactor
    }

    /// The time stamp of the turn, as state has it.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.epoch)
    }

    /// An instant, from the time as state has it.
    #[must_use]
    pub fn instant(&self, time: Duration) -> Instant {
        self.epoch + time
    }

    /// Asks the home. On its own reactor it answers at once. `None` if the answer is of another
    /// type, which no home gives.
    pub async fn ask<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut StateHome, Duration) -> T + Send + 'static,
    ) -> Option<T> {
        match &self.place {
            HomePlace::Here(home) => {
                let now = self.now();
                Some(run(&mut home.borrow_mut(), now))
            }
            HomePlace::Elsewhere { outbox, answers } => {
                let (token, answer) = answers.register();
                let request = HomeRequest {
                    from: self.reactor,
                    token,
                    run: Box::new(move |home, now| Box::new(run(home, now))),
                };
                outbox.borrow_mut().push_back(request);
                answer.await.downcast().ok().map(|value| *value)
            }
        }
    }

    /// Asks the home if it is on this reactor; `None` if it is not.
    pub fn ask_here<T>(&self, run: impl FnOnce(&mut StateHome, Duration) -> T) -> Option<T> {
        match &self.place {
            HomePlace::Here(home) => {
                let now = self.now();
                Some(run(&mut home.borrow_mut(), now))
            }
            HomePlace::Elsewhere { .. } => None,
        }
    }

    /// Reports something to the home, without waiting for an answer.
    pub fn tell(&self, run: impl FnOnce(&mut StateHome, Duration) + Send + 'static) {
        match &self.place {
            HomePlace::Here(home) => {
                let now = self.now();
                run(&mut home.borrow_mut(), now);
            }
            HomePlace::Elsewhere { outbox, answers } => {
                // Nothing waits for this one's answer, so that it is dropped.
                let (token, _) = answers.register();
                outbox.borrow_mut().push_back(HomeRequest {
                    from: self.reactor,
                    token,
                    run: Box::new(move |home, now| {
                        run(home, now);
                        Box::new(())
                    }),
                });
            }
        }
    }

    /// Answers a question of another reactor. `None` if the home is not here.
    #[must_use]
    pub fn serve(&self, request: HomeRequest) -> Option<HomeAnswer> {
        self.ask_here(|home, now| request.answer(home, now))
    }

    /// Accepts the answer to a question of this reactor. The question may have been abandoned.
    pub fn take(&self, answer: HomeAnswer) {
        if let HomePlace::Elsewhere { answers, .. } = &self.place {
            let _ = answers.complete(answer.token, answer.value);
        }
    }
}

impl fmt::Debug for HomeLink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HomeLink")
            .field("reactor", &self.reactor)
            .finish_non_exhaustive()
    }
}
