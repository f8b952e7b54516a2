//! One call from its receive to its reply, as one straight line.

use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::Buffer;
use millrace_wire::rpc;
use millrace_wire::rpcrdma::{Body, Fault, FirstWords, Header, Reason, Refusal, Version};
use millrace_wire::xdr::Padding;

use super::desk::{Arrived, Desk};
use super::message::{self, Failed};
use super::pull::Puller;
use super::{Connection, ConnectionCounters, Shared, answer, classic};
use crate::call::{Answer, Broken, Call, Reply, Serve};

/// Serves the messages that are put on a desk, one after the other, for ever.
pub async fn work<S: Serve>(shared: Rc<Shared<S>>, desk: Rc<Desk>) {
    loop {
        let message = desk.next(&shared).await;
        request(&shared, message).await;
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
    let rules = shared.settings.get().rules;
    match Header::parse_call(&receive[..length], &rules) {
        // In classic mode RDMA_DONE never comes to here; in any other none is awaited, for no reply
        // has read chunks.
        Ok(Header {
            body: Body::Done, ..
        }) => {
            connection.settle_unanswered(shared, receive);
            count(shared, connection, |counters| {
                counters.dropped.add(1);
                counters.dones.add(1);
                counters.dones_stray.add(1);
            });
        }
        // An error is never answered; version one has no optional operations.
        Ok(Header {
            body: Body::Error(_) | Body::Optional(_),
            ..
        })
        | Err(Fault::Drop) => {
            count(shared, connection, |counters| counters.dropped.add(1));
            connection.settle_unanswered(shared, receive);
        }
        Ok(header) => {
            count(shared, connection, |counters| counters.calls.add(1));
            let words = header.words;
            let served = serve(shared, connection, &header, arrived).await;
            finish(shared, connection, receive, words, served).await;
        }
        Err(fault) => refuse(shared, connection, receive, fault).await,
    }
}

/// What serving a call came to.
enum Served {
    /// This is to be sent.
    Reply(answer::Prepared),
    /// Nothing is to be sent.
    Nothing,
    /// The chunks cannot carry the call or its reply.
    ChunkError,
}

/// Puts the message together, has it served and plans the reply.
async fn serve<S: Serve>(
    shared: &Shared<S>,
    connection: &Rc<Connection>,
    header: &Header<'_>,
    arrived: Instant,
) -> Result<Served, Broken> {
    let xid = header.words.xid;
    if shared.poisoned.take(connection.peer().address, xid) {
        return Ok(Served::ChunkError);
    }
    let lists = header.lists();
    // Before anything else is held, so that calls never wait for each other.
    let buffer = connection.reply_buffer(shared).await;
    let send = connection.inline().send;
    let mut limits = answer::limits(&lists, send);
    // Version two has no RDMA_DONE.
    let classic = connection.exposures.is_on() && header.version == Version::One;
    if classic {
        limits = classic::limits(limits);
    }
    if limits.headroom > send.min(buffer.len()) {
        return Ok(Served::ChunkError);
    }
    let padding = match header.body {
        Body::Message { padding, .. } => padding.unwrap_or_default(),
        _ => Padding::default(),
    };
    let puller = Puller::new(shared, connection, xid, None);
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
        Err(Failed::Chunks) => return Ok(Served::ChunkError),
        Err(Failed::Broken) if puller.is_refused() => return Ok(Served::ChunkError),
        Err(Failed::Broken) => return Err(Broken),
    };
    let message = match (&assembled.buffer, &header.body) {
        (Some(buffer), _) => &buffer[..assembled.length],
        (None, Body::Message { message, .. }) => *message,
        (None, _) => return Ok(Served::ChunkError),
    };
    // The XID of a long message is known only now (RFC 5666 section 4.1).
    if header
        .check_xid(message, &shared.settings.get().rules)
        .is_err()
    {
        return Ok(Served::ChunkError);
    }
    match rpc::peek(message) {
        Ok((_, rpc::MessageType::Call)) => {}
        // Nothing was asked of the client, so there is nothing that it could answer.
        Ok((_, rpc::MessageType::Reply)) => return Ok(Served::Nothing),
        Err(_) => return Ok(Served::ChunkError),
    }

    let mut reply = Reply::new(&shared.pool, buffer, limits, shared.slices());
    let bulk = assembled.apart.map(|(argument, ..)| argument);
    let mut puller = Puller::new(
        shared,
        connection,
        xid,
        assembled.apart.map(|(_, chunk, skip)| (chunk, skip)),
    );
    let (peer, bulk) = (connection.peer(), bulk.as_slice());
    let call = Call {
        peer,
        arrived,
        message,
        bulk,
        padding,
    };
    let answer = shared.programs.serve(call, &mut puller, &mut reply).await;
    let parts = reply.into_parts();
    Ok(match answer {
        Answer::Send => match answer::prepare(shared, parts, xid, &lists, connection).await {
            Ok(prepared) => Served::Reply(prepared),
            Err(parts) if classic => {
                let prepared = classic::prepare(shared, parts, xid, &lists, connection).await;
                prepared.map_or(Served::ChunkError, Served::Reply)
            }
            Err(parts) => {
                shared.recycle_slices(parts.slices);
                Served::ChunkError
            }
        },
        Answer::Broken if puller.is_refused() => Served::ChunkError,
        Answer::Broken => return Err(Broken),
        Answer::Silent | Answer::TooLarge(_) => {
            shared.recycle_slices(parts.slices);
            if answer == Answer::Silent {
                Served::Nothing
            } else {
                Served::ChunkError
            }
        }
    })
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
        Ok(Served::ChunkError) => {
            let fault = Fault::Refuse {
                words,
                refusal: Refusal::Header(Reason::TooLarge),
            };
            refuse(shared, connection, receive, fault).await;
        }
        Ok(Served::Nothing) => {
            count(shared, connection, |counters| counters.dropped.add(1));
            connection.settle_unanswered(shared, receive);
        }
        Err(Broken) => connection.settle_unanswered(shared, receive),
    }
}

/// Answers with an error of the transport (RFC 5666 section 4.2).
async fn refuse<S>(shared: &Shared<S>, connection: &Rc<Connection>, receive: Buffer, fault: Fault) {
    let wish = FirstWords::read(&receive).map_or(1, |words| words.credits);
    let mut buffer = connection.reply_buffer(shared).await;
    let versions = shared.settings.get().rules.versions;
    let Some(length) = answer::encode_fault(&fault, versions, &mut buffer) else {
        return connection.settle_unanswered(shared, receive);
    };
    count(shared, connection, |counters| match fault {
        Fault::Refuse {
            refusal: Refusal::Version,
            ..
        } => counters.errors_version.add(1),
        Fault::Refuse { .. } | Fault::Drop => counters.errors_chunk.add(1),
    });
    let credits = connection.settle(shared, receive, wish).await;
    // If the connection broke there is nobody left to answer.
    let _ = answer::send_fault(shared, connection, buffer, length, credits).await;
}

fn count<S>(shared: &Shared<S>, connection: &Rc<Connection>, count: impl Fn(&ConnectionCounters)) {
    count(connection.counters());
    count(&shared.counters);
}
