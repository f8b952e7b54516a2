//! The end of a TCP connection, and the release of its resources.

use super::{ConnectionId, Ended, TcpServer};
use crate::call::Serve;

impl<S: Serve> TcpServer<S> {
    pub(super) fn end(&mut self, id: ConnectionId, reason: &Ended) {
        let Some(slot) = self.slots.get_mut(id.index as usize) else {
            return;
        };
        if slot.generation != id.generation {
            return;
        }
        // Closing the socket removes it from the epoll set.
        let Some(connection) = slot.connection.take() else {
            return;
        };
        let (identity, flow) = (&connection.identity, &self.shared.flow);
        flow.leave_tcp(identity.share());
        identity.end();
        connection.reverse.end();
        // Its client repeats the waiting calls.
        self.calls.disconnected(identity, drop);
        let peer = identity.peer();
        tracing::debug!(address = %peer.address, port = peer.port, %reason, "TCP connection ended");
        if matches!(reason, Ended::Sending) {
            flow.counters().stuck_sends.add(1);
            if self.polled.is_some_and(|now| self.slow_client.is_due(now)) {
                tracing::warn!(
                    client = %peer.address,
                    port = peer.port,
                    "TCP connection closed: {reason}; logged from time to time"
                );
            }
        }
        slot.generation = slot.generation.wrapping_add(1);
        (slot.held, slot.is_answered, slot.goes_on) = (false, false, false);
        self.free.push(id.index);
        self.counters.ended.add(1);
        if !matches!(
            reason,
            Ended::Closed
                | Ended::Idle
                | Ended::Evicted
                | Ended::MadeRoom
                | Ended::NotAdmitted
                | Ended::Socket(_)
        ) {
            self.counters.misbehaved.add(1);
        }
        if self.pause.end() {
            // A descriptor is free again.
            self.hear_listener(true);
        }
    }
}
