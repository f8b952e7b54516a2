//! The callbacks that are due, by client and by the times at which they are tried.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::SessionId;
use super::backchannel::{CallbackPath, TakenSlot};
use super::callbacks::{CallbackOrder, CallbackSubject};
use super::clients::ClientId;
use super::stateid::Stateid;
use super::table::AssignedMap;

/// The pauses before a callback is repeated that the client was not ready for.
const PAUSE_LEAST: Duration = Duration::from_millis(100);
pub(super) const PAUSE_MOST: Duration = Duration::from_secs(1);
/// Most callbacks of a client that are tried. Recalls wait behind them, others are not begun.
const TRIED_MAX: usize = 256;

/// A callback that is due.
#[derive(Debug)]
pub(super) struct CallbackJob {
    pub client: ClientId,
    pub subject: CallbackSubject,
    /// The slot that it has taken.
    pub place: Option<(SessionId, TakenSlot)>,
    /// The connection by which it was sent and is not answered yet.
    pub sent: Option<CallbackPath>,
    pub repeats: Option<u32>,
    pub attempt: u32,
    pub pause: Duration,
    /// When it is tried, unless it was sent.
    next_try: Duration,
    /// When it is given up if it has no slot.
    pub deadline: Duration,
    /// Whether it remains only to settle its slot: it was begun anew in another session, or is
    /// no longer needed.
    pub is_superseded: bool,
}

impl CallbackJob {
    pub fn new(
        client: ClientId,
        subject: CallbackSubject,
        (now, deadline): (Duration, Duration),
    ) -> Self {
        Self {
            client,
            subject,
            place: None,
            sent: None,
            repeats: None,
            attempt: 0,
            pause: PAUSE_LEAST,
            next_try: now,
            deadline,
            is_superseded: false,
        }
    }
}

/// The callbacks of a client.
#[derive(Debug, Default)]
struct CallbackQueue {
    /// Those that are tried.
    tried: BTreeSet<u64>,
    /// Recalls that come after them, by the delegations.
    behind: BTreeMap<[u8; 12], CallbackJob>,
}

/// All callbacks that are due.
#[derive(Debug, Default)]
pub(super) struct CallbackJobs {
    jobs: BTreeMap<u64, CallbackJob>,
    /// Those that are not sent, by the times at which they are tried.
    waiting: BTreeSet<(Duration, u64)>,
    next: u64,
    by_client: AssignedMap<ClientId, CallbackQueue>,
    pub orders: VecDeque<CallbackOrder>,
}

impl CallbackJobs {
    /// Adds a callback, if there are not too many of its client.
    pub fn add(&mut self, job: CallbackJob) -> bool {
        let queue = self.by_client.entry(job.client).or_default();
        if queue.tried.len() >= TRIED_MAX {
            let CallbackSubject::Recall { stateid, .. } = &job.subject else {
                return false;
            };
            queue.behind.insert(stateid.other, job);
            return true;
        }
        let number = self.next;
        self.next += 1;
        queue.tried.insert(number);
        self.waiting.insert((job.next_try, number));
        self.jobs.insert(number, job);
        true
    }

    pub fn get(&self, number: u64) -> Option<&CallbackJob> {
        self.jobs.get(&number)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut CallbackJob> {
        self.jobs.get_mut(&number)
    }

    /// Those of a client that are tried.
    pub fn of_client(&self, client: ClientId) -> Vec<u64> {
        let queue = self.by_client.get(&client);
        queue.map_or_else(Vec::new, |queue| queue.tried.iter().copied().collect())
    }

    /// Those that are to be tried now.
    pub fn due(&self, now: Duration) -> Vec<u64> {
        let due = self.waiting.range(..=(now, u64::MAX));
        due.map(|(_, number)| *number).collect()
    }

    /// When the next one is to be tried.
    pub fn next_due(&self) -> Duration {
        let first = self.waiting.first();
        first.map_or(Duration::MAX, |(time, _)| *time)
    }

    /// A callback that is not sent, or not any more, is tried at a time.
    pub fn try_at(&mut self, number: u64, time: Duration) {
        if let Some(job) = self.jobs.get_mut(&number) {
            self.waiting.remove(&(job.next_try, number));
            (job.sent, job.next_try) = (None, time);
            self.waiting.insert((time, number));
        }
    }

    /// A callback was sent.
    pub fn note_sent(&mut self, number: u64, path: CallbackPath) {
        if let Some(job) = self.jobs.get_mut(&number) {
            self.waiting.remove(&(job.next_try, number));
            job.sent = Some(path);
        }
    }

    pub fn remove(&mut self, number: u64) {
        let Some(job) = self.jobs.remove(&number) else {
            return;
        };
        self.waiting.remove(&(job.next_try, number));
        let Some(queue) = self.by_client.get_mut(&job.client) else {
            return;
        };
        queue.tried.remove(&number);
        if let Some((_, next)) = queue.behind.pop_first() {
            self.add(next);
        } else if queue.tried.is_empty() {
            self.by_client.remove(&job.client);
        }
    }

    /// How many recalls come after the callbacks that are tried.
    #[cfg(test)]
    pub fn recalls_behind(&self, client: ClientId) -> usize {
        let queue = self.by_client.get(&client);
        queue.map_or(0, |queue| queue.behind.len())
    }

    /// Forgets the recall of a delegation that was returned, if it was not tried yet.
    pub fn forget_recall(&mut self, client: ClientId, delegation: &Stateid) {
        if let Some(queue) = self.by_client.get_mut(&client) {
            queue.behind.remove(&delegation.other);
        }
    }
}
