//! Going on to run without clients, or until the end.

use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::call::Serve;
use crate::rdma::{Desk, Responder, Shared};
use crate::tcp::TcpServer;

/// After the deadline of a drain, connections are given this long to end.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// A drain in progress on one reactor.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    deadline: Instant,
    /// The reactor stops then.
    ends: bool,
    /// All connections have been told to end.
    closed: bool,
    /// There is nothing to wait for any more.
    over: bool,
}

impl Drain {
    /// Begins one; the reactor stops with it if it `ends`.
    pub fn new(deadline: Instant, ends: bool) -> Self {
        Self {
            deadline,
            ends,
            closed: false,
            over: false,
        }
    }

    /// Goes on with another deadline. What was to end still does.
    pub fn again(&mut self, deadline: Instant, ends: bool) {
        *self = Self::new(deadline, self.ends || ends);
    }

    /// Whether the reactor stops at its end.
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// When there is something to do: connections are to be closed, or, once they are, their ends
    /// are not waited for any longer.
    pub fn next_deadline(&self) -> Option<Instant> {
        match (self.over, self.closed) {
            (true, _) => None,
            (false, true) => Some(self.last()),
            (false, false) => Some(self.deadline),
        }
    }

    /// When it is over, whatever is left.
    fn last(&self) -> Instant {
        self.deadline + LAST_FLUSH
    }

    /// Carries it on: ends connections as they fall idle, and all of them at the deadline. Returns
    /// whether the reactor is to stop.
    pub fn step<S, F, M>(
        &mut self,
        now: Instant,
        responder: &Responder<S, F, M>,
        tcp: &mut TcpServer<S>,
    ) -> bool
    where
        S: Serve,
        F: Future<Output = ()>,
        M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
    {
        if self.over {
            return self.ends;
        }
        let late = now >= self.deadline;
        if !self.closed {
            for connection in responder.connections() {
                if connection.is_idle() {
                    connection.leave();
                } else if late {
                    connection.close(true);
                }
            }
            if late {
                tcp.close_all();
            }
            self.closed = late;
        }
        let gone = responder.connections().next().is_none() && tcp.connections() == 0;
        self.over = gone || now >= self.last();
        self.over && self.ends
    }
}

/// How far a drain has come on one reactor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Connections that are open.
    pub connections: usize,
    /// Calls that are not answered yet.
    pub in_flight: usize,
    /// Replies that clients have still to fetch.
    pub exposures: u64,
}

impl Progress {
    /// On this reactor.
    pub fn of<S, F, M>(responder: &Responder<S, F, M>, tcp: &TcpServer<S>) -> Self
    where
        S: Serve,
        F: Future<Output = ()>,
        M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
    {
        let mut progress = Self {
            connections: tcp.connections(),
            in_flight: tcp.in_flight(),
            exposures: 0,
        };
        for connection in responder.connections() {
            let (_, _, in_service) = connection.credits();
            progress.connections += 1;
            progress.in_flight += in_service as usize;
            progress.exposures += u64::from(connection.exposures.open_replies());
        }
        progress
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
