//! One call from its receive to its reply, as straight-line code.

use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, Class};
use millrace_wire::rpc::{self, MessageType};
use millrace_wire::rpcrdma::{Body, Fault, FirstWords, Header, Reason, Refusal, Version};
use millrace_wire::xdr::{ITEMS_MAX, Padding};

use super::answer::{self, Prepared, ReplyLayout};
use super::counters::count;
use super::message::{self, AssemblyError, CallMessage, ReducedItems};
use super::pull::Puller;
use super::shortage::refusal as no_room;
use super::small_data::FetchedItem;
use super::{RdmaConnection, ResponderShared, compat};
use crate::call::{Answer, Broken, BulkArgument, Call, Reply, Serve, Shortage};
use crate::rpc::{ConnectionRef, RequestSlot, ScheduledCall};

/// A received message to be served.
pub struct Arrived {
    /// Its connection.
    pub connection: Rc<RdmaConnection>,
    /// Its receive.
    pub receive: Buffer,
    /// Its bytes.
    pub length: usize,
    /// When it arrived: the time stamp of the reactor's turn.
    pub arrived: Instant,
    /// Its only item beside the message, if that was fetched.
    pub(super) fetched: Option<FetchedItem>,
    /// Its sender was verified by an attempt to serve it at once.
    pub is_authenticated: bool,
}

impl ScheduledCall for Arrived {
    fn connection(&self) -> &ConnectionRef {
        self.connection.identity()
    }

    fn arrived(&self) -> Instant {
        self.arrived
    }
}

/// Serves the messages put into a slot, one after the other, for ever.
pub async fn work<S: Serve>(shared: Rc<ResponderShared<S>>, slot: Rc<RequestSlot<Arrived>>) {
    loop {
        let message = slot.next().await;
        let connection = message.connection.identity().clone();
        let served = pin!(request(&shared, message));
        shared.flow.charged(&connection, served).await;
    }
}

/// Serves one received message. Whatever its content, its receive is posted again before any
/// answer, and only its own connection can be affected.
async fn request<S: Serve>(shared: &ResponderShared<S>, message: Arrived) {
    let Arrived {
        connection,
        receive,
        length,
        arrived,
        mut fetched,
        is_authenticated,
    } = message;
    let connection = &connection;
    let rules = connection.terms().rules;
    // Headers and replies are expensive to move: they stay where they are made.
    let parsed = Header::parse_call(&receive[..length], &rules);
    let header = match &parsed {
        Ok(header) => header,
        Err(Fault::Drop) => return drop_message(shared, connection, receive),
        &Err(Fault::Refuse { words, refusal }) => {
            return refuse(shared, connection, receive, words, refusal).await;
        }
    };
    let (words, reply) = (header.words, Some(MessageType::Reply));
    let mut prepared = None;
    match &header.body {
        Body::Message { .. } | Body::NoMessage { .. } if header.direction() != reply => {
            count(shared, connection, |counters| counters.calls.add(1));
            connection.spoke(shared, header.version);
            let service = connection.in_service(shared);
            let origin = (arrived, is_authenticated, &mut fetched);
            let served = serve(shared, connection, header, origin, &mut prepared).await;
            service.over();
            if let Ok(ServeOutcome::Reply | ServeOutcome::Refused(_)) = served {
                shared.answered(connection, arrived);
            }
            let prepared = prepared.as_mut();
            finish(shared, connection, receive, words, served, prepared).await;
        }
        Body::Optional(_) | Body::Done => {
            let service = connection.in_service(shared);
            let served = compat::take(shared, connection, header, &mut prepared).await;
            service.over();
            let prepared = prepared.as_mut();
            finish(shared, connection, receive, words, served, prepared).await;
        }
        // An answer to a reverse call, or a message without meaning. Neither is answered.
        Body::Message { .. } | Body::NoMessage { .. } | Body::Error(_) => {
            if connection.reverse.take(shared, header, &rules) {
                count(shared, connection, |counters| {
                    counters.reverse_replies.add(1);
                });
                connection.repost(shared, receive);
            } else {
                drop_message(shared, connection, receive);
            }
        }
    }
}

/// The result of serving a message.
pub(super) enum ServeOutcome {
    /// The prepared reply is to be sent.
    Reply,
    /// It has no meaning here, and nothing is sent.
    Nothing,
    /// It was accepted, and nothing is sent.
    Taken,
    /// The call is refused, or its reply does not fit.
    Refused(Refusal),
}

/// The chunks cannot carry the call.
const UNUSABLE: ServeOutcome = ServeOutcome::Refused(Refusal::Header(Reason::TooLarge));

/// Assembles the message, has it served and prepares the reply.
async fn serve<S: Serve>(
    shared: &ResponderShared<S>,
    connection: &Rc<RdmaConnection>,
    header: &Header<'_>,
    (arrived, is_authenticated, fetched): (Instant, bool, &mut Option<FetchedItem>),
    prepared: &mut Option<Prepared>,
) -> Result<ServeOutcome, Broken> {
    let xid = header.words.xid;
    if shared
        .remote_access_failures
        .take(connection.peer().address, xid)
    {
        return Ok(UNUSABLE);
    }
    let lists = header.lists();
    // Before holding any other resource, so that calls never wait for each other.
    let ready = fetched
        .as_ref()
        .and_then(|_| shared.pool.try_obtain(Class::Control));
    let buffer = match ready {
        Some(buffer) => buffer,
        None => {
            *fetched = None;
            connection.reply_buffer(shared).await?
        }
    };
    let inline = connection.inline();
    let send = inline.limit(header.version);
    let limits = answer::limits(header.version, &lists, send);
    let limits = connection.compat.limits(header.version, limits);
    if limits.headroom > send.min(buffer.len()) {
        // Not even the chunks to be returned fit.
        let refusal = no_room(&lists, Shortage::default());
        return Ok(ServeOutcome::Refused(refusal));
    }
    let padding = match header.body {
        Body::Message { padding, .. } => padding.unwrap_or_default(),
        _ => Padding::default(),
    };
    let mut puller = Puller::new(shared, connection, xid);
    let assembled = match header.body {
        Body::Message { message, .. } if message::are_reduced(shared, message, &lists) => {
            Ok(CallMessage {
                buffer: None,
                length: message.len(),
                reduced: ReducedItems::Chunks(lists.reads),
            })
        }
        Body::Message { message, .. } => {
            message::inline(&puller, shared, message, padding, &lists).await
        }
        _ => {
            count(shared, connection, |counters| counters.calls_long.add(1));
            message::long(&puller, shared, &lists).await
        }
    };
    let assembled = match assembled {
        Ok(assembled) => assembled,
        Err(AssemblyError::Chunks) => return Ok(UNUSABLE),
        Err(AssemblyError::Broken) if puller.is_refused() => return Ok(UNUSABLE),
        Err(AssemblyError::Broken) => return Err(Broken),
    };
    let message = match (&assembled.buffer, &header.body) {
        (Some(buffer), _) => &buffer[..assembled.length],
        (None, Body::Message { message, .. }) => *message,
        (None, _) => return Ok(UNUSABLE),
    };
    let mut bulk = ArrayVec::<BulkArgument, ITEMS_MAX>::new();
    for argument in assembled.reduced.arguments() {
        match argument {
            Some(argument) => bulk.push(argument),
            None => return Ok(UNUSABLE),
        }
    }
    // The XID of a long message is not known before (RFC 5666 section 4.1).
    if header
        .check_xid(message, &connection.terms().rules)
        .is_err()
    {
        return Ok(UNUSABLE);
    }
    match rpc::peek(message) {
        Ok((_, MessageType::Call)) => {}
        // In version two the header has declared it a call.
        Ok((_, MessageType::Reply)) if header.version == Version::One => {
            return Ok(ServeOutcome::Nothing);
        }
        Ok((_, MessageType::Reply)) => {
            return Ok(ServeOutcome::Refused(Refusal::Header(Reason::Direction)));
        }
        Err(_) => return Ok(UNUSABLE),
    }

    let mut reply = Reply::new(&shared.pool, buffer, limits, shared.slices());
    puller.reduced = assembled.reduced;
    let call = Call {
        connection: connection.identity(),
        arrived,
        message,
        bulk: &bulk,
        fetched: fetched.as_ref().map(FetchedItem::bytes),
        padding,
        is_authenticated,
    };
    let (answer, follow_up) = match compat::serve(connection, header.version, &call, &mut reply) {
        Some(served) => served,
        None => {
            let answer = shared.programs.serve(call, &mut puller, &mut reply).await;
            (answer, None)
        }
    };
    let moved = reply.account;
    connection.usage().moved(moved.read, moved.written);
    let mut parts = reply.into_parts();
    Ok(match answer {
        Answer::Send => {
            let mut layout = ReplyLayout::of(&parts, header, &lists, inline);
            if let Some(flat) = layout.as_ref().filter(|layout| layout.is_flat)
                && answer::flatten(shared, &mut parts, flat).await.is_err()
            {
                layout = None;
            }
            match &layout {
                Some(layout) => {
                    *prepared = Some(Prepared {
                        follow_up,
                        ..layout.prepare(shared, parts, header, &lists, connection)
                    });
                    ServeOutcome::Reply
                }
                None if connection.compat.exposes(header.version) => {
                    *prepared =
                        compat::prepare(shared, parts, xid, &lists, connection, inline).await;
                    prepared.as_ref().map_or(UNUSABLE, |_| ServeOutcome::Reply)
                }
                None => {
                    let shortage = Shortage::of(&parts);
                    shared.recycle_slices(parts.slices);
                    ServeOutcome::Refused(no_room(&lists, shortage))
                }
            }
        }
        Answer::Broken if puller.is_refused() => UNUSABLE,
        Answer::Broken => return Err(Broken),
        Answer::Disconnect => {
            connection.close(true);
            return Err(Broken);
        }
        Answer::Silent => {
            shared.recycle_slices(parts.slices);
            ServeOutcome::Nothing
        }
        Answer::TooLarge(shortage) => {
            shared.recycle_slices(parts.slices);
            ServeOutcome::Refused(no_room(&lists, shortage))
        }
    })
}

/// Posts the receive again, and then sends the result.
async fn finish<S: Serve>(
    shared: &ResponderShared<S>,
    connection: &Rc<RdmaConnection>,
    receive: Buffer,
    words: FirstWords,
    served: Result<ServeOutcome, Broken>,
    prepared: Option<&mut Prepared>,
) {
    match (served, prepared) {
        (Ok(ServeOutcome::Reply), Some(prepared)) => {
            let credits = connection
                .repost_and_grant(shared, receive, words.credits)
                .await;
            // If the connection broke there is no peer to answer.
            let _ = prepared.send(shared, connection, credits).await;
        }
        (Ok(ServeOutcome::Refused(refusal)), _) => {
            refuse(shared, connection, receive, words, refusal).await;
        }
        (Ok(ServeOutcome::Reply | ServeOutcome::Nothing), _) => {
            drop_message(shared, connection, receive);
        }
        (Ok(ServeOutcome::Taken) | Err(Broken), _) => connection.repost(shared, receive),
    }
}

/// Drops a message that has no answer.
pub(super) fn drop_message<S>(
    shared: &ResponderShared<S>,
    connection: &Rc<RdmaConnection>,
    receive: Buffer,
) {
    count(shared, connection, |counters| counters.dropped.add(1));
    connection.repost(shared, receive);
}

/// Answers with an error of the transport, in the version of the message (RFC 5666 section 4.2,
/// version two draft section 5.2.4).
async fn refuse<S>(
    shared: &ResponderShared<S>,
    connection: &Rc<RdmaConnection>,
    receive: Buffer,
    words: FirstWords,
    refusal: Refusal,
) {
    let Ok(buffer) = connection.reply_buffer(shared).await else {
        return connection.repost(shared, receive);
    };
    let Some(mut error) = answer::refused(shared, connection, refusal, &words, buffer) else {
        return connection.repost(shared, receive);
    };
    let credits = connection
        .repost_and_grant(shared, receive, words.credits)
        .await;
    // If the connection broke there is no peer to answer.
    let _ = error.send(shared, connection, credits).await;
}
