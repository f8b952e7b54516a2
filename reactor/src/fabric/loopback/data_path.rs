//! The data path: posting, exposing and polling.

use std::os::fd::RawFd;
use std::time::Instant;

use millrace_mempool::Buffer;

use super::end::{Exposed, LoopbackPhase, QueuedWork};
use super::provider::Loopback;
use super::scatter;
use crate::fabric::{
    Access, DataPath, Event, ExposeError, Exposure, Key, PostError, QueuePairId, READ_SLICES_MAX,
    Revoked, Slices, WorkRequest,
};

impl DataPath for Loopback {
    fn read_slices(&self, _: QueuePairId) -> usize {
        READ_SLICES_MAX
    }

    fn send_room(&self, queue_pair: QueuePairId) -> usize {
        let state = self.state.borrow();
        state
            .find(self.index, queue_pair)
            .map_or(0, |index| state.ends[index].send_room())
    }

    fn wake_descriptor(&self) -> Option<RawFd> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let state = self.state.borrow();
        let port = &state.providers[self.index];
        if !port.events.is_empty() {
            return state.clock;
        }
        let requests = port.requests.front().map(|request| request.due);
        let ends = state.ends.iter().filter(|end| end.provider == self.index);
        let dues = ends.flat_map(|end| {
            let closable = end.phase == LoopbackPhase::Closing && end.send_queue.is_empty();
            let close = state.clock.filter(|_| closable);
            [end.next_due(), end.deadline, close]
        });
        dues.chain([requests]).flatten().min()
    }

    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        buffer: Buffer,
    ) -> Result<(), (PostError, Buffer)> {
        let state = &mut *self.state.borrow_mut();
        let Some(index) = state.find(self.index, queue_pair) else {
            return Err((PostError::Closed, buffer));
        };
        let end = &mut state.ends[index];
        if end.phase == LoopbackPhase::Closing {
            Err((PostError::Closed, buffer))
        } else if end.receives.len() >= end.limits.receive_depth as usize {
            Err((PostError::Full, buffer))
        } else {
            end.receives.push_back(buffer);
            Ok(())
        }
    }

    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError> {
        let state = &mut *self.state.borrow_mut();
        let index = state
            .find(self.index, queue_pair)
            .ok_or(PostError::Closed)?;
        let end = &mut state.ends[index];
        if !end.is_open() {
            return Err(PostError::Closed);
        }
        if chain.len() > end.send_room() {
            return Err(PostError::Full);
        }
        end.send_queue
            .extend(chain.drain(..).map(|request| QueuedWork {
                request,
                result: None,
            }));
        Ok(())
    }

    fn expose(
        &mut self,
        queue_pair: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        let state = &mut *self.state.borrow_mut();
        let open = state
            .find(self.index, queue_pair)
            .filter(|&index| state.ends[index].is_open());
        let Some(index) = open else {
            return Err((ExposeError::Closed, local));
        };
        let end = &state.ends[index];
        if end.exposures.len() + end.late_keys.len() >= end.limits.exposures as usize {
            return Err((ExposeError::Full, local));
        }
        let length = u32::try_from(scatter::length(&local)).expect("below 4 GiB");
        let (key, offset) = state.new_key(index);
        let exposure = Exposure {
            key,
            offset,
            length,
        };
        state.ends[index].exposures.push(Exposed {
            exposure,
            access,
            local,
            dead: false,
            dies: None,
        });
        Ok(exposure)
    }

    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked {
        let state = &mut *self.state.borrow_mut();
        let Some(index) = state.find(self.index, queue_pair) else {
            return Revoked::Unknown;
        };
        let exposures = &mut state.ends[index].exposures;
        let found = exposures
            .iter()
            .position(|exposed| exposed.exposure.key == key);
        let Some(found) = found else {
            return Revoked::Unknown;
        };
        if exposures[found].dies.is_some() {
            return Revoked::Later;
        }
        let dead = exposures[found].dead;
        if !dead && state.happens(state.faults.late_revocations) {
            state.ends[index].exposures[found].dies = Some(state.later());
            return Revoked::Later;
        }
        let exposed = state.ends[index].exposures.swap_remove(found);
        if state.happens(state.faults.late_slots) {
            let free = state.later();
            state.ends[index].late_keys.push(free);
        }
        if state.defer_revocations && !dead {
            state.revoked(index, exposed);
            return Revoked::Later;
        }
        Revoked::Now(exposed.local)
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        let state = &mut *self.state.borrow_mut();
        let now = state.set_clock(now);
        let delivered = state.deliver(self.index, now);
        state.advance(self.index, now);
        let reported = state.providers[self.index].events.len();
        let count = reported.min(events.capacity() - events.len());
        for _ in 0..count {
            events.extend(state.next_event(self.index));
        }
        delivered + count
    }

    fn flush(&mut self, now: Instant) -> usize {
        let state = &mut *self.state.borrow_mut();
        state.set_clock(now);
        let mut work = 0;
        for index in 0..state.ends.len() {
            let end = &mut state.ends[index];
            let posted = end.first + end.send_queue.len() as u64;
            if end.provider == self.index && end.released < posted {
                work += usize::try_from(posted - end.released).expect("queued in memory");
                end.released = posted;
                state.pump(index);
            }
        }
        work
    }

    fn arm(&mut self) -> bool {
        true
    }
}
