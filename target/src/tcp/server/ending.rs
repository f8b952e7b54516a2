//! The end of a TCP connection, and what comes back by it.

use super::{Clients, Connection, ConnectionId, Ended, TcpServer};
use crate::call::Serve;

impl<S: Serve> TcpServer<S> {
    /// Ends what a connection that ends has of its client's memory, and the waits of its calls.
    fn let_go(&mut self, id: ConnectionId, connection: &Connection, reason: &Ended) {
        let (Some(flow), Some(memory)) = (&self.flow, &connection.memory) else {
            return;
        };
        flow.leave_tcp(&memory.tenant);
        memory.account.end();
        for &(task, worker) in &self.workers {
            if self.queue.serves(worker, id) {
                self.tasks.wake(task);
            }
        }
        if matches!(reason, Ended::Sending) {
            flow.counters().stuck_sends.add(1);
            if self.polled.is_some_and(|now| self.slow_client.is_due(now)) {
                tracing::warn!(
                    client = %connection.peer.address,
                    port = connection.peer.port,
                    "TCP connection closed: {reason}; told once in a while"
                );
            }
        }
    }

    pub(super) fn end(&mut self, id: ConnectionId, reason: &Ended) {
        let Some(slot) = self.slots.get_mut(id.index as usize) else {
            return;
        };
        if slot.generation != id.generation {
            return;
        }
        // Closing the socket takes it out of the epoll set.
        let Some(connection) = slot.connection.take() else {
            return;
        };
        Clients::close_tcp(&connection.usage);
        let peer = connection.peer;
        self.let_go(id, &connection, reason);
        let Some(slot) = self.slots.get_mut(id.index as usize) else {
            return;
        };
        tracing::debug!(address = %peer.address, port = peer.port, %reason, "TCP connection ended");
        slot.generation = slot.generation.wrapping_add(1);
        slot.held = false;
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
            // Its descriptor is free.
            self.hear_listener(true);
        }
    }
}
