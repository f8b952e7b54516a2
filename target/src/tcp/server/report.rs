//! The interface of TCP to the service.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use super::{CHECK_PAUSE, Ended, TcpConnection, TcpServer};
use crate::call::{Serve, TurnEnd};
use crate::rpc::{ConnectionReport, OpenWork, Transport};

impl<S: Serve> TcpServer<S> {
    fn open(&self) -> impl Iterator<Item = &TcpConnection> {
        let slots = self.slots.iter();
        slots.filter_map(|slot| slot.connection.as_ref())
    }

    /// Whether this connection is here ([`crate::rpc::ConnectionRef::id`]).
    #[must_use]
    pub fn has_connection(&self, id: u64) -> bool {
        self.find(id).is_some()
    }
}

impl<S: Serve> Transport for TcpServer<S> {
    fn refuse(&mut self, now: Instant) {
        self.stop_listening();
        self.refuses = true;
        self.accepted.clear();
        for id in self.live() {
            if let Some(connection) = Self::connection(&mut self.slots, id) {
                connection.stop_reading();
            }
            self.advance(id, now);
        }
    }

    fn resume(&mut self) {
        self.refuses = false;
    }

    /// Connections that are no longer read end by themselves with their last answer.
    fn close_idle(&mut self) {}

    fn close_all(&mut self) {
        for id in self.live() {
            self.end(id, &Ended::Closed);
        }
    }

    fn evict(&mut self, id: u64) -> bool {
        let found = self.find(id);
        if let Some(id) = found {
            self.end(id, &Ended::Evicted);
        }
        found.is_some()
    }

    fn open_work(&self) -> OpenWork {
        OpenWork {
            connections: self.connections(),
            in_flight: self.open().map(|connection| connection.in_flight).sum(),
            exposures: 0,
        }
    }

    /// In service are calls whose replies are not passed to the socket.
    fn report(&self, now: Instant, reports: &mut Vec<ConnectionReport>) {
        let report = |connection: &TcpConnection| {
            let in_service = connection.in_flight_peak(now);
            ConnectionReport::new(&connection.identity, in_service, now)
        };
        reports.extend(self.open().map(report));
    }

    fn waiting(&self, waiting: &mut Vec<(IpAddr, u32)>) {
        waiting.extend(self.calls.waiting());
    }

    fn calls(&self) -> usize {
        self.calls.calls()
    }

    fn turned(&mut self, end: &TurnEnd) {
        self.answered.settle(end, |connection, took, calls| {
            connection.usage().answered(took, calls);
        });
    }

    fn descriptors(&self, list: &mut Vec<RawFd>) {
        list.push(self.epoll.as_raw_fd());
    }

    fn next_deadline(&self) -> Option<Instant> {
        let checked = self.checked.filter(|_| self.connections() > 0);
        let check = checked.map(|checked| checked + CHECK_PAUSE);
        // Reverse calls are sent by the next turn, which continues with connections that have
        // used their part of a turn, and continues reading if replies were released.
        let released = !self.held.is_empty() && self.records.has_released();
        let goes_on = released || !self.again.is_empty() || !self.outbox.borrow().is_empty();
        let next = self.polled.filter(|_| goes_on);
        let deadlines = check.into_iter().chain(self.pause.deadline()).chain(next);
        deadlines
            .chain(self.shared.flow.clock().next_deadline())
            .min()
    }
}
