//! Reverse calls: from the server to a client, on the connection that the client made (RFC 8167,
//! version two draft section 4.2).
//!
//! Reverse calls have their own XIDs and credits: the credit word of a reverse call is a request,
//! that of the client's reply a grant, and neither affects those of the client's calls. They are
//! sent inline only, in the version of the client's calls, and only after the upper layer knows
//! that the client is ready for them ([`ReversePath::allow`]). For each reverse call in progress,
//! one receive is posted beyond those for the client's grant. The server never makes a connection:
//! unanswered calls of an ended connection are repeated by the upper layer on the client's next
//! one.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::Poll;

use millrace_mempool::Class;
use millrace_primitives::TurnQueue;
use millrace_reactor::fabric::WorkError;
use millrace_wire::rpc::{self, MessageType};
use millrace_wire::rpcrdma::{Body, CreditWindow, Header, Rules, Version, encode_plain_header};
use millrace_wire::xdr::Encoder;

use super::answer::{Prepared, ReplyForm};
use super::{RdmaConnection, ResponderShared};
use crate::rpc::reverse::{ReverseCall, ReverseError, ReversePath, ReverseReply, until};

/// The most reverse calls in progress for one client, whatever it grants.
pub const CALLS_MAX: u32 = 16;

/// Bytes of the XID, which this side inserts.
const XID: usize = 4;

/// The reverse calls of one connection.
pub(super) struct Reverse {
    /// Calls that may be answered. Stored separately, as it is needed for each reply to the
    /// client's own calls.
    open: Cell<u32>,
    state: RefCell<ReverseState>,
    /// Waiters for a credit, first come, first served.
    line: TurnQueue,
}

struct ReverseState {
    allowed: bool,
    ended: bool,
    window: CreditWindow,
    calls: Vec<Pending>,
}

struct Pending {
    /// The waker, which distinguishes it from all others.
    waiter: u64,
    xid: u32,
    version: u32,
    stage: Stage,
}

enum Stage {
    Awaited,
    /// It has no waiter, but the client still has the call and its credit.
    GivenUp,
    Answered(Result<Vec<u8>, u32>),
}

impl Default for Reverse {
    fn default() -> Self {
        let state = ReverseState {
            allowed: false,
            ended: false,
            window: CreditWindow::new(CALLS_MAX),
            calls: Vec::new(),
        };
        Self {
            open: Cell::new(0),
            state: RefCell::new(state),
            line: TurnQueue::default(),
        }
    }
}

impl Pending {
    fn is_open(&self) -> bool {
        !matches!(self.stage, Stage::Answered(_))
    }
}

impl Reverse {
    /// Receives needed for replies.
    pub fn receives(&self) -> u32 {
        self.open.get()
    }

    /// Modifies the calls.
    fn change<T>(&self, change: impl FnOnce(&mut ReverseState) -> T) -> T {
        let state = &mut *self.state.borrow_mut();
        let changed = change(state);
        let open = state.calls.iter().filter(|call| call.is_open()).count();
        // Each has a credit, which limits their number.
        self.open.set(u32::try_from(open).unwrap_or(CALLS_MAX));
        changed
    }

    /// Handles the answer to a reverse call; returns whether it was expected.
    pub fn take<S>(&self, shared: &ResponderShared<S>, header: &Header<'_>, rules: &Rules) -> bool {
        let outcome = match (header.body, header.reverse_message(rules)) {
            (Body::Error(error), _) => Err(error.code()),
            (_, Ok(message)) => Ok(message),
            _ => return false,
        };
        let words = header.words;
        let found = self.change(|state| {
            let mut calls = state.calls.iter_mut();
            let (at, call) = calls.by_ref().enumerate().find(|(_, call)| {
                let version = outcome.is_err() || call.version == words.version;
                call.is_open() && version && call.xid == words.xid
            })?;
            // The direction of an error is uncertain, so its credits are no grant (RFC 8167 section
            // 4.1).
            match outcome {
                Ok(_) => state.window.answered(words.credits, true),
                Err(_) => state.window.returned(),
            }
            if let Stage::Awaited = call.stage {
                call.stage = Stage::Answered(outcome.map(<[u8]>::to_vec));
                return Some(Some(call.waiter));
            }
            state.calls.remove(at);
            Some(None)
        });
        if found.is_some() {
            self.line.wake();
        }
        let waiter = found.flatten();
        waiter.is_some_and(|waiter| shared.completions.complete(waiter, Ok(())).is_ok())
    }

    /// The connection has ended: wakes all waiters.
    pub fn end<S>(&self, shared: &ResponderShared<S>) {
        let calls = self.change(|state| {
            state.ended = true;
            std::mem::take(&mut state.calls)
        });
        self.line.end();
        let awaited = calls
            .iter()
            .filter(|call| matches!(call.stage, Stage::Awaited));
        for call in awaited {
            // Waiters woken earlier find that it has ended.
            let flushed = Err(WorkError::Flushed);
            let _ = shared.completions.complete(call.waiter, flushed);
        }
    }

    /// Takes a credit, if there is one; `Some(false)`: the connection has ended.
    fn try_take_credit(&self) -> Option<bool> {
        let state = &mut *self.state.borrow_mut();
        let free = state.window.has_room();
        if free && !state.ended {
            state.window.sent();
        }
        (free || state.ended).then_some(!state.ended)
    }
}

/// A credit, returned if its call is not sent.
struct Credit<'a> {
    reverse: &'a Reverse,
    is_sent: bool,
}

impl<'a> Credit<'a> {
    /// Waits for one. None: the connection has ended.
    async fn take(reverse: &'a Reverse) -> Option<Self> {
        let turn = reverse.line.join();
        let taken = turn.until(|_| reverse.try_take_credit().map_or(Poll::Pending, Poll::Ready));
        taken.await.then(|| Self {
            reverse,
            is_sent: false,
        })
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        if !self.is_sent {
            self.reverse.state.borrow_mut().window.returned();
            self.reverse.line.wake();
        }
    }
}

/// A listed call, until its caller has its outcome or gives up.
struct Listed<'a> {
    credit: Credit<'a>,
    waiter: u64,
}

impl<'a> Listed<'a> {
    fn new(credit: Credit<'a>, xid: u32, version: u32, waiter: u64) -> Self {
        let call = Pending {
            waiter,
            xid,
            version,
            stage: Stage::Awaited,
        };
        credit.reverse.change(|state| state.calls.push(call));
        Self { credit, waiter }
    }

    /// The answer, if any.
    fn outcome(&self) -> Option<Result<Vec<u8>, u32>> {
        self.credit.reverse.change(|state| {
            let mut calls = state.calls.iter();
            let found = calls.position(|call| call.waiter == self.waiter && !call.is_open())?;
            match state.calls.remove(found).stage {
                Stage::Answered(outcome) => Some(outcome),
                Stage::Awaited | Stage::GivenUp => None,
            }
        })
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.credit.reverse.change(|state| {
            let mut calls = state.calls.iter_mut();
            let Some(at) = calls.position(|call| call.waiter == self.waiter) else {
                return;
            };
            if self.credit.is_sent && state.calls[at].is_open() {
                state.calls[at].stage = Stage::GivenUp;
            } else {
                state.calls.remove(at);
            }
        });
    }
}

impl RdmaConnection {
    /// Reverse calls: the client's grant, and the number of credits in use.
    #[must_use]
    pub fn reverse_credits(&self) -> (u32, u32) {
        let state = self.reverse.state.borrow();
        (state.window.limit(), state.window.in_flight())
    }

    /// Calls the client and returns its RPC reply message. Waits for a credit first.
    async fn call_client<S>(
        self: &Rc<Self>,
        shared: &ResponderShared<S>,
        call: ReverseCall<'_>,
    ) -> Result<Vec<u8>, ReverseError> {
        if !matches!(rpc::peek(call.message), Ok((_, MessageType::Call))) {
            return Err(ReverseError::NotACall);
        }
        let xid = call.repeats.unwrap_or_else(|| shared.reverse_xid());
        let message = call.message_under(xid)?;
        let exchanged = self.exchange(shared, xid, &message);
        match until(&shared.clock, call.deadline, exchanged).await {
            Some(outcome) => outcome,
            None => Err(ReverseError::TimedOut { xid }),
        }
    }

    /// The version of a reverse call, and the length of its header.
    fn outgoing(&self, message: &[u8]) -> Result<(Version, usize), ReverseError> {
        let allowed = self.reverse.state.borrow().allowed;
        let version = self.version().filter(|_| allowed);
        let version = version.ok_or(ReverseError::NotReady)?;
        let headroom = version.shortest();
        // The limit of replies to the client's calls applies to calls to it (RFC 8167 section 4.2).
        let most = self.inline().limit(version).saturating_sub(headroom);
        if message.len() > most {
            return Err(ReverseError::TooLong { most });
        }
        Ok((version, headroom))
    }

    async fn exchange<S>(
        self: &Rc<Self>,
        shared: &ResponderShared<S>,
        xid: u32,
        message: &[u8],
    ) -> Result<Vec<u8>, ReverseError> {
        let lost = ReverseError::ConnectionLost { xid };
        self.outgoing(message)?;
        let credit = Credit::take(&self.reverse).await.ok_or(lost)?;
        // The client may have used another version in the meantime.
        let (version, headroom) = self.outgoing(message)?;
        let (waiter, wait) = shared.completions.register();
        let mut listed = Listed::new(credit, xid, version.number(), waiter);
        self.cover_reverse(shared).await.map_err(|_| lost)?;
        let length = headroom + message.len();
        let mut buffer = if length <= Class::Control.size() {
            self.reply_buffer(shared).await.map_err(|_| lost)?
        } else {
            let obtained = shared.pool.obtain_another(length).await;
            obtained.map_err(|_| lost)?
        };
        let mut out = Encoder::new(&mut buffer);
        let encoded = encode_plain_header(&mut out, version, xid, 0, MessageType::Call);
        debug_assert!(encoded.is_ok(), "the buffer holds the longest header");
        buffer[headroom..length].copy_from_slice(message);
        buffer[headroom..headroom + XID].copy_from_slice(&xid.to_be_bytes());
        let whole = std::iter::once(buffer.into_slice(0..length));
        let mut call = Prepared {
            form: ReplyForm::None,
            ..Prepared::new(xid, shared.chain(), None, whole)
        };
        let posted = call.send(shared, self, CALLS_MAX).await;
        posted.map_err(|_| lost)?;
        listed.credit.is_sent = true;
        for counters in [self.counters(), &*shared.counters] {
            counters.reverse_calls.add(1);
        }
        wait.await.map_err(|_| lost)?;
        let outcome = listed.outcome().ok_or(lost)?;
        outcome.map_err(|code| ReverseError::Refused { code })
    }
}

/// The path for calls to the client of a connection. It owns neither the connection nor shared
/// state.
pub(super) struct RdmaReversePath<S> {
    pub connection: Weak<RdmaConnection>,
    pub shared: Weak<ResponderShared<S>>,
}

impl<S> ReversePath for RdmaReversePath<S> {
    fn allow(&self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.reverse.state.borrow_mut().allowed = true;
        }
    }

    fn call<'a>(&'a self, call: ReverseCall<'a>) -> ReverseReply<'a> {
        Box::pin(async move {
            match (self.connection.upgrade(), self.shared.upgrade()) {
                (Some(connection), Some(shared)) => connection.call_client(&shared, call).await,
                _ => Err(ReverseError::NotReady),
            }
        })
    }
}
