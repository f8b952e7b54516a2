//! What is told of TCP connections, and done to single ones.

use std::time::Instant;

use super::{ConnectionId, Ended, TcpServer};
use crate::call::{Peer, Serve, TurnEnd};
use crate::flow::Usage;

/// One connection, for status.
#[derive(Clone, Copy, Debug)]
pub struct TcpReport<'a> {
    /// Its identifier, unique in the process.
    pub id: u64,
    /// The client.
    pub peer: Peer,
    /// When it was taken in.
    pub since: Instant,
    /// The most calls at once whose replies had not been handed to the socket, in the latest one
    /// to two seconds.
    pub in_flight: u32,
    /// What it has used.
    pub usage: &'a Usage,
}

impl<S: Serve> TcpServer<S> {
    /// Reports on each that is open.
    pub fn reports(&self, now: Instant) -> impl Iterator<Item = TcpReport<'_>> {
        let open = self
            .slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref());
        open.map(move |connection| TcpReport {
            id: connection.id,
            peer: connection.peer,
            since: connection.since,
            in_flight: connection.in_flight_peak(now),
            usage: &connection.usage,
        })
    }

    /// Closes the connection with this identifier at once. Whether there is one.
    pub fn close(&mut self, id: u64) -> bool {
        let at = self.slots.iter().position(|slot| {
            let connection = slot.connection.as_ref();
            connection.is_some_and(|connection| connection.id == id)
        });
        let Some(index) = at else { return false };
        let id = ConnectionId {
            index: index as u32,
            generation: self.slots[index].generation,
        };
        self.end(id, &Ended::Evicted);
        true
    }

    /// The reactor has come to the end of a turn: counts the calls that were answered in it.
    pub fn turned(&self, end: &TurnEnd) {
        self.answered
            .settle(end, |usage, took| usage.answered(took));
    }
}
