//! Calls from here to a client, by the connection that the client made (RFC 8167, version two draft
//! section 4.2).
//!
//! Such calls have XIDs and credits of their own: the credit word of a call from here is a wish,
//! that of the client's reply a grant, and neither touches those of the client's calls. They go
//! inline only, in the version that the client calls in, and not before the upper layer knows that
//! the client is ready for them ([`ReversePath::allow`]). While they wait for their reply, a
//! receive more than the client's grant asks for is posted for each. A connection is never made
//! from here: what was not answered when it ended is for the upper layer to repeat on the client's
//! next one.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::Poll;

use millrace_mempool::Class;
use millrace_primitives::TurnQueue;
use millrace_reactor::fabric::WorkError;
use millrace_wire::rpc::{self, MessageType};
use millrace_wire::rpcrdma::{Body, CreditWindow, Header, Rules, Version, encode_plain_header};
use millrace_wire::xdr::Encoder;

use super::{RdmaConnection, ResponderShared, answer};
use crate::rpc::reverse::{ReverseCall, ReverseError, ReversePath, ReverseReply, until};

/// Most calls from here that one client may have in progress, whatever it grants.
pub const CALLS_MAX: u32 = 16;

/// Bytes of the XID, which this side puts in.
const XID: usize = 4;

/// The calls from here on one connection.
pub(super) struct Reverse {
    /// Calls whose replies may come. Kept apart, as it is asked for at each reply to the client's
    /// own calls.
    open: Cell<u32>,
    state: RefCell<ReverseState>,
    /// Who waits for a credit, first come first.
    line: TurnQueue,
}

struct ReverseState {
    allowed: bool,
    ended: bool,
    window: CreditWindow,
    calls: Vec<Pending>,
}

struct Pending {
    /// Whom to wake, which tells it from all others.
    waiter: u64,
    xid: u32,
    version: u32,
    stage: Stage,
}

enum Stage {
    Awaited,
    /// Nobody waits any more, but the client still has the call and its credit.
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
    /// Receives to be kept for replies.
    pub fn receives(&self) -> u32 {
        self.open.get()
    }

    /// Changes the calls.
    fn change<T>(&self, change: impl FnOnce(&mut ReverseState) -> T) -> T {
        let state = &mut *self.state.borrow_mut();
        let changed = change(state);
        let open = state.calls.iter().filter(|call| call.is_open()).count();
        // Each has a credit, and there are not more of those.
        self.open.set(u32::try_from(open).unwrap_or(CALLS_MAX));
        changed
    }

    /// Takes a message that answers a call from here; whether anybody waited for it.
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
            // The direction of an error is not certain, so its credits are no grant (RFC 8167
            // section 4.1).
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

    /// The connection has ended: wakes all who wait.
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
            // Who was woken before finds that it has ended.
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

/// A credit, given back if its call is not sent after all.
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

/// A call that is listed, until its caller has its outcome or gives up.
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

    /// What was answered, if anything.
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
    /// Calls from here: the client's grant, and how many of it are in use.
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
        let exchanged = self.exchange(shared, xid, call.message);
        match until(&shared.clock, call.deadline, exchanged).await {
            Some(outcome) => outcome,
            None => Err(ReverseError::TimedOut { xid }),
        }
    }

    /// The version that a call from here has to have, and the bytes of its header.
    fn outgoing(&self, message: &[u8]) -> Result<(Version, usize), ReverseError> {
        let allowed = self.reverse.state.borrow().allowed;
        let version = self.version().filter(|_| allowed);
        let version = version.ok_or(ReverseError::NotReady)?;
        let headroom = version.shortest();
        // What holds for replies to the client's calls holds for calls to it (RFC 8167 section
        // 4.2).
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
        // The client may have called in another version meanwhile.
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
        let posted = answer::send_plain(shared, self, buffer, length, CALLS_MAX).await;
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

/// The way to call the client of a connection. It keeps neither the connection nor what is shared.
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
