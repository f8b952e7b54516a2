//! Draining: running without clients, temporarily or until the stop.

use std::time::{Duration, Instant};

use crate::rpc::{OpenWork, Transport};

/// The time for connections to end after the deadline of a drain, or before a stop once all calls
/// are answered: a peer that does not close its side holds up the restart no longer.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// A drain in progress on one reactor.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    deadline: Instant,
    /// When it ends in any case.
    last: Instant,
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
            last: deadline + LAST_FLUSH,
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
            (false, true) => Some(self.last),
            (false, false) => Some(self.deadline.min(self.last)),
        }
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
        let mut open = OpenWork::default();
        for transport in transports.iter() {
            open += transport.open_work();
        }
        self.is_over(open, now) && self.ends
    }

    /// Whether there is nothing left to wait for.
    fn is_over(&mut self, open: OpenWork, now: Instant) -> bool {
        if self.ends && open.in_flight == 0 && open.exposures == 0 {
            self.last = self.last.min(now + LAST_FLUSH);
        }
        self.over = open.connections == 0 || now >= self.last;
        self.over
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
        assert_eq!(drain.next_deadline(), Some(drain.last));
        assert!(drain.last > deadline);
        drain.over = true;
        assert_eq!(drain.next_deadline(), None);
    }

    #[test]
    fn a_stop_waits_a_second_for_peers_that_do_not_close_once_all_calls_are_answered() {
        let begun = Instant::now();
        let open = OpenWork {
            connections: 1,
            ..OpenWork::default()
        };
        let called = OpenWork {
            in_flight: 1,
            ..open
        };
        let exposed = OpenWork {
            exposures: 1,
            ..open
        };
        let deadline = begun + 10 * LAST_FLUSH;
        for ends in [true, false] {
            let mut drain = Drain::new(deadline, ends);
            let answered = begun + 5 * LAST_FLUSH;
            assert!(!drain.is_over(called, answered) && !drain.is_over(exposed, answered));
            assert_eq!(drain.next_deadline(), Some(deadline));
            assert!(!drain.is_over(open, answered));
            let later = answered + LAST_FLUSH;
            assert_eq!(
                drain.next_deadline(),
                Some(if ends { later } else { deadline })
            );
            assert_eq!(drain.is_over(open, later), ends);
            assert!(drain.is_over(OpenWork::default(), answered));
        }
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
