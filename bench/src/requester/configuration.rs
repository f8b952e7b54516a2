//! How far the exchange of limits is (RFC 5666 section 6), and what came of it.

use std::time::Instant;

use millrace_wire::ccp::Limits;

/// How far the exchange is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ExchangeStep {
    /// There is none, or it is over.
    #[default]
    Over,
    /// The call has not left.
    ToSend,
    /// Its reply is awaited.
    Sent,
    /// No reply in time: the connection is to end.
    Lost,
}

/// The exchange of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Configuration {
    pub step: ExchangeStep,
    pub xid: u32,
    pub deadline: Option<Instant>,
    /// The limits stated by the server.
    pub limits: Option<Limits>,
}

impl Configuration {
    /// Whether calls have to wait.
    pub fn is_underway(&self) -> bool {
        self.step != ExchangeStep::Over
    }

    /// Whether this is the reply that is awaited.
    pub fn awaits(&self, xid: u32) -> bool {
        self.step == ExchangeStep::Sent && self.xid == xid
    }

    /// Whether the server does RDMA Reads. It says how many it serves, and a server that serves
    /// none is not asked to do any either (RFC 5666 section 6.2).
    pub fn allows_read_chunks(&self) -> bool {
        self.limits.is_none_or(|limits| limits.reads > 0)
    }

    /// Sets the deadline, if there is something to wait for.
    pub fn wait_until(&mut self, deadline: Instant) -> Option<Instant> {
        self.deadline = self.is_underway().then_some(deadline);
        self.deadline
    }

    /// Gives up waiting when it is time, and says so: the connection is to end.
    pub fn expire(&mut self, now: Instant) -> bool {
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        let lost = late && self.is_underway();
        if late {
            self.deadline = None;
        }
        if lost {
            self.step = ExchangeStep::Lost;
        }
        lost
    }

    /// The connection has ended: there is nothing to wait for.
    pub const fn stop_waiting(&mut self) {
        self.deadline = None;
    }
}
