//! The provider: the face of one reactor's queue pairs on a loopback network.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_mempool::Buffer;

use super::end::{End, Entry, Exposed, Frame, Phase};
use super::network::{Listener, Request, State};
use super::scatter;
use crate::fabric::{
    Access, ConnectParameters, Ended, Event, ExposeError, Exposure, Incoming, Key, ListenerId,
    PRIVATE_DATA_MAX, PostError, PrivateData, Provider, QueuePairId, QueuePairLimits,
    READ_SLICES_MAX, Revoked, Slices, WorkRequest,
};

/// How long a connection request may go unanswered, and an orderly close unfinished.
const PATIENCE: Duration = Duration::from_secs(10);

/// One provider of a [`super::Network`].
pub struct Loopback {
    state: Rc<RefCell<State>>,
    index: usize,
}

impl Loopback {
    pub(super) fn new(state: Rc<RefCell<State>>, index: usize) -> Self {
        Self { state, index }
    }
}

impl fmt::Debug for Loopback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Loopback")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl Drop for Loopback {
    /// Peers find their connections reset.
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        for listener in &mut state.providers[self.index].listeners {
            *listener = None;
        }
        for index in 0..state.ends.len() {
            if state.ends[index].provider == self.index && state.ends[index].phase != Phase::Free {
                state.break_off(index);
            }
        }
        // What nobody will fetch any more goes back to its pools.
        let events = std::mem::take(&mut state.providers[self.index].events);
        drop(state);
        drop(events);
    }
}

impl Provider for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn read_slices(&self, _: QueuePairId) -> usize {
        READ_SLICES_MAX
    }

    /// Listeners that hand over are not supported: connections stay on this thread.
    fn listen(
        &mut self,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        if hand_over {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let state = &mut *self.state.borrow_mut();
        let address = state.bind(address)?;
        let listeners = &mut state.providers[self.index].listeners;
        listeners.push(Some(Listener { address, limits }));
        Ok(ListenerId(
            u32::try_from(listeners.len() - 1).expect("fewer than 2^32 listeners"),
        ))
    }

    fn adopt(&mut self, _: Incoming, _: Instant) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        let state = self.state.borrow();
        let listener = state.providers[self.index]
            .listeners
            .get(listener.0 as usize)?
            .as_ref()?;
        Some(listener.address)
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        let mut state = self.state.borrow_mut();
        if let Some(listener) = state.providers[self.index]
            .listeners
            .get_mut(listener.0 as usize)
        {
            *listener = None;
        }
    }

    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr> {
        let state = self.state.borrow();
        let index = state.find(self.index, queue_pair)?;
        state.ends[index].local
    }

    fn connections(&self) -> usize {
        let state = self.state.borrow();
        let mine = |end: &&End| end.provider == self.index && end.phase != Phase::Free;
        state.ends.iter().filter(mine).count()
    }

    fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32) {
        let state = &mut *self.state.borrow_mut();
        if let Some(index) = state.find(self.index, queue_pair) {
            let limits = &mut state.ends[index].limits;
            limits.receive_depth = limits.receive_depth.max(receive_depth);
        }
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        parameters: ConnectParameters,
        now: Instant,
    ) -> io::Result<QueuePairId> {
        let state = &mut *self.state.borrow_mut();
        let now = state.set_clock(now);
        let ConnectParameters {
            limits,
            private_data,
        } = parameters;
        let index = state.add(self.index, Phase::Connecting, limits);
        state.ends[index].deadline = Some(now + PATIENCE);
        let from = state.id(index);
        let due = state.later();
        let refused = state.happens(state.faults.refused_connections);
        match state.listener(address).filter(|_| !refused) {
            Some((provider, listener)) => {
                let peer = state.ephemeral(self.index);
                state.ends[index].local = Some(peer);
                let requests = &state.providers[provider].requests;
                let due = requests.back().map_or(due, |last| due.max(last.due));
                let request = Request {
                    due,
                    from,
                    peer,
                    listener,
                    private_data,
                };
                state.providers[provider].requests.push_back(request);
            }
            None => state.ends[index].arrivals.push_back((due, Frame::Refused)),
        }
        Ok(from)
    }

    fn accept(
        &mut self,
        queue_pair: QueuePairId,
        parameters: ConnectParameters,
    ) -> Result<(), PostError> {
        let state = &mut *self.state.borrow_mut();
        let index = state
            .find(self.index, queue_pair)
            .ok_or(PostError::Closed)?;
        let end = &mut state.ends[index];
        if end.phase != Phase::Asked {
            return Err(PostError::Closed);
        }
        let ConnectParameters {
            limits,
            private_data,
        } = parameters;
        end.phase = Phase::Established;
        end.limits = limits;
        // What the peer stated bounds what we set (RFC 6581 section 9.1).
        end.depths.ird = limits.ird.min(end.depths.peer_ord.unwrap_or(limits.ird));
        end.depths.ord = limits.ord.min(end.depths.peer_ird.unwrap_or(limits.ord));
        let depths = end.depths;
        let private_data = Box::new(private_data);
        state.send(
            index,
            Frame::Accepted {
                private_data,
                ird: depths.ird,
                ord: depths.ord,
            },
        );
        let private_data = PrivateData::new();
        state.report(
            index,
            Event::Established {
                queue_pair,
                private_data,
                depths,
            },
        );
        Ok(())
    }

    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]) {
        let state = &mut *self.state.borrow_mut();
        let Some(index) = state.find(self.index, queue_pair) else {
            return;
        };
        if state.ends[index].phase != Phase::Asked {
            return;
        }
        let bytes = &private_data[..private_data.len().min(PRIVATE_DATA_MAX)];
        let private_data = Box::new(bytes.iter().copied().collect());
        let QueuePairLimits { ird, ord, .. } = state.ends[index].limits;
        state.send(
            index,
            Frame::Rejected {
                private_data,
                ird,
                ord,
            },
        );
        state.release(index);
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
        if end.phase == Phase::Closing {
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
        end.send_queue.extend(chain.drain(..).map(|request| Entry {
            request,
            result: None,
        }));
        Ok(())
    }

    fn send_room(&self, queue_pair: QueuePairId) -> usize {
        let state = self.state.borrow();
        state
            .find(self.index, queue_pair)
            .map_or(0, |index| state.ends[index].send_room())
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

    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16) {
        let state = &mut *self.state.borrow_mut();
        if let Some(index) = state.find(self.index, queue_pair) {
            state.ends[index].reads_most = reads;
            state.pump(index);
        }
    }

    fn close(&mut self, queue_pair: QueuePairId) {
        let state = &mut *self.state.borrow_mut();
        let Some(index) = state.find(self.index, queue_pair) else {
            return;
        };
        let clock = state.clock;
        let end = &mut state.ends[index];
        if end.phase != Phase::Closing {
            end.phase = Phase::Closing;
            end.deadline = clock.map(|clock| clock + PATIENCE);
        }
    }

    fn abort(&mut self, queue_pair: QueuePairId) {
        let state = &mut *self.state.borrow_mut();
        if let Some(index) = state.find(self.index, queue_pair) {
            state.break_off(index);
        }
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
            let closable = end.phase == Phase::Closing && end.send_queue.is_empty();
            let close = state.clock.filter(|_| closable);
            [end.next_due(), end.deadline, close]
        });
        dues.chain([requests]).flatten().min()
    }
}

impl State {
    /// Moves on what has become free to go, and ends what is closed or out of time.
    fn advance(&mut self, provider: usize, now: Instant) {
        for index in 0..self.ends.len() {
            let end = &self.ends[index];
            if end.provider != provider || end.phase == Phase::Free {
                continue;
            }
            self.pump(index);
            let end = &self.ends[index];
            let late = end.deadline.is_some_and(|deadline| deadline <= now);
            match end.phase {
                Phase::Closing if end.send_queue.is_empty() => {
                    self.send(index, Frame::End(Ended::Peer));
                    self.end(index, Ended::Local);
                }
                Phase::Closing if late => self.break_off(index),
                Phase::Connecting if late => {
                    self.send(
                        index,
                        Frame::End(Ended::Network(io::ErrorKind::ConnectionReset)),
                    );
                    self.end(
                        index,
                        Ended::TimedOut("no answer to the connection request"),
                    );
                }
                _ => {}
            }
        }
    }

    /// Ends a connection at once, as a reset does.
    fn break_off(&mut self, index: usize) {
        self.send(
            index,
            Frame::End(Ended::Network(io::ErrorKind::ConnectionReset)),
        );
        self.end(index, Ended::Local);
    }
}
