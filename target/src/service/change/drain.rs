//! Draining: running without clients, temporarily or until the stop.

use std::time::{Duration, Instant};

use crate::rpc::Transport;

/// The time for connections to end after the deadline of a drain.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// A drain in progress on one reactor.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    deadline: Instant,
    /// The reactor then stops.
    ends: bool,
    /// All connections have been asked to end.
    closed: bool,
    /// There is nothing left to wait for.
    over: bool,
}

impl Drain {
    /// Starts one; the reactor stops after it if it `ends`.
    pub fn new(deadline: Instant, ends: bool) -> Self {
        Self {
            deadline,
            ends,
            closed: false,
            over: false,
        }
    }

    /// Continues with another deadline. A stop already requested remains.
    pub fn again(&mut self, deadline: Instant, ends: bool) {
        *self = Self::new(deadline, self.ends || ends);
    }

    /// Whether the reactor stops at its end.
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// The next deadline: for closing connections, or for waiting for their ends.
    pub fn next_deadline(&self) -> Option<Instant> {
        match (self.over, self.closed) {
            (true, _) => None,
            (false, true) => Some(self.last()),
            (false, false) => Some(self.deadline),
        }
    }

    /// When it ends in any case.
    fn last(&self) -> Instant {
        self.deadline + LAST_FLUSH
    }

    /// Continues it: ends idle connections, and all of them at the deadline. Returns whether the
    /// reactor is to stop.
    pub fn step(&mut self, now: Instant, transports: &mut [&mut dyn Transport]) -> bool {
        if self.over {
            return self.ends;
        }
        let late = now >= self.deadline;
        for transport in transports.iter_mut().filter(|_| !self.closed) {
            if late {
                transport.close_all();
            } else {
                transport.close_idle();
            }
        }
        self.closed |= late;
        let gone = transports
            .iter()
            .all(|one| one.open_work().connections == 0);
        self.over = gone || now >= self.last();
        self.over && self.ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_does_not_name_a_deadline_that_it_has_acted_on() {
        let deadline = Instant::now();
        let mut drain = Drain::new(deadline, false);
        assert_eq!(drain.next_deadline(), Some(deadline));
        drain.closed = true;
        assert_eq!(drain.next_deadline(), Some(drain.last()));
        assert!(drain.last() > deadline);
        drain.over = true;
        assert_eq!(drain.next_deadline(), None);
    }

    #[test]
    fn a_new_deadline_replaces_the_old_one_and_an_end_stays_one() {
        let (soon, later) = (Instant::now(), Instant::now() + LAST_FLUSH);
        let mut drain = Drain::new(soon, true);
        drain.over = true;
        drain.again(later, false);
        assert_eq!(drain.next_deadline(), Some(later));
        assert!(drain.ends());
    }
}
