//! How reactors ask the home of the state, which lives on one of them.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_reactor::Clock;
use millrace_reactor::completion::Completions;

use super::fences::IoRegister;
use super::files::FileKey;
use super::home::StateHome;

type HomeValue = Box<dyn Any + Send>;
type HomeQuestion =
    Box<dyn FnOnce(&mut StateHome, Duration, AnswerTicket) -> Option<HomeValue> + Send>;

/// How long the home has to answer. It answers within a turn of its reactor, so that one that does not
/// is stuck; clients then call again.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// What is told instead of an answer that does not come.
struct NoAnswer;

/// Who waits for an answer that the home gives later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTicket {
    /// The reactor.
    pub reactor: usize,
    token: u64,
}

#[cfg(test)]
impl AnswerTicket {
    pub(super) fn for_test(reactor: usize, token: u64) -> Self {
        Self { reactor, token }
    }
}

/// A question of one reactor to the home on another one.
pub struct HomeRequest {
    /// The reactor that asks.
    pub from: usize,
    token: u64,
    run: HomeQuestion,
}

impl HomeRequest {
    /// Answers it, unless that is done later or not wanted. For the reactor that has the home.
    pub fn answer(self, home: &mut StateHome, now: Duration) -> Option<HomeAnswer> {
        let (reactor, token) = (self.from, self.token);
        let value = (self.run)(home, now, AnswerTicket { reactor, token })?;
        Some(HomeAnswer { token, value })
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

impl HomeAnswer {
    /// An answer that was not given at once.
    pub fn late<T: Send + 'static>(ticket: AnswerTicket, value: T) -> Self {
        Self {
            token: ticket.token,
            value: Box::new(value),
        }
    }
}

#[cfg(test)]
impl HomeAnswer {
    pub(super) fn into_value<T: 'static>(self) -> T {
        *self.value.downcast().expect("an answer of this type")
    }
}

/// Questions of a reactor that have not been sent yet.
pub type HomeOutbox = Rc<RefCell<VecDeque<HomeRequest>>>;

enum HomePlace {
    Here(Rc<RefCell<StateHome>>),
    Elsewhere { outbox: HomeOutbox },
}

/// The way of a reactor to the home.
pub struct HomeLink {
    /// Times count from here, the same instant on all reactors.
    epoch: Instant,
    clock: Clock,
    reactor: usize,
    place: HomePlace,
    answers: Completions<HomeValue>,
    /// Questions that may be unanswered, the oldest first, and until when that is in order.
    asked: RefCell<VecDeque<(Duration, u64)>>,
    /// The I/O that answers may have to wait for.
    io: Option<Rc<IoRegister>>,
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
            answers: Completions::new(),
            asked: RefCell::default(),
            io: None,
        }
    }

    /// The link of another reactor, which sends the content of `outbox`.
    #[must_use]
    pub fn elsewhere(outbox: HomeOutbox, reactor: usize, (epoch, clock): (Instant, Clock)) -> Self {
        Self {
            epoch,
            clock,
            reactor,
            place: HomePlace::Elsewhere { outbox },
            answers: Completions::new(),
            asked: RefCell::default(),
            io: None,
        }
    }

    /// The same, whose answers wait for the end of I/O that relied on what was revoked for them.
    #[must_use]
    pub fn behind(mut self, io: Rc<IoRegister>) -> Self {
        self.io = Some(io);
        self
    }

    /// Waits for the end of I/O with revoked state of a file. `None` if that takes long.
    async fn wait_for_io(&self, file: Option<FileKey>) -> Option<()> {
        match self.io.as_ref().zip(file) {
            Some((io, file)) if !io.wait(file, self.now()).await => None,
            _ => Some(()),
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

    /// Asks the home. On its own reactor it answers at once, unless it may grant the use of a file
    /// that I/O with revoked state goes on with. `None` if there is no answer in time.
    pub async fn ask<T: Send + 'static>(
        &self,
        granted: Option<FileKey>,
        run: impl FnOnce(&mut StateHome, Duration) -> T + Send + 'static,
    ) -> Option<T> {
        match &self.place {
            HomePlace::Here(home) => {
                let now = self.now();
                let answer = run(&mut home.borrow_mut(), now);
                self.wait_for_io(granted).await?;
                Some(answer)
            }
            HomePlace::Elsewhere { outbox } => {
                let (token, answer) = self.answers.register();
                self.note_question(token);
                let request = HomeRequest {
                    from: self.reactor,
                    token,
                    run: Box::new(move |home, now, _| Some(Box::new(run(home, now)))),
                };
                outbox.borrow_mut().push_back(request);
                let answer = answer.await.downcast().ok().map(|value| *value);
                self.wait_for_io(granted).await?;
                answer
            }
        }
    }

    /// Asks the home something that it may answer later, by [`HomeAnswer::late`]. `None` if it does
    /// not answer in time.
    pub async fn ask_for_later<T: Send + 'static>(
        &self,
        granted: Option<FileKey>,
        run: impl FnOnce(&mut StateHome, Duration, AnswerTicket) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let (token, answer) = self.answers.register();
        match &self.place {
            HomePlace::Here(home) => {
                let (now, reactor) = (self.now(), self.reactor);
                let asker = AnswerTicket { reactor, token };
                let at_once = run(&mut home.borrow_mut(), now, asker);
                if at_once.is_some() {
                    self.wait_for_io(granted).await?;
                    return at_once;
                }
            }
            HomePlace::Elsewhere { outbox } => outbox.borrow_mut().push_back(HomeRequest {
                from: self.reactor,
                token,
                run: Box::new(move |home, now, asker| {
                    Some(Box::new(run(home, now, asker)?) as HomeValue)
                }),
            }),
        }
        self.note_question(token);
        let answer = answer.await.downcast().ok().map(|value| *value);
        self.wait_for_io(granted).await?;
        answer
    }

    fn note_question(&self, token: u64) {
        let mut asked = self.asked.borrow_mut();
        asked.push_back((self.now() + ANSWER_TIME, token));
    }

    /// Ends waits for answers that do not come, and for I/O. Questions that were not sent are
    /// withdrawn.
    pub fn end_waits(&self) {
        let now = self.now();
        if let Some(io) = &self.io {
            io.poll(now);
        }
        let mut asked = self.asked.borrow_mut();
        while let Some((_, token)) = asked.pop_front_if(|(ends, _)| *ends <= now) {
            if let HomePlace::Elsewhere { outbox } = &self.place {
                outbox.borrow_mut().retain(|one| one.token != token);
            }
            // Who has asked may be gone.
            let _ = self.answers.complete(token, Box::new(NoAnswer));
        }
    }

    /// When the next wait for an answer ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let asked = self.asked.borrow();
        let answer = asked.front().map(|(ends, _)| *ends);
        let io = self.io.as_ref().and_then(|io| io.next_deadline());
        answer.into_iter().chain(io).min()
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
            HomePlace::Elsewhere { outbox } => {
                let (token, _) = self.answers.register();
                outbox.borrow_mut().push_back(HomeRequest {
                    from: self.reactor,
                    token,
                    run: Box::new(move |home, now, _| {
                        run(home, now);
                        None
                    }),
                });
            }
        }
    }

    /// Answers a question of another reactor. `None` if there is no answer now, or the home is not
    /// here.
    #[must_use]
    pub fn serve(&self, request: HomeRequest) -> Option<HomeAnswer> {
        self.ask_here(|home, now| request.answer(home, now))?
    }

    /// Accepts the answer to a question of this reactor. The question may have been abandoned.
    pub fn take(&self, answer: HomeAnswer) {
        // Answers come in the order of their questions, but for late ones.
        let mut asked = self.asked.borrow_mut();
        if let Some(at) = asked.iter().position(|(_, token)| *token == answer.token) {
            asked.remove(at);
        }
        let _ = self.answers.complete(answer.token, answer.value);
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
