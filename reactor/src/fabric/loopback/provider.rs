//! The provider: one reactor's interface to a loopback network.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::end::{Frame, LoopbackEnd, LoopbackPhase};
use super::network::{LoopbackListener, NetworkState, Request};
use crate::fabric::{
    AdoptError, ConnectParameters, ControlPath, Ended, Event, Incoming, Invalidation, ListenerId,
    PRIVATE_DATA_MAX, PostError, PrivateData, QueuePairId, QueuePairLimits, SLICES_MAX,
};

/// The timeout of a connection request, and of an orderly close.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// One provider of a [`super::Network`].
pub struct Loopback {
    pub(super) state: Rc<RefCell<NetworkState>>,
    pub(super) index: usize,
}

impl Loopback {
    pub(super) fn new(state: Rc<RefCell<NetworkState>>, index: usize) -> Self {
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
    /// The connections of peers are reset.
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        for listener in &mut state.providers[self.index].listeners {
            *listener = None;
        }
        for index in 0..state.ends.len() {
            if state.ends[index].provider == self.index
                && state.ends[index].phase != LoopbackPhase::Free
            {
                state.break_off(index);
            }
        }
        // Undelivered memory is returned to its pools.
        let events = std::mem::take(&mut state.providers[self.index].events);
        drop(state);
        drop(events);
    }
}

impl ControlPath for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn remote_invalidation(&self) -> Invalidation {
        Invalidation::BOTH
    }

    fn exposure_slices(&self) -> usize {
        SLICES_MAX
    }

    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        let state = self.state.borrow();
        let listener = state.providers[self.index]
            .listeners
            .get(listener.0 as usize)?
            .as_ref()?;
        Some(listener.address)
    }

    fn listener_socket(&self, _: ListenerId) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connections(&self) -> usize {
        let state = self.state.borrow();
        let mine =
            |end: &&LoopbackEnd| end.provider == self.index && end.phase != LoopbackPhase::Free;
        state.ends.iter().filter(mine).count()
    }

    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr> {
        let state = self.state.borrow();
        let index = state.find(self.index, queue_pair)?;
        state.ends[index].local
    }

    fn device_name(&self, _: QueuePairId) -> Option<String> {
        None
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
        listeners.push(Some(LoopbackListener { address, limits }));
        Ok(ListenerId(
            u32::try_from(listeners.len() - 1).expect("fewer than 2^32 listeners"),
        ))
    }

    fn listen_on(&mut self, _: OwnedFd, _: QueuePairLimits, _: bool) -> io::Result<ListenerId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn limit_listener(&mut self, _: ListenerId, _: QueuePairLimits) {}

    fn stop_listening(&mut self, listener: ListenerId) {
        let mut state = self.state.borrow_mut();
        if let Some(listener) = state.providers[self.index]
            .listeners
            .get_mut(listener.0 as usize)
        {
            *listener = None;
        }
    }

    fn adopt(&mut self, _: Incoming, _: Instant) -> Result<(), AdoptError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
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
        let index = state.add(self.index, LoopbackPhase::Connecting, limits);
        state.ends[index].deadline = Some(now + CONNECTION_TIMEOUT);
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
        if end.phase != LoopbackPhase::Asked {
            return Err(PostError::Closed);
        }
        let ConnectParameters {
            limits,
            private_data,
        } = parameters;
        end.phase = LoopbackPhase::Established;
        end.limits = limits;
        // The peer's values limit ours (RFC 6581 section 9.1).
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
        if state.ends[index].phase != LoopbackPhase::Asked {
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

    fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32) {
        let state = &mut *self.state.borrow_mut();
        if let Some(index) = state.find(self.index, queue_pair) {
            let limits = &mut state.ends[index].limits;
            limits.receive_depth = limits.receive_depth.max(receive_depth);
        }
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
        if end.phase != LoopbackPhase::Closing {
            end.phase = LoopbackPhase::Closing;
            end.deadline = clock.map(|clock| clock + CONNECTION_TIMEOUT);
        }
    }

    fn abort(&mut self, queue_pair: QueuePairId) {
        let state = &mut *self.state.borrow_mut();
        if let Some(index) = state.find(self.index, queue_pair) {
            state.break_off(index);
        }
    }
}

impl NetworkState {
    /// Advances released work, and ends closed or timed-out connections.
    pub(super) fn advance(&mut self, provider: usize, now: Instant) {
        for index in 0..self.ends.len() {
            let end = &self.ends[index];
            if end.provider != provider || end.phase == LoopbackPhase::Free {
                continue;
            }
            self.pump(index);
            let end = &self.ends[index];
            let late = end.deadline.is_some_and(|deadline| deadline <= now);
            match end.phase {
                LoopbackPhase::Closing if end.send_queue.is_empty() => {
                    self.send(index, Frame::End(Ended::Peer));
                    self.end(index, Ended::Local);
                }
                LoopbackPhase::Closing if late => self.break_off(index),
                LoopbackPhase::Connecting if late => {
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

    /// Ends a connection at once, like a reset.
    pub(super) fn break_off(&mut self, index: usize) {
        self.send(
            index,
            Frame::End(Ended::Network(io::ErrorKind::ConnectionReset)),
        );
        self.end(index, Ended::Local);
    }
}
