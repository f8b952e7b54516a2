//! The connection configuration protocol (RFC 5666 section 6), asked as the first call.
//!
//! It is a call like any other under the rules of the start: one message of at most 1024 bytes, and
//! no other before its reply. Whatever but results comes back leaves the limits as they were. A
//! server that answers nothing at all is given up, and the next connection begins without it.

use std::time::Instant;

use millrace_mempool::Class;
use millrace_reactor::fabric::Provider;
use millrace_wire::ccp::{self, Limits, Wish};
use millrace_wire::rpc::{CallHeader, Credential, MessageType, OpaqueAuth};
use millrace_wire::rpcrdma::{
    Body, CallChunks, Header, MIN_INLINE, Outgoing, Version, encode_header,
};
use millrace_wire::xdr::{Encode, Encoder};

use super::call::Reply;
use super::connection::{Connection, State};

/// How far the exchange is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// There is none, or it is over.
    #[default]
    Over,
    /// The call has not left.
    ToSend,
    /// Its reply is awaited.
    Sent,
    /// No reply in time: the connection is to end.
    Lost,
}

/// The exchange of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Configuration {
    step: Step,
    xid: u32,
    deadline: Option<Instant>,
    limits: Option<Limits>,
}

impl Configuration {
    /// Whether calls have to wait.
    pub fn is_underway(&self) -> bool {
        self.step != Step::Over
    }

    /// Whether this is the reply that is awaited.
    pub fn awaits(&self, xid: u32) -> bool {
        self.step == Step::Sent && self.xid == xid
    }

    /// What the server told.
    pub const fn limits(&self) -> Option<Limits> {
        self.limits
    }

    /// Whether the server does RDMA Reads. It says how many it serves, and a server that serves
    /// none is not asked to do any either (RFC 5666 section 6.2).
    pub fn allows_read_chunks(&self) -> bool {
        self.limits.is_none_or(|limits| limits.reads > 0)
    }

    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Sets the deadline, if there is something to wait for.
    pub fn wait_until(&mut self, deadline: Instant) -> Option<Instant> {
        self.deadline = self.is_underway().then_some(deadline);
        self.deadline
    }

    /// Gives up waiting when it is time, and says so: the connection is to end.
    pub fn expire(&mut self, now: Instant) -> bool {
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        let lost = late && self.is_underway();
        if late {
            self.deadline = None;
        }
        if lost {
            self.step = Step::Lost;
        }
        lost
    }

    /// The connection has ended: there is nothing to wait for.
    pub const fn stop_waiting(&mut self) {
        self.deadline = None;
    }
}

impl Connection {
    /// What was agreed held for the connection before only.
    pub(super) fn begin_configuration(&mut self) {
        let wanted = self.settings.ccp.is_some() && self.settings.identity.is_somebody();
        let lost = matches!(self.configuration.step, Step::Sent | Step::Lost);
        self.configuration = Configuration::default();
        if wanted && !lost {
            self.configuration.step = Step::ToSend;
            self.configuration.xid = self.own_xid();
        }
    }

    /// Sends the call when it may be sent. Returns the messages sent.
    pub(super) fn configure(&mut self, provider: &mut dyn Provider) -> usize {
        if self.state != State::Ready {
            return 0;
        }
        if self.version != Version::One {
            self.configuration.step = Step::Over;
            return 0;
        }
        let may_send = self.configuration.step == Step::ToSend
            && self.window.has_room()
            && self.receives > self.window.in_flight()
            && provider.send_room(self.queue_pair) > 0;
        if !may_send || self.ask(provider).is_none() {
            return 0;
        }
        self.configuration.step = Step::Sent;
        self.window.sent();
        1
    }

    fn ask(&mut self, provider: &mut dyn Provider) -> Option<()> {
        let settings = self.settings.ccp?;
        let mut buffer = self.pool.try_acquire(Class::Control)?;
        let mut out = Encoder::new(&mut buffer[..MIN_INLINE]);
        let xid = self.configuration.xid;
        let header = Outgoing {
            version: Version::One,
            xid,
            credits: self.window.wish(),
            inline: true,
            direction: MessageType::Call,
            invalidate: 0,
        };
        let call = CallHeader {
            xid,
            program: settings.program,
            version: ccp::VERSION,
            procedure: ccp::Procedure::Configure.number(),
            credential: Credential::Other(self.settings.identity.auth()),
            verifier: OpaqueAuth::NONE,
        };
        let wish = Wish {
            call_size: u32::try_from(settings.call_size).unwrap_or(u32::MAX),
            reply_size: u32::try_from(settings.reply_size).unwrap_or(u32::MAX),
            reads: u32::from(self.depths.ird),
        };
        encode_header(&mut out, &header, &CallChunks::default()).ok()?;
        call.encode(&mut out).ok()?;
        wish.encode(&mut out).ok()?;
        let length = out.position();
        self.post_message(provider, buffer.into_slice(0..length))
    }

    /// The answer is here: results, or anything else.
    pub(super) fn on_configuration(&mut self, header: &Header<'_>) {
        self.configuration.step = Step::Over;
        self.configuration.deadline = None;
        let Body::Message { message, .. } = header.body else {
            // An RDMA_ERROR does not open the window.
            self.counters.errors += 1;
            self.window.answered(header.words.credits, false);
            return;
        };
        self.negotiation.confirm();
        self.window.answered(header.words.credits, true);
        let reply = Reply {
            message,
            written: &[],
        };
        if let (Ok(limits), Some(asked)) = (reply.results::<Limits>(), self.settings.ccp) {
            self.configuration.limits = Some(limits);
            self.send_limit = asked.call_size.min(limits.call_size as usize);
            // The server has not said how much it sends at most, unless by private data.
            let told = self.peer.map_or(usize::MAX, |peer| peer.send_size);
            self.receive_limit = asked.reply_size.min(told);
        }
    }
}
