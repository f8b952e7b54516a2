//! RDMA connections of addresses that no export admits: a limited number, each for a short time and
//! without receives beyond the first ones. A client that is admitted in the meantime keeps its
//! connection.
//!
//! Requests beyond the limit are rejected before any queue pair is made. On an RDMA device the
//! queue pair of an accepted one has its full depth from the start: the client may be admitted
//! later, and hardly any device can deepen the queues of a queue pair (`RESIZE_MAX_WR`). The device
//! resources used for such addresses are therefore limited by their number, [`MOST`] on each
//! reactor. With `shared_receives` of the listener no receive queue is made for a connection at
//! all.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{RdmaConnection, ResponderShared};

/// The most of them on one reactor.
const MOST: usize = 8;

/// The most of them from one address.
const MOST_OF_ADDRESS: usize = 2;

/// They are closed after this time, which is enough for a call and its answer.
const LIFETIME: Duration = Duration::from_secs(10);

/// The interval of reviews.
const REVIEW_PAUSE: Duration = Duration::from_millis(500);

/// The connections of such addresses.
#[derive(Default)]
pub struct UnadmittedConnections {
    connections: Vec<Rc<RdmaConnection>>,
    reviewed: Option<Instant>,
}

impl UnadmittedConnections {
    /// Whether one more from an address is permitted.
    pub fn has_room(&self, address: IpAddr) -> bool {
        let open = || self.connections.iter().filter(|one| !one.is_broken());
        let own = open().filter(|one| one.peer().address == address);
        open().count() < MOST && own.count() < MOST_OF_ADDRESS
    }

    /// Adds one.
    pub fn add(&mut self, connection: &Rc<RdmaConnection>, now: Instant) {
        connection.set_unadmitted(true);
        self.reviewed.get_or_insert(now);
        // They may end faster than they are reviewed.
        self.connections.retain(|other| !other.is_broken());
        self.connections.push(Rc::clone(connection));
    }

    /// Closes those whose time has passed, and releases those that an export admits now. Returns
    /// the number closed.
    pub fn review<S>(&mut self, shared: &ResponderShared<S>, now: Instant) -> usize {
        if self.next_deadline().is_none_or(|due| now < due) {
            return 0;
        }
        let mut closed = 0;
        self.connections.retain(|connection| {
            if connection.is_broken() {
                return false;
            }
            if shared.admits(connection.peer().address) {
                connection.set_unadmitted(false);
                return false;
            }
            if now.saturating_duration_since(connection.since()) < LIFETIME {
                return true;
            }
            connection.close(true);
            closed += 1;
            false
        });
        self.reviewed = (!self.connections.is_empty()).then_some(now);
        closed
    }

    /// When the next review is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.reviewed.map(|reviewed| reviewed + REVIEW_PAUSE)
    }
}
