//! The data path: posting, exposing and polling.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use millrace_mempool::Buffer;

use super::connection::kind;
use super::device_queues::DeviceQueues;
use super::exposures::Ending;
use super::poll::queues_of;
use super::provider::Verbs;
use super::send_queue::Work;
use crate::fabric::{
    Access, DataPath, Event, ExposeError, Exposure, Key, PostError, QueuePairId, Revoked, Slices,
    WorkRequest,
};

impl DataPath for Verbs {
    /// As many as its device supports in one work request.
    fn read_slices(&self, queue_pair: QueuePairId) -> usize {
        self.slots
            .get(queue_pair)
            .map_or(1, |connection| connection.send.read_ranges())
    }

    fn send_room(&self, queue_pair: QueuePairId) -> usize {
        match self.slots.get(queue_pair) {
            Some(connection) if connection.course.is_open() => connection.send.room(),
            _ => 0,
        }
    }

    fn wake_descriptor(&self) -> Option<RawFd> {
        Some(self.common.epoll.as_raw_fd())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.common.earliest
    }

    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        buffer: Buffer,
    ) -> Result<(), (PostError, Buffer)> {
        let Self {
            slots,
            device_queues,
            common,
            ..
        } = self;
        let connection = slots
            .get_mut(queue_pair)
            .filter(|connection| connection.course.is_open());
        let Some(connection) = connection else {
            return Err((PostError::Closed, buffer));
        };
        let queues = queues_of(connection, device_queues);
        connection
            .post_receive(buffer, queues)
            .map_err(|buffer| (PostError::Full, buffer))?;
        common.counters.fabric.work[3].posted.add(1);
        self.touch(queue_pair.index);
        Ok(())
    }

    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError> {
        let connection = self
            .slots
            .get_mut(queue_pair)
            .filter(|connection| connection.course.is_open())
            .ok_or(PostError::Closed)?;
        if connection.send.room() < chain.len() {
            return Err(PostError::Full);
        }
        for request in chain.drain(..) {
            let posted = &self.common.counters.fabric.work[kind(&request.operation)].posted;
            posted.add(1);
            connection.send.post(request);
        }
        self.touch(queue_pair.index);
        Ok(())
    }

    fn expose(
        &mut self,
        queue_pair: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        let Self {
            slots,
            device_queues,
            ..
        } = self;
        let connection = slots
            .get_mut(queue_pair)
            .filter(|connection| connection.course.is_open());
        let Some(connection) = connection else {
            return Err((ExposeError::Closed, local));
        };
        // Before the peer's device is known no peer could get the key.
        let Some(queues) = queues_of(connection, device_queues) else {
            return Err((ExposeError::Closed, local));
        };
        let DeviceQueues { windows, keys, .. } = queues;
        let (exposure, binding) = connection.exposures.expose(local, access, windows, keys)?;
        if let Some(slot) = binding {
            connection.send.post_own(Work::Bind(slot));
            self.touch(queue_pair.index);
        }
        Ok(exposure)
    }

    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked {
        let revoked = self.with(queue_pair, |connection, queues, _| {
            let Some(queues) = queues.filter(|_| !connection.course.is_ending()) else {
                // Its memory is released with the queue pair.
                return Revoked::Unknown;
            };
            match connection.exposures.revoke(key, &mut queues.windows) {
                Ending::Now(local) => Revoked::Now(local),
                Ending::Request(slot) => {
                    connection.send.post_own(Work::Invalidate(slot));
                    Revoked::Later
                }
                Ending::Unknown => Revoked::Unknown,
            }
        });
        if matches!(revoked, Some(Revoked::Later)) {
            self.touch(queue_pair.index);
        }
        revoked.unwrap_or(Revoked::Unknown)
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        self.poll_all(now, events)
    }

    fn flush(&mut self, now: Instant) -> usize {
        self.common.now = now;
        self.flush_all()
    }

    fn arm(&mut self) -> bool {
        self.arm_all()
    }
}
