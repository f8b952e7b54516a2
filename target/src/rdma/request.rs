//! One call from its receive to its reply, as one straight line.

use std::pin::pin;
use std::rc::Rc;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_mempool::Buffer;
use millrace_wire::rpc::{self, MessageType};
use millrace_wire::rpcrdma::{
    Body, Fault, FirstWords, Header, Lists, Optional, Reason, Refusal, Version,
};
use millrace_wire::xdr::{ITEMS_MAX, Padding};

use super::desk::{Arrived, Desk};
use super::message::{self, Failed};
use super::options::{Options, Taken};
use super::pull::Puller;
use super::{Connection, ConnectionCounters, Shared, answer, ccp, classic, shortage};
use crate::call::{Answer, Broken, BulkArgument, Call, Reply, Serve, Shortage};

/// Serves the messages that are put on a desk, one after the other, for ever.
pub async fn work<S: Serve>(shared: Rc<Shared<S>>, desk: Rc<Desk>) {
    loop {
        let message = desk.next(&shared).await;
        let connection = Rc::clone(&message.connection);
        let (tenant, account) = (connection.tenant(), connection.memory());
        let served = pin!(request(&shared, message));
        shared.flow.charged(tenant, account, served).await;
    }
}

/// Serves one received message. Whatever it holds, its receive is posted again before anything is
/// answered, and only its own connection can suffer.
async fn request<S: Serve>(shared: &Shared<S>, message: Arrived) {
    let Arrived {
        connection,
        receive,
        length,
        arrived,
    } = message;
    let connection = &connection;
    let rules = connection.terms().rules;
    let header = match Header::parse_call(&receive[..length], &rules) {
        Ok(header) => header,
        Err(Fault::Drop) => return drop_message(shared, connection, receive),
        Err(Fault::Refuse { words, refusal }) => {
            return refuse(shared, connection, receive, words, refusal).await;
        }
    };
    let (words, reply) = (header.words, Some(MessageType::Reply));
    match header.body {
        Body::Message { .. } | Body::NoMessage { .. } if header.direction() != reply => {
            count(shared, connection, |counters| counters.calls.add(1));
            connection.spoke(shared, header.version);
            let service = connection.in_service(shared);
            let served = serve(shared, connection, &header, arrived).await;
            service.over();
            if let Ok(Served::Reply(_) | Served::Refused(_)) = served {
                shared.answered(connection, arrived);
            }
            finish(shared, connection, receive, words, served).await;
        }
        Body::Optional(optional) => {
            let service = connection.in_service(shared);
            let taken = option(shared, connection, words, &optional);
            service.over();
            let is_reply = optional.direction == MessageType::Reply;
            match taken {
                // Errors and answers go to requesters only (version two draft section 5.2.2).
                Err(_) if is_reply => drop_message(shared, connection, receive),
                Err(refusal) => refuse(shared, connection, receive, words, refusal).await,
                Ok(Some((kind, opaque))) if !is_reply => {
                    answer_option(shared, connection, receive, words, kind, &opaque).await;
                }
                Ok(_) => connection.settle_unanswered(shared, receive),
            }
        }
        // In classic mode RDMA_DONE never comes to here; in any other none is awaited, for no reply
        // has read chunks.
        Body::Done => {
            count(shared, connection, |counters| {
                counters.dones.add(1);
                counters.dones_stray.add(1);
            });
            drop_message(shared, connection, receive);
        }
        // What answers a call from here, or nothing at all: it is never answered.
        Body::Message { .. } | Body::NoMessage { .. } | Body::Error(_) => {
            if connection.reverse.take(shared, &header, &rules) {
                count(shared, connection, |counters| {
                    counters.reverse_replies.add(1);
                });
                connection.settle_unanswered(shared, receive);
            } else {
                drop_message(shared, connection, receive);
            }
        }
    }
}

/// What serving a call came to.
enum Served {
    /// This is to be sent.
    Reply(answer::Prepared),
    /// Nothing is to be sent.
    Nothing,
    /// The call cannot be taken, or its reply finds no room.
    Refused(Refusal),
}

/// The chunks cannot carry the call.
const UNUSABLE: Served = Served::Refused(Refusal::Header(Reason::TooLarge));

/// Puts the message together, has it served and plans the reply.
async fn serve<S: Serve>(
    shared: &Shared<S>,
    connection: &Rc<Connection>,
    header: &Header<'_>,
    arrived: Instant,
) -> Result<Served, Broken> {
    let xid = header.words.xid;
    if shared.poisoned.take(connection.peer().address, xid) {
        return Ok(UNUSABLE);
    }
    let lists = header.lists();
    // Before anything else is held, so that calls never wait for each other.
    let buffer = connection.reply_buffer(shared).await?;
    let inline = connection.inline();
    let send = inline.limit(header.version);
    let mut limits = answer::limits(header.version, &lists, send);
    // Version two has no RDMA_DONE.
    let classic = connection.exposures.is_on() && header.version == Version::One;
    if classic {
        limits = classic::limits(limits);
    }
    if limits.headroom > send.min(buffer.len()) {
        // Not even the chunks that come back fit.
        return Ok(no_room(&lists, Shortage::default()));
    }
    let padding = match header.body {
        Body::Message { padding, .. } => padding.unwrap_or_default(),
        _ => Padding::default(),
    };
    let puller = Puller::new(shared, connection, xid, &[]);
    let assembled = match header.body {
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
        Err(Failed::Chunks) => return Ok(UNUSABLE),
        Err(Failed::Broken) if puller.is_refused() => return Ok(UNUSABLE),
        Err(Failed::Broken) => return Err(Broken),
    };
    let message = match (&assembled.buffer, &header.body) {
        (Some(buffer), _) => &buffer[..assembled.length],
        (None, Body::Message { message, .. }) => *message,
        (None, _) => return Ok(UNUSABLE),
    };
    // The XID of a long message is known only now (RFC 5666 section 4.1).
    if header
        .check_xid(message, &connection.terms().rules)
        .is_err()
    {
        return Ok(UNUSABLE);
    }
    match rpc::peek(message) {
        Ok((_, MessageType::Call)) => {}
        // In version two the header has said that it is a call.
        Ok((_, MessageType::Reply)) if header.version == Version::One => {
            return Ok(Served::Nothing);
        }
        Ok((_, MessageType::Reply)) => {
            return Ok(Served::Refused(Refusal::Header(Reason::Direction)));
        }
        Err(_) => return Ok(UNUSABLE),
    }

    let mut reply = Reply::new(&shared.pool, buffer, limits, shared.slices());
    let items = assembled.apart.iter().map(|(argument, ..)| *argument);
    let bulk: ArrayVec<BulkArgument, ITEMS_MAX> = items.collect();
    let mut puller = Puller::new(shared, connection, xid, &assembled.apart);
    let call = Call {
        peer: connection.peer(),
        arrived,
        message,
        bulk: &bulk,
        padding,
    };
    let (answer, agreed) = match ccp::serve(connection, header.version, &call, &mut reply) {
        Some(configured) => configured,
        None => {
            let answer = shared.programs.serve(call, &mut puller, &mut reply).await;
            (answer, None)
        }
    };
    let moved = reply.account;
    connection.usage().moved(moved.read, moved.written);
    let parts = reply.into_parts();
    Ok(match answer {
        Answer::Send => {
            match answer::prepare(shared, parts, header, &lists, connection, inline).await {
                Ok(mut prepared) => {
                    prepared.agreed = agreed;
                    Served::Reply(prepared)
                }
                Err(parts) if classic => {
                    let prepared =
                        classic::prepare(shared, parts, xid, &lists, connection, inline).await;
                    prepared.map_or(UNUSABLE, Served::Reply)
                }
                Err(parts) => {
                    let shortage = Shortage {
                        processed: true,
                        message: parts.message.len(),
                        bulk: parts.bulk.iter().map(|item| item.length).sum(),
                    };
                    shared.recycle_slices(parts.slices);
                    no_room(&lists, shortage)
                }
            }
        }
        Answer::Broken if puller.is_refused() => UNUSABLE,
        Answer::Broken => return Err(Broken),
        Answer::Silent => {
            shared.recycle_slices(parts.slices);
            Served::Nothing
        }
        Answer::TooLarge(shortage) => {
            shared.recycle_slices(parts.slices);
            no_room(&lists, shortage)
        }
    })
}

fn no_room(lists: &Lists<'_>, shortage: Shortage) -> Served {
    Served::Refused(shortage::refusal(lists, shortage))
}

/// Posts the receive again, and then what is to be sent.
async fn finish<S: Serve>(
    shared: &Shared<S>,
    connection: &Rc<Connection>,
    receive: Buffer,
    words: FirstWords,
    served: Result<Served, Broken>,
) {
    match served {
        Ok(Served::Reply(prepared)) => {
            let credits = connection.settle(shared, receive, words.credits).await;
            // If the connection broke there is nobody left to answer.
            let _ = prepared.send(shared, connection, credits).await;
        }
        Ok(Served::Refused(refusal)) => {
            refuse(shared, connection, receive, words, refusal).await;
        }
        Ok(Served::Nothing) => drop_message(shared, connection, receive),
        Err(Broken) => connection.settle_unanswered(shared, receive),
    }
}

/// Gives a message to the extension that it is of.
fn option<S>(
    shared: &Shared<S>,
    connection: &Rc<Connection>,
    words: FirstWords,
    optional: &Optional<'_>,
) -> Result<Option<(u32, Vec<u8>)>, Refusal> {
    let Some(extension) = shared.options.find(optional.kind) else {
        return Err(Refusal::Option);
    };
    count(shared, connection, |counters| counters.optional.add(1));
    let mut answer = Vec::new();
    match extension.take(connection.peer(), words.xid, optional, &mut answer) {
        Taken::Unanswered => Ok(None),
        Taken::Answered(kind) => Ok(Some((kind, answer))),
        Taken::Malformed => Err(Refusal::Header(Reason::Truncated)),
    }
}

/// Sends what an extension answers.
async fn answer_option<S>(
    shared: &Shared<S>,
    connection: &Rc<Connection>,
    receive: Buffer,
    words: FirstWords,
    kind: u32,
    opaque: &[u8],
) {
    let Ok(mut buffer) = connection.reply_buffer(shared).await else {
        return connection.settle_unanswered(shared, receive);
    };
    let limit = connection.inline().limit(Version::Two).min(buffer.len());
    let answer = Options::answer(kind, opaque);
    let Some(length) = answer::encode_optional(words.xid, &answer, &mut buffer[..limit]) else {
        drop(buffer);
        let refusal = Refusal::CannotReply {
            processed: true,
            segment: 0,
            needed: 0,
        };
        return refuse(shared, connection, receive, words, refusal).await;
    };
    let credits = connection.settle(shared, receive, words.credits).await;
    // If the connection broke there is nobody left to answer.
    let _ = answer::send_plain(shared, connection, buffer, length, credits).await;
}

/// Drops a message that has no answer.
fn drop_message<S>(shared: &Shared<S>, connection: &Rc<Connection>, receive: Buffer) {
    count(shared, connection, |counters| counters.dropped.add(1));
    connection.settle_unanswered(shared, receive);
}

/// Answers with an error of the transport, in the version of the message (RFC 5666 section 4.2,
/// version two draft section 5.2.4).
async fn refuse<S>(
    shared: &Shared<S>,
    connection: &Rc<Connection>,
    receive: Buffer,
    words: FirstWords,
    refusal: Refusal,
) {
    let Ok(mut buffer) = connection.reply_buffer(shared).await else {
        return connection.settle_unanswered(shared, receive);
    };
    let versions = connection.terms().rules.versions;
    let Some(length) = answer::encode_refusal(refusal, &words, versions, &mut buffer) else {
        return connection.settle_unanswered(shared, receive);
    };
    count(shared, connection, |counters| {
        counters.count_error(refusal, words.version);
    });
    let credits = connection.settle(shared, receive, words.credits).await;
    // If the connection broke there is nobody left to answer.
    let _ = answer::send_plain(shared, connection, buffer, length, credits).await;
}

fn count<S>(shared: &Shared<S>, connection: &Rc<Connection>, count: impl Fn(&ConnectionCounters)) {
    count(connection.counters());
    count(&shared.counters);
}
