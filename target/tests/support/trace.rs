//! A provider that notes what is asked of it, and checks what must hold at every moment.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Slice};
use millrace_reactor::fabric::testing::{Wired, Wrapper};
use millrace_reactor::fabric::{
    Access, ConnectParameters, Event, ExposeError, Exposure, Invalidation, Key, Operation,
    PostError, Provider, QueuePairId, RemoteAddress, Revoked, Slices, WorkRequest,
};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{Header, Rules};

use super::raw::gather;

/// What the responder asked of its provider, or was told by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    PostReceive,
    Received,
    Send {
        bytes: Vec<u8>,
        invalidate: Option<Key>,
    },
    Write(RemoteAddress, usize),
    Read(RemoteAddress, usize),
    /// A work request that was waited for ended, well or not.
    Completed(bool),
    Expose,
    /// Whether the memory came back at once.
    Revoke(bool),
    Revoked,
    Disconnected,
}

/// One queue pair's receives and messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receives {
    pub posted: usize,
    /// Messages received that have an answer coming.
    pub received: usize,
    pub sent: usize,
    /// Replies with read chunks whose RDMA_DONE has not come.
    pub fetched: usize,
    /// RDMA_DONE messages of this turn, whose receives are about to be posted again.
    pub dones: usize,
    /// Credits announced last.
    pub granted: usize,
    /// Calls sent to the client whose replies have not come.
    pub reverse: usize,
}

/// RDMA_DONE messages that a client may owe before the responder counts on fewer: the usual bound
/// of a connection's exposures.
const DONES_MAX: usize = 16;

/// The word of a message at this place, if it is there.
fn word(message: &[u8], index: usize) -> Option<u32> {
    let bytes = message.get(4 * index..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

/// Whether a message is an RDMA_DONE.
fn is_done(message: &[u8]) -> bool {
    (word(message, 1), word(message, 3)) == (Some(1), Some(3))
}

/// Whether a reply has a read list, which only those of version one may.
fn has_reads(message: &[u8]) -> bool {
    word(message, 1) == Some(1)
        && matches!(word(message, 3), Some(0 | 1))
        && word(message, 4) == Some(1)
}

/// Whether a message belongs to the client's calls or to those of the responder.
fn direction(message: &[u8]) -> Option<MessageType> {
    let header = Header::parse(message, &Rules::default()).ok()?;
    header.direction()
}

/// What was noted.
#[derive(Debug, Default)]
pub struct Notes {
    pub trace: Vec<Trace>,
    pub receives: HashMap<QueuePairId, Receives>,
    /// Where in a page each posted receive begins, and how long it is.
    pub places: Vec<(usize, usize)>,
    /// Bounds of RDMA Reads.
    pub read_limits: Vec<u16>,
    /// Chains posted since the last flush, and those of each flush.
    pub unflushed: usize,
    pub flushed: Vec<usize>,
}

impl Notes {
    pub fn take(&mut self) -> Vec<Trace> {
        std::mem::take(&mut self.trace)
    }
}

/// A provider under watch.
pub struct Recorder {
    pub inner: Wired,
    pub notes: Rc<RefCell<Notes>>,
    pub invalidates: bool,
}

impl Recorder {
    fn note(&self, trace: Trace) {
        self.notes.borrow_mut().trace.push(trace);
    }

    /// Receives cover what a message announces (RFC 8166 section 3.3.1).
    fn check_grant(&self, queue_pair: QueuePairId, message: &[u8]) {
        let mut notes = self.notes.borrow_mut();
        let receives = notes.receives.entry(queue_pair).or_default();
        if direction(message) == Some(MessageType::Call) {
            // Its word is a wish.
            receives.reverse += 1;
        } else {
            receives.sent += 1;
            receives.fetched += usize::from(has_reads(message));
            receives.granted = word(message, 2).unwrap() as usize;
            assert!(receives.granted >= 1, "a grant is never zero");
        }
        let in_service = receives.received - receives.sent + receives.dones;
        let beyond = receives.fetched.min(DONES_MAX) + receives.reverse;
        assert!(
            receives.posted + in_service > receives.granted + beyond,
            "credits and a spare receive are not covered: {receives:?}"
        );
    }
}

impl Wrapper for Recorder {
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

    fn connect(
        &mut self,
        _: SocketAddr,
        _: ConnectParameters,
        _: Instant,
    ) -> io::Result<QueuePairId> {
        panic!("a responder never connects")
    }

    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        buffer: Buffer,
    ) -> Result<(), (PostError, Buffer)> {
        let place = (buffer.as_ptr().addr() % 4096, buffer.capacity());
        self.inner_mut().post_receive(queue_pair, buffer)?;
        self.note(Trace::PostReceive);
        let mut notes = self.notes.borrow_mut();
        notes.places.push(place);
        notes.receives.entry(queue_pair).or_default().posted += 1;
        Ok(())
    }

    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError> {
        let length = |local: &[Slice]| -> usize { local.iter().map(Slice::len).sum() };
        let mut traces = Vec::new();
        for request in chain.iter() {
            traces.push(match request.operation {
                Operation::Send { invalidate, .. } => Trace::Send {
                    bytes: gather(&request.local),
                    invalidate,
                },
                Operation::Write(to) => Trace::Write(to, length(&request.local)),
                Operation::Read(from) => Trace::Read(from, length(&request.local)),
                Operation::ReadMore => {
                    let Some(Trace::Read(_, bytes)) = traces.last_mut() else {
                        panic!("no Read precedes it");
                    };
                    *bytes += length(&request.local);
                    continue;
                }
            });
        }
        self.inner_mut().post(queue_pair, chain)?;
        self.notes.borrow_mut().unflushed += 1;
        for trace in traces {
            if let Trace::Send { bytes, .. } = &trace {
                self.check_grant(queue_pair, bytes);
            }
            self.note(trace);
        }
        Ok(())
    }

    fn flush(&mut self, now: Instant) -> usize {
        let notes = &mut *self.notes.borrow_mut();
        match std::mem::take(&mut notes.unflushed) {
            0 => {}
            chains => notes.flushed.push(chains),
        }
        self.inner.flush(now)
    }

    fn expose(
        &mut self,
        queue_pair: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        self.note(Trace::Expose);
        self.inner_mut().expose(queue_pair, local, access)
    }

    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked {
        let revoked = self.inner_mut().revoke(queue_pair, key);
        self.note(Trace::Revoke(matches!(revoked, Revoked::Now(_))));
        revoked
    }

    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16) {
        self.notes.borrow_mut().read_limits.push(reads);
        self.inner_mut().limit_reads(queue_pair, reads);
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        let work = self.inner_mut().poll(now, events);
        let mut notes = self.notes.borrow_mut();
        for receives in notes.receives.values_mut() {
            receives.dones = 0;
        }
        for event in &events[before..] {
            match event {
                Event::Received {
                    queue_pair,
                    buffer,
                    length,
                    ..
                } => {
                    let receives = notes.receives.entry(*queue_pair).or_default();
                    receives.posted -= 1;
                    let message = &buffer[..*length as usize];
                    if is_done(message) {
                        receives.fetched = receives.fetched.saturating_sub(1);
                        receives.dones += 1;
                    } else if receives.reverse > 0 && direction(message) == Some(MessageType::Reply)
                    {
                        receives.reverse -= 1;
                    } else {
                        receives.received += 1;
                    }
                    notes.trace.push(Trace::Received);
                }
                Event::Revoked { .. } => notes.trace.push(Trace::Revoked),
                Event::Completed { result, .. } => {
                    notes.trace.push(Trace::Completed(result.is_ok()));
                }
                Event::Disconnected { queue_pair, .. } => {
                    notes.receives.remove(queue_pair);
                    notes.trace.push(Trace::Disconnected);
                }
                _ => {}
            }
        }
        work
    }
}
