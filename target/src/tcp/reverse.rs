//! Reverse calls to a client, on the TCP connection that the client made: records of both
//! directions share the stream, and their message type distinguishes calls from replies.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use millrace_primitives::TurnQueue;
use millrace_reactor::Clock;
use millrace_wire::rpc::{self, MessageType, RecordMark};

use super::records::{HeldRecord, RecordBudget};
use super::server::ConnectionId;
use crate::rpc::ConnectionRef;
use crate::rpc::reverse::{ReverseCall, ReverseError, ReversePath, ReverseReply, first_xid, until};

/// The most reverse calls in progress for one client.
const CALLS_MAX: usize = 16;

/// The longest call message, and the longest reply. Replies that wait for their callers are charged
/// to the client, like the records of its calls.
const MESSAGE_MAX: usize = 64 << 10;

/// Bytes of the XID, which this side inserts.
const XID: usize = 4;

/// Records to be sent to clients, with their connections.
type OutgoingCalls = RefCell<Vec<(ConnectionId, Vec<u8>)>>;

/// The records of all connections of a server.
pub(super) type Outbox = Rc<OutgoingCalls>;

/// The reverse calls of one connection.
#[derive(Default)]
pub(super) struct ReverseCalls {
    is_allowed: Cell<bool>,
    has_ended: Cell<bool>,
    pending: RefCell<Vec<PendingCall>>,
    /// Waiters until fewer are in progress.
    line: TurnQueue,
}

struct PendingCall {
    xid: u32,
    reply: Option<HeldRecord>,
    waker: Option<Waker>,
}

impl ReverseCalls {
    /// Handles a record that answers a reverse call, and replaces it by memory for the next one.
    /// Returns whether it does.
    pub fn take_reply(
        &self,
        record: &mut Vec<u8>,
        records: &Rc<RecordBudget>,
        connection: &ConnectionRef,
    ) -> bool {
        let mut pending = self.pending.borrow_mut();
        if pending.is_empty() || record.len() > MESSAGE_MAX {
            return false;
        }
        let Ok((xid, MessageType::Reply)) = rpc::peek(record) else {
            return false;
        };
        let awaited = |call: &&mut PendingCall| call.xid == xid && call.reply.is_none();
        let Some(call) = pending.iter_mut().find(awaited) else {
            return false;
        };
        call.reply = Some(records.hold(record, connection));
        if let Some(waker) = call.waker.take() {
            waker.wake();
        }
        true
    }

    /// The connection has ended: wakes all waiters.
    pub fn end(&self) {
        self.has_ended.set(true);
        for call in self.pending.borrow_mut().iter_mut() {
            if let Some(waker) = call.waker.take() {
                waker.wake();
            }
        }
        self.line.end();
    }

    /// Waits until one more call may be in progress, and lists it.
    async fn list(&self, xid: u32) -> ListedCall<'_> {
        let turn = self.line.join();
        turn.until(|_| {
            let is_free = self.pending.borrow().len() < CALLS_MAX;
            match is_free || self.has_ended.get() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        self.pending.borrow_mut().push(PendingCall {
            xid,
            reply: None,
            waker: None,
        });
        ListedCall { calls: self, xid }
    }
}

/// A call in progress, until its caller has the reply or gives up.
struct ListedCall<'a> {
    calls: &'a ReverseCalls,
    xid: u32,
}

impl ListedCall<'_> {
    /// Waits for the reply. None: the connection has ended.
    async fn reply(&self) -> Option<Vec<u8>> {
        poll_fn(|context| {
            let mut pending = self.calls.pending.borrow_mut();
            let mine = pending.iter_mut().find(|call| call.xid == self.xid);
            match mine {
                Some(call) if call.reply.is_some() => {
                    let reply = call.reply.take();
                    Poll::Ready(reply.map(|record| record.bytes.clone()))
                }
                Some(call) if !self.calls.has_ended.get() => {
                    call.waker = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(None),
            }
        })
        .await
    }
}

impl Drop for ListedCall<'_> {
    fn drop(&mut self) {
        let mut pending = self.calls.pending.borrow_mut();
        pending.retain(|call| call.xid != self.xid);
        drop(pending);
        self.calls.line.wake();
    }
}

/// The path for calls to the client of a connection. It does not own the server.
pub(super) struct TcpReversePath {
    id: ConnectionId,
    calls: Rc<ReverseCalls>,
    outbox: Weak<OutgoingCalls>,
    clock: Clock,
    next_xid: Cell<u32>,
}

impl TcpReversePath {
    pub fn new(id: ConnectionId, calls: &Rc<ReverseCalls>, outbox: &Outbox, clock: &Clock) -> Self {
        Self {
            id,
            calls: Rc::clone(calls),
            outbox: Rc::downgrade(outbox),
            clock: clock.clone(),
            next_xid: Cell::new(first_xid()),
        }
    }

    async fn exchange(&self, xid: u32, message: &[u8]) -> Result<Vec<u8>, ReverseError> {
        let lost = ReverseError::ConnectionLost { xid };
        let too_long = ReverseError::TooLong { most: MESSAGE_MAX };
        let mark = RecordMark::whole(message.len()).ok_or(too_long)?;
        let listed = self.calls.list(xid).await;
        if self.calls.has_ended.get() {
            return Err(lost);
        }
        let mut record = Vec::with_capacity(mark.to_bytes().len() + message.len());
        record.extend_from_slice(&mark.to_bytes());
        record.extend_from_slice(&xid.to_be_bytes());
        record.extend_from_slice(&message[XID..]);
        let outbox = self.outbox.upgrade().ok_or(lost)?;
        outbox.borrow_mut().push((self.id, record));
        listed.reply().await.ok_or(lost)
    }
}

impl ReversePath for TcpReversePath {
    fn allow(&self) {
        self.calls.is_allowed.set(true);
    }

    fn call<'a>(&'a self, call: ReverseCall<'a>) -> ReverseReply<'a> {
        Box::pin(async move {
            if !matches!(rpc::peek(call.message), Ok((_, MessageType::Call))) {
                return Err(ReverseError::NotACall);
            }
            if !self.calls.is_allowed.get() {
                return Err(ReverseError::NotReady);
            }
            let next = || self.next_xid.replace(self.next_xid.get().wrapping_add(1));
            let xid = call.repeats.unwrap_or_else(next);
            let message = call.message_under(xid)?;
            if message.len() > MESSAGE_MAX {
                return Err(ReverseError::TooLong { most: MESSAGE_MAX });
            }
            let exchanged = self.exchange(xid, &message);
            let outcome = until(&self.clock, call.deadline, exchanged).await;
            outcome.unwrap_or(Err(ReverseError::TimedOut { xid }))
        })
    }
}
