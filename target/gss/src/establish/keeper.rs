//! The thread that keeps deadlines and ages contexts. It never blocks on anything else.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::answer::Answer;
use super::helper::Job;
use super::partial::PartialContexts;
use crate::FailureReason;
use crate::service::ServiceCore;

/// How often contexts are aged and files are looked at.
const PERIOD: Duration = Duration::from_secs(10);

/// What the thread is told.
pub enum KeeperMessage {
    /// An answer that is due. All have the same time, so they come in the order of their deadlines.
    Watch(Instant, Weak<Answer>),
}

pub struct Keeper {
    core: Arc<ServiceCore>,
    messages: Receiver<KeeperMessage>,
    jobs: Sender<Job>,
    partials: Arc<PartialContexts>,
    watched: VecDeque<(Instant, Weak<Answer>)>,
}

impl Keeper {
    pub fn new(
        core: &Arc<ServiceCore>,
        messages: Receiver<KeeperMessage>,
        jobs: &Sender<Job>,
        partials: &Arc<PartialContexts>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            messages,
            jobs: jobs.clone(),
            partials: Arc::clone(partials),
            watched: VecDeque::new(),
        }
    }

    /// Until the service is dropped.
    pub fn run(mut self) {
        let mut next_period = Instant::now() + PERIOD;
        loop {
            let deadline = self.watched.front().map_or(next_period, |(due, _)| *due);
            match self.messages.recv_deadline(deadline.min(next_period)) {
                Ok(KeeperMessage::Watch(due, answer)) => self.watched.push_back((due, answer)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            self.expire(now);
            if now >= next_period {
                self.core.table.sweep(now);
                self.partials.sweep(now);
                drop(self.jobs.try_send(Job::Refresh));
                next_period = now + PERIOD;
            }
        }
    }

    /// Answers those that have waited for too long, and forgets those that have their answers.
    fn expire(&mut self, now: Instant) {
        while let Some((due, answer)) = self.watched.front() {
            let answer = answer.upgrade();
            if answer.is_some() && *due > now {
                return;
            }
            if let Some(answer) = answer {
                let failed = self.core.counters.failed(FailureReason::Unavailable);
                answer.expire(|| failed.increment());
            }
            self.watched.pop_front();
        }
    }
}
