//! The data path: posting, exposing and polling.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use millrace_iwarp::{Access as RemoteAccess, Operation as Work, Revocation};
use millrace_mempool::Buffer;

use super::provider::Iwarp;
use crate::fabric::{
    Access, DataPath, Event, ExposeError, Exposure, Key, Operation, PostError, QueuePairId,
    READ_SLICES_MAX, Revoked, Slices, WorkRequest,
};

impl DataPath for Iwarp {
    /// The stream places Read Responses itself, so any number is possible.
    fn read_slices(&self, _: QueuePairId) -> usize {
        READ_SLICES_MAX
    }

    fn send_room(&self, queue_pair: QueuePairId) -> usize {
        match self.slots.get(queue_pair) {
            Some(connection) if connection.is_open() => connection.endpoint.send_room(),
            _ => 0,
        }
    }

    fn wake_descriptor(&self) -> Option<RawFd> {
        Some(self.shared.epoll.as_raw_fd())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.shared.earliest
    }

    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        buffer: Buffer,
    ) -> Result<(), (PostError, Buffer)> {
        match self.open(queue_pair) {
            Some(connection) => connection
                .endpoint
                .post_receive(buffer)
                .map_err(|buffer| (PostError::Full, buffer)),
            None => Err((PostError::Closed, buffer)),
        }
    }

    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError> {
        let Self {
            slots,
            shared,
            dirty,
            ..
        } = self;
        let connection = slots
            .get_mut(queue_pair)
            .filter(|connection| connection.is_open())
            .ok_or(PostError::Closed)?;
        if connection.endpoint.send_room() < chain.len() {
            return Err(PostError::Full);
        }
        for WorkRequest {
            token,
            operation,
            local,
            signalled,
        } in &mut *chain
        {
            let operation = match *operation {
                Operation::Send {
                    invalidate,
                    solicited,
                } => Work::Send {
                    invalidate: invalidate.map(|key| key.0),
                    solicited,
                },
                Operation::Write(remote) => Work::Write {
                    key: remote.key.0,
                    offset: remote.offset,
                },
                Operation::Read(remote) => Work::Read {
                    key: remote.key.0,
                    offset: remote.offset,
                    sink: shared.random(),
                },
                Operation::ReadMore => Work::ReadMore,
            };
            let endpoint = &mut connection.endpoint;
            let posted = endpoint.post_from(*token, operation, local, *signalled);
            debug_assert!(posted, "there was room for the whole chain");
        }
        chain.clear();
        // To be processed in the next flush.
        if !connection.is_dirty {
            connection.is_dirty = true;
            dirty.push(connection.id, &connection.sending);
        }
        Ok(())
    }

    fn expose(
        &mut self,
        queue_pair: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        let random = self.shared.random();
        let Some(connection) = self.open(queue_pair) else {
            return Err((ExposeError::Closed, local));
        };
        let access = match access {
            Access::RemoteRead => RemoteAccess::RemoteRead,
            Access::RemoteWrite => RemoteAccess::RemoteWrite,
        };
        match connection.endpoint.expose(local, access, random) {
            Ok(exposed) => Ok(Exposure {
                key: Key(exposed.key),
                offset: exposed.offset,
                length: exposed.length,
            }),
            Err(local) => Err((ExposeError::Full, local)),
        }
    }

    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked {
        let Some(connection) = self.slots.get_mut(queue_pair) else {
            return Revoked::Unknown;
        };
        if connection.is_ended() {
            // Nothing is sent or received any more, so there is nothing to wait for.
            return match connection.endpoint.revoke(key.0) {
                Revocation::Now(local) => Revoked::Now(local),
                _ => Revoked::Unknown,
            };
        }
        match connection.endpoint.revoke(key.0) {
            Revocation::Now(local) => Revoked::Now(local),
            Revocation::Later => Revoked::Later,
            Revocation::Unknown => Revoked::Unknown,
        }
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        self.poll_all(now, events)
    }

    fn flush(&mut self, _now: Instant) -> usize {
        self.flush_all()
    }

    /// Its descriptor is readable whenever one of its sockets is. A stale change would end the
    /// sleep at once: the next poll consumes it.
    fn arm(&mut self) -> bool {
        if self.has_stale_changes {
            self.asks_next();
        }
        !self.has_stale_changes
    }
}
