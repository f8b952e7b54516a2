//! A provider that notes what is asked of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Slice};
use millrace_reactor::fabric::testing::{Wired, Wrapper};
use millrace_reactor::fabric::{
    Access, Event, ExposeError, Exposure, Invalidation, Key, Operation, PostError, Provider,
    QueuePairId, Revoked, Slices, WorkRequest,
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
    /// From this offset of the server's, into so many bytes.
    Read(u64, usize),
    Close,
    Other,
}

pub type Trace = Rc<RefCell<Vec<Step>>>;

pub struct Traced {
    pub inner: Wired,
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

impl Wrapper for Traced {
    fn inner(&self) -> &dyn Provider {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Provider {
        &mut self.inner
    }
    fn remote_invalidation(&self) -> Invalidation {
        Invalidation {
            sends: self.invalidates,
            receives: self.invalidates,
        }
    }
    fn post_receive(&mut self, id: QueuePairId, buffer: Buffer) -> Result<(), (PostError, Buffer)> {
        self.note(Step::PostReceive);
        self.inner_mut().post_receive(id, buffer)
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
                Operation::Read(from) => {
                    Step::Read(from.offset, request.local.iter().map(Slice::len).sum())
                }
                _ => Step::Other,
            });
        }
        self.inner_mut().post(id, chain)
    }
    fn send_room(&self, id: QueuePairId) -> usize {
        if self.full {
            return 0;
        }
        self.inner().send_room(id)
    }
    fn expose(
        &mut self,
        id: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        let mut exposure = self.inner_mut().expose(id, local, access)?;
        exposure.key = self.next_key.take().unwrap_or(exposure.key);
        self.note(Step::Expose(exposure.key, access, exposure.length));
        Ok(exposure)
    }
    fn revoke(&mut self, id: QueuePairId, key: Key) -> Revoked {
        self.note(Step::Revoke(key));
        if self.holds_on {
            return Revoked::Unknown;
        }
        self.inner_mut().revoke(id, key)
    }
    fn close(&mut self, id: QueuePairId) {
        self.note(Step::Close);
        self.inner_mut().close(id);
    }
    fn abort(&mut self, id: QueuePairId) {
        self.note(Step::Close);
        self.inner_mut().abort(id);
    }
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile();
        }
        self.inner_mut().poll(now, events)
    }
}
