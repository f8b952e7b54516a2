//! Serving of calls received as records.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Class, Pool, Slice};
use millrace_wire::xdr::Padding;

use super::MESSAGE_MAX;
use super::records::HeldRecord;
use super::reply_record::HEADROOM;
use super::server::ConnectionId;
use crate::call::{Account, Answer, Call, Limits, NO_CHUNKS, NoBulk, Reply, ReplyParts, Serve};
use crate::flow::Flow;
use crate::rpc::{ConnectionRef, RequestSlot, ScheduledCall};

/// Lists of slices kept for reuse.
const SPARES_MAX: usize = 32;

/// A call to be served.
pub(super) struct TcpCall {
    /// Its connection.
    pub id: ConnectionId,
    pub arrived: Instant,
    pub record: HeldRecord,
    /// Its sender was verified by an attempt to serve it at once.
    pub is_authenticated: bool,
}

impl ScheduledCall for TcpCall {
    fn connection(&self) -> &ConnectionRef {
        &self.record.connection
    }

    fn arrived(&self) -> Instant {
        self.arrived
    }
}

/// A served call.
pub(super) struct ServedCall {
    pub id: ConnectionId,
    pub arrived: Instant,
    /// It was a valid call.
    pub is_valid: bool,
    pub moved: Account,
    pub answer: Answer,
    /// None if there was no memory for a reply.
    pub parts: Option<ReplyParts>,
}

/// State shared by the server and its tasks.
pub(super) struct TcpShared<S> {
    pub pool: Pool,
    pub service: S,
    pub flow: Flow,
    served: RefCell<Vec<ServedCall>>,
    spare_slices: RefCell<Vec<Vec<Slice>>>,
}

impl<S> TcpShared<S> {
    pub fn new(pool: &Pool, service: S, flow: &Flow) -> Self {
        Self {
            pool: pool.clone(),
            service,
            flow: flow.clone(),
            served: RefCell::default(),
            spare_slices: RefCell::default(),
        }
    }

    /// Moves the calls served since the last time into `served`.
    pub fn take_served(&self, served: &mut Vec<ServedCall>) {
        served.append(&mut self.served.borrow_mut());
    }

    fn reply(&self, buffer: Buffer) -> Reply {
        let limits = Limits {
            headroom: HEADROOM,
            message: MESSAGE_MAX,
            apart: NO_CHUNKS,
            tells_shortage: false,
            flattens: false,
        };
        let slices = self.spare_slices.borrow_mut().pop().unwrap_or_default();
        Reply::new(&self.pool, buffer, limits, slices)
    }

    /// Keeps an emptied list for the next reply.
    pub fn keep_slices(&self, mut slices: Vec<Slice>) {
        slices.clear();
        let mut spares = self.spare_slices.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(slices);
        }
    }
}

/// Serves calls for ever.
pub(super) async fn work<S: Serve>(shared: Rc<TcpShared<S>>, slot: Rc<RequestSlot<TcpCall>>) {
    loop {
        let request = slot.next().await;
        let call = pin!(serve(&shared, &request));
        let served = shared.flow.charged(request.connection(), call).await;
        shared.served.borrow_mut().push(served);
    }
}

async fn serve<S: Serve>(shared: &TcpShared<S>, request: &TcpCall) -> ServedCall {
    let Ok(buffer) = shared.pool.obtain(Class::Control).await else {
        return request.served(Answer::Broken, None);
    };
    let mut reply = shared.reply(buffer);
    let call = request.call();
    let answer = shared.service.serve(call, &mut NoBulk, &mut reply).await;
    request.served(answer, Some(reply))
}

/// Serves a call, or returns it, without effect, if it may have to wait for something.
pub(super) fn serve_at_once<S: Serve>(
    shared: &TcpShared<S>,
    mut request: TcpCall,
) -> Option<TcpCall> {
    if !shared.service.is_immediate(request.call().message) {
        return Some(request);
    }
    let account = request.connection().memory();
    let charging = shared.flow.charging(account);
    let Some(buffer) = shared.pool.try_obtain(Class::Control) else {
        return Some(request);
    };
    let mut reply = shared.reply(buffer);
    let Some(answer) = shared.service.serve_at_once(request.call(), &mut reply) else {
        let is_authenticated = reply.is_authenticated();
        shared.keep_slices(reply.into_parts().slices);
        drop(charging);
        request.is_authenticated = is_authenticated;
        return Some(request);
    };
    let served = request.served(answer, Some(reply));
    shared.served.borrow_mut().push(served);
    None
}

impl TcpCall {
    fn call(&self) -> Call<'_> {
        Call {
            connection: self.connection(),
            arrived: self.arrived,
            message: &self.record.bytes,
            bulk: &[],
            fetched: None,
            padding: Padding::default(),
            is_authenticated: self.is_authenticated,
        }
    }

    /// What it came to. Without a reply the connection has ended.
    fn served(&self, answer: Answer, reply: Option<Reply>) -> ServedCall {
        ServedCall {
            id: self.id,
            arrived: self.arrived,
            is_valid: reply.as_ref().is_some_and(|reply| reply.is_call_valid),
            moved: reply
                .as_ref()
                .map_or(Account::default(), |reply| reply.account),
            answer,
            parts: reply.map(Reply::into_parts),
        }
    }
}
