//! Calls from here to a client, by the connection that the client made (RFC 8167, version two draft
//! section 4.2).
//!
//! Such calls have XIDs and credits of their own: the credit word of a call from here is a wish,
//! that of the client's reply a grant, and neither touches those of the client's calls. They go
//! inline only, in the version that the client calls in, and not before the upper layer knows that
//! the client is ready for them ([`Connection::allow_reverse`]). While they wait for their reply, a
//! receive more than the client's grant asks for is posted for each. A connection is never made
//! from here: what was not answered when it ended is for the upper layer to repeat on the client's
//! next one.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use millrace_mempool::Class;
use millrace_primitives::TurnQueue;
use millrace_reactor::Clock;
use millrace_reactor::fabric::{Slices, WorkError};
use millrace_wire::rpc::{self, MessageType};
use millrace_wire::rpcrdma::{
    Body, CallChunks, Header, Lists, Outgoing, Rules, Version, encode_header,
};
use millrace_wire::xdr::Encoder;

use super::{Connection, Shared, answer};

/// Most calls from here that one client may have in progress, whatever it grants.
pub const CALLS_MAX: u32 = 16;

/// Bytes of the XID, which this side puts in.
const XID: usize = 4;

/// A call to a client.
#[derive(Clone, Copy, Debug)]
pub struct ReverseCall<'a> {
    /// An RPC call message. What stands for its XID does not matter.
    pub message: &'a [u8],
    /// The XID to use again, of a call that was not answered, if this is its repetition.
    pub repeats: Option<u32>,
    /// When to give up.
    pub deadline: Instant,
}

/// Why there is no reply from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReverseError {
    /// Nobody has said that the client is ready for calls.
    #[error("the client is not known to take calls")]
    NotReady,
    /// The message is no RPC call.
    #[error("the message is no call")]
    NotACall,
    /// The message is longer than this many bytes, and calls to clients are not chunked.
    #[error("the message is longer than {most} bytes")]
    TooLong {
        /// Bytes that it may have.
        most: usize,
    },
    /// There was no reply, or no credit, in time.
    #[error("no reply to call {xid:#010x} in time")]
    TimedOut {
        /// The XID of the call.
        xid: u32,
    },
    /// The connection ended first. The call can be repeated on the client's next one.
    #[error("the connection ended before the reply to call {xid:#010x}")]
    ConnectionLost {
        /// The XID of the call.
        xid: u32,
    },
    /// The client answered with an error of the transport.
    #[error("the client refused the call with error {code}")]
    Refused {
        /// The error code (RFC 8166 section 4.5, version two draft section 5.2.4).
        code: u32,
    },
}

/// The calls from here on one connection.
pub(super) struct Reverse {
    /// Calls whose replies may come. Kept apart, as it is asked for at each reply to the client's
    /// own calls.
    open: Cell<u32>,
    state: RefCell<State>,
    /// Who waits for a credit, first come first.
    line: TurnQueue,
}

struct State {
    allowed: bool,
    ended: bool,
    /// The client's grant; one until it has told any (RFC 8166 section 3.3.1).
    granted: u32,
    /// Credits that are in use.
    used: u32,
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
        let state = State {
            allowed: false,
            ended: false,
            granted: 1,
            used: 0,
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
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let state = &mut *self.state.borrow_mut();
        let changed = change(state);
        let open = state.calls.iter().filter(|call| call.is_open()).count();
        // Each has a credit, and there are not more of those.
        self.open.set(u32::try_from(open).unwrap_or(CALLS_MAX));
        changed
    }

    /// Takes a message that answers a call from here; whether anybody waited for it.
    pub fn take<S>(&self, shared: &Shared<S>, header: &Header<'_>, rules: &Rules) -> bool {
        let (outcome, grant) = match header.body {
            Body::Message {
                lists,
                message,
                padding: None,
            } if lists == Lists::default() && header.check_xid(message, rules).is_ok() => {
                (Ok(message), Some(header.words.credits))
            }
            // Credits in an error are no grant (version two draft section 6).
            Body::Error(error) => (Err(error.code()), None),
            _ => return false,
        };
        let words = header.words;
        let found = self.change(|state| {
            let mut calls = state.calls.iter_mut();
            let (at, call) = calls.by_ref().enumerate().find(|(_, call)| {
                let version = outcome.is_err() || call.version == words.version;
                call.is_open() && version && call.xid == words.xid
            })?;
            if let Some(grant) = grant {
                state.granted = grant.clamp(1, CALLS_MAX);
            }
            if let Stage::Awaited = call.stage {
                call.stage = Stage::Answered(outcome.map(<[u8]>::to_vec));
                return Some(Some(call.waiter));
            }
            state.calls.remove(at);
            Some(None)
        });
        match found {
            None => false,
            // Who waits has its credit to give back.
            Some(Some(waiter)) => shared
                .completions
                .complete(waiter, Ok(Slices::new()))
                .is_ok(),
            Some(None) => {
                self.release();
                false
            }
        }
    }

    /// The connection has ended: wakes all who wait.
    pub fn end<S>(&self, shared: &Shared<S>) {
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

    /// Gives a credit back, and on to who waits for one.
    fn release(&self) {
        self.state.borrow_mut().used -= 1;
        self.line.wake();
    }

    /// Takes a credit, if there is one; `Some(false)`: the connection has ended.
    fn try_take_credit(&self) -> Option<bool> {
        let state = &mut *self.state.borrow_mut();
        let free = state.used < state.granted;
        if free && !state.ended {
            state.used += 1;
        }
        (free || state.ended).then_some(!state.ended)
    }
}

/// A credit.
struct Credit<'a> {
    reverse: &'a Reverse,
    /// The client has it.
    is_spent: bool,
}

impl<'a> Credit<'a> {
    /// Waits for one. None: the connection has ended.
    async fn take(reverse: &'a Reverse) -> Option<Self> {
        let turn = reverse.line.join();
        let taken = turn.until(|_| reverse.try_take_credit().map_or(Poll::Pending, Poll::Ready));
        taken.await.then(|| Self {
            reverse,
            is_spent: false,
        })
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        if !self.is_spent {
            self.reverse.release();
        }
    }
}

/// A call that is listed, until its caller has its outcome or gives up.
struct Listed<'a> {
    credit: Credit<'a>,
    waiter: u64,
    sent: bool,
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
        Self {
            credit,
            waiter,
            sent: false,
        }
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
        let (sent, waiter) = (self.sent, self.waiter);
        let left = self.credit.reverse.change(|state| {
            let mut calls = state.calls.iter_mut();
            let mine = |(_, call): &(usize, &mut Pending)| call.waiter == waiter;
            let Some((at, call)) = calls.by_ref().enumerate().find(mine) else {
                return false;
            };
            if sent && call.is_open() {
                call.stage = Stage::GivenUp;
                return true;
            }
            state.calls.remove(at);
            false
        });
        self.credit.is_spent = left;
    }
}

impl Connection {
    /// Says that the client takes calls on this connection, as it has told the upper layer (RFC
    /// 8167 section 6): NFS version 4.1 knows by CREATE_SESSION or BIND_CONN_TO_SESSION.
    pub fn allow_reverse(&self) {
        self.reverse.state.borrow_mut().allowed = true;
    }

    /// Calls from here: the client's grant, and how many of it are in use.
    #[must_use]
    pub fn reverse_credits(&self) -> (u32, u32) {
        let state = self.reverse.state.borrow();
        (state.granted, state.used)
    }

    /// Calls the client and returns its RPC reply message. Waits for a credit first. When this
    /// future is dropped the call may have been sent all the same.
    ///
    /// # Errors
    /// [`ReverseError`].
    pub async fn call_client<S>(
        self: &Rc<Self>,
        shared: &Shared<S>,
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
        let headroom = version.before_lists() + Lists::EMPTY_LENGTH;
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
        shared: &Shared<S>,
        xid: u32,
        message: &[u8],
    ) -> Result<Vec<u8>, ReverseError> {
        let lost = ReverseError::ConnectionLost { xid };
        self.outgoing(message)?;
        let credit = Credit::take(&self.reverse).await.ok_or(lost)?;
        // The client may have called in another version meanwhile.
        let (version, headroom) = self.outgoing(message)?;
        let chunks = CallChunks::default();
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
        let outgoing = Outgoing {
            version,
            xid,
            credits: 0,
            inline: true,
            direction: MessageType::Call,
            invalidate: 0,
        };
        let encoded = encode_header(&mut Encoder::new(&mut buffer), &outgoing, &chunks);
        debug_assert!(encoded.is_ok(), "the buffer holds the longest header");
        buffer[headroom..length].copy_from_slice(message);
        buffer[headroom..headroom + XID].copy_from_slice(&xid.to_be_bytes());
        let posted = answer::send_plain(shared, self, buffer, length, CALLS_MAX).await;
        posted.map_err(|_| lost)?;
        listed.sent = true;
        for counters in [self.counters(), &*shared.counters] {
            counters.reverse_calls.add(1);
        }
        wait.await.map_err(|_| lost)?;
        let outcome = listed.outcome().ok_or(lost)?;
        outcome.map_err(|code| ReverseError::Refused { code })
    }
}

/// What a future comes to by a deadline.
async fn until<F: Future>(clock: &Clock, deadline: Instant, future: F) -> Option<F::Output> {
    let (mut future, mut late) = (pin!(future), pin!(clock.sleep_until(deadline)));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => late.as_mut().poll(context).map(|()| None),
    })
    .await
}
