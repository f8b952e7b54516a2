//! A provider that notes what is asked of it.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Slice};
use millrace_reactor::fabric::loopback::Loopback;
use millrace_reactor::fabric::{
    Access, ConnectParameters, Event, ExposeError, Exposure, Incoming, Invalidation, Key,
    ListenerId, Operation, PostError, Provider, QueuePairId, QueuePairLimits, Revoked, Slices,
    WorkRequest,
};

/// One thing that the client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Expose(Key, Access, u32),
    Revoke(Key),
    PostReceive,
    Send {
        bytes: usize,
        pieces: usize,
        invalidate: Option<Key>,
    },
    Close,
    Other,
}

pub type Trace = Rc<RefCell<Vec<Step>>>;

pub struct Traced {
    pub inner: Loopback,
    pub trace: Trace,
    /// What it says it can do.
    pub invalidates: bool,
    /// The key of the next exposure, whatever the provider says.
    pub next_key: Option<Key>,
    /// What happens elsewhere before the client looks.
    pub meanwhile: Option<Box<dyn FnMut()>>,
    /// Keys cannot be revoked.
    pub holds_on: bool,
    /// The send queue has no room.
    pub full: bool,
}

impl Traced {
    fn note(&self, step: Step) {
        self.trace.borrow_mut().push(step);
    }
}

impl Provider for Traced {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn exposure_slices(&self) -> usize {
        self.inner.exposure_slices()
    }
    fn remote_invalidation(&self) -> Invalidation {
        Invalidation {
            sends: self.invalidates,
            receives: self.invalidates,
        }
    }
    fn listen(
        &mut self,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        self.inner.listen(address, limits, hand_over)
    }
    fn adopt(&mut self, incoming: Incoming, now: Instant) -> io::Result<()> {
        self.inner.adopt(incoming, now)
    }
    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.inner.listener_address(listener)
    }
    fn connections(&self) -> usize {
        self.inner.connections()
    }
    fn stop_listening(&mut self, listener: ListenerId) {
        self.inner.stop_listening(listener);
    }
    fn connect(
        &mut self,
        address: SocketAddr,
        parameters: ConnectParameters,
        now: Instant,
    ) -> io::Result<QueuePairId> {
        self.inner.connect(address, parameters, now)
    }
    fn accept(&mut self, id: QueuePairId, parameters: ConnectParameters) -> Result<(), PostError> {
        self.inner.accept(id, parameters)
    }
    fn reject(&mut self, id: QueuePairId, private_data: &[u8]) {
        self.inner.reject(id, private_data);
    }
    fn post_receive(&mut self, id: QueuePairId, buffer: Buffer) -> Result<(), (PostError, Buffer)> {
        self.note(Step::PostReceive);
        self.inner.post_receive(id, buffer)
    }
    fn post(&mut self, id: QueuePairId, chain: &mut Vec<WorkRequest>) -> Result<(), PostError> {
        if self.full {
            return Err(PostError::Full);
        }
        for request in &*chain {
            self.note(match request.operation {
                Operation::Send { invalidate, .. } => Step::Send {
                    invalidate,
                    bytes: request.local.iter().map(Slice::len).sum(),
                    pieces: request.local.len(),
                },
                _ => Step::Other,
            });
        }
        self.inner.post(id, chain)
    }
    fn send_room(&self, id: QueuePairId) -> usize {
        if self.full {
            return 0;
        }
        self.inner.send_room(id)
    }
    fn expose(
        &mut self,
        id: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        let mut exposure = self.inner.expose(id, local, access)?;
        exposure.key = self.next_key.take().unwrap_or(exposure.key);
        self.note(Step::Expose(exposure.key, access, exposure.length));
        Ok(exposure)
    }
    fn revoke(&mut self, id: QueuePairId, key: Key) -> Revoked {
        self.note(Step::Revoke(key));
        if self.holds_on {
            return Revoked::Unknown;
        }
        self.inner.revoke(id, key)
    }
    fn limit_reads(&mut self, id: QueuePairId, reads: u16) {
        self.inner.limit_reads(id, reads);
    }
    fn close(&mut self, id: QueuePairId) {
        self.note(Step::Close);
        self.inner.close(id);
    }
    fn abort(&mut self, id: QueuePairId) {
        self.note(Step::Close);
        self.inner.abort(id);
    }
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile();
        }
        self.inner.poll(now, events)
    }
    fn flush(&mut self, now: Instant) -> usize {
        self.inner.flush(now)
    }
    fn wake_descriptor(&self) -> Option<RawFd> {
        self.inner.wake_descriptor()
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }
}
