//! The connection of a call, as programs see it.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_mempool::MemoryAccount;

use super::call::{Peer, TransportKind};
use super::reverse::{ReverseCall, ReverseError, ReversePath, ReverseReply};
use crate::flow::{ClientShare, Flow, Usage};

/// A connection, as seen by calls and programs: the client, the transport, the account that calls
/// are charged to, and the reverse direction. Clones are the same connection, which lives on one
/// reactor.
#[derive(Clone)]
pub struct ConnectionRef {
    record: Rc<ConnectionRecord>,
}

struct ConnectionRecord {
    id: u64,
    peer: Peer,
    since: Instant,
    share: Rc<ClientShare>,
    memory: Rc<MemoryAccount>,
    usage: Usage,
    ended: Cell<bool>,
    /// Calls with a wrong verifier since the last one with a good one.
    unsigned: Cell<u32>,
    reverse: OnceCell<Box<dyn ReversePath>>,
    associations: RefCell<ArrayVec<[u8; 16], ASSOCIATIONS>>,
    end_notices: RefCell<Vec<EndNotice>>,
}

/// Most things that a connection is remembered to be associated with.
const ASSOCIATIONS: usize = 16;

/// Calls with wrong verifiers, one after the other, that end a connection.
const UNSIGNED_MAX: u32 = 100;

/// What is done when a connection ends.
type EndNotice = Box<dyn FnOnce()>;

impl ConnectionRef {
    /// A connection of a client, established at `since`; `share` is the client's share of the
    /// reactor.
    #[must_use]
    pub fn new(flow: &Flow, share: Rc<ClientShare>, peer: Peer, since: Instant) -> Self {
        Self {
            record: Rc::new(ConnectionRecord {
                id: flow.clients().new_connection(),
                peer,
                since,
                memory: MemoryAccount::new(share.memory()),
                usage: flow.usage(&share),
                share,
                ended: Cell::new(false),
                unsigned: Cell::new(0),
                reverse: OnceCell::new(),
                associations: RefCell::default(),
                end_notices: RefCell::default(),
            }),
        }
    }

    /// Its identifier, unique in the process and never used again. Sessions are bound to it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.record.id
    }

    /// The client's end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.record.peer
    }

    /// The client's address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.record.peer.address
    }

    /// What carries it.
    #[must_use]
    pub fn transport(&self) -> TransportKind {
        self.record.peer.transport
    }

    /// When it was accepted.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.record.since
    }

    /// Its client's part of the reactor.
    #[must_use]
    pub fn share(&self) -> &Rc<ClientShare> {
        &self.record.share
    }

    /// The part of its client's memory that its calls hold.
    #[must_use]
    pub fn memory(&self) -> &Rc<MemoryAccount> {
        &self.record.memory
    }

    /// The resources it has used.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.record.usage
    }

    /// Whether it has ended, so that answers can no longer be sent.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.record.ended.get()
    }

    /// Notes that it has ended, and ends the waits for its client's memory.
    pub fn end(&self) {
        self.record.ended.set(true);
        self.record.memory.end();
        for notice in self.record.end_notices.take() {
            notice();
        }
    }

    /// A call had a verifier that was good, or wrong. False if so many were wrong that no more calls
    /// are to be taken.
    pub(super) fn verified(&self, is_good: bool) -> bool {
        let wrong = match is_good {
            true => 0,
            false => self.record.unsigned.get() + 1,
        };
        self.record.unsigned.set(wrong);
        wrong < UNSIGNED_MAX
    }

    /// Has something done when it ends; at once if it has.
    pub fn on_end(&self, notice: impl FnOnce() + 'static) {
        match self.has_ended() {
            true => notice(),
            false => self.record.end_notices.borrow_mut().push(Box::new(notice)),
        }
    }

    /// Associates it with something that a program identifies so, such as a session.
    pub fn associate(&self, with: &[u8; 16]) {
        let mut known = self.record.associations.borrow_mut();
        // The latest first, so that the steady state compares one.
        if known.first() == Some(with) {
            return;
        }
        match known.iter().position(|one| one == with) {
            Some(at) => known.swap(0, at),
            None => {
                if known.is_full() {
                    known.pop();
                }
                known.insert(0, *with);
            }
        }
    }

    /// Whether it is associated with something; also if it may have been, among too many to
    /// remember.
    #[must_use]
    pub fn is_associated(&self, with: &[u8; 16]) -> bool {
        let known = self.record.associations.borrow();
        known.is_full() || known.contains(with)
    }

    /// Whether it is associated with something. It may have been, among too many to remember.
    #[must_use]
    pub fn is_surely_associated(&self, with: &[u8; 16]) -> bool {
        self.record.associations.borrow().contains(with)
    }

    /// Whether its transport can call the client.
    #[must_use]
    pub fn has_reverse(&self) -> bool {
        self.record.reverse.get().is_some()
    }

    /// Sets the way to call the client back. The first one set counts.
    pub fn set_reverse(&self, path: impl ReversePath + 'static) {
        let _ = self.record.reverse.set(Box::new(path));
    }

    /// Allows calls to the client on this connection. The client must have announced that it
    /// accepts them (RFC 8167 section 6): in NFS version 4.1 by CREATE_SESSION or
    /// BIND_CONN_TO_SESSION.
    pub fn allow_reverse(&self) {
        if let Some(path) = self.record.reverse.get() {
            path.allow();
        }
    }

    /// Calls the client and returns its RPC reply message. When the future is dropped the call may
    /// have been sent all the same. It allocates.
    ///
    /// # Errors
    /// [`ReverseError`].
    pub fn call_client<'a>(&'a self, call: ReverseCall<'a>) -> ReverseReply<'a> {
        match (self.record.reverse.get(), call.protection) {
            (Some(path), None) => path.call(call),
            (Some(path), Some(protection)) => Box::pin(async move {
                let reply = path.call(call).await?;
                protection.open(&reply).ok_or(ReverseError::Unverified)
            }),
            (None, _) => Box::pin(std::future::ready(Err(ReverseError::NotReady))),
        }
    }
}

impl PartialEq for ConnectionRef {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.record, &other.record)
    }
}

impl Eq for ConnectionRef {}

impl fmt::Debug for ConnectionRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut record = formatter.debug_struct("ConnectionRef");
        record.field("id", &self.id()).field("peer", &self.peer());
        record.finish_non_exhaustive()
    }
}
