//! Calls that need nothing but a buffer for the reply, and that a program executes at once: they are
//! answered in the turn that received them or their data, and most of them without a task.

use std::ops::Range;

use millrace_mempool::{Buffer, Class, Slice};
use millrace_reactor::fabric::Key;
use millrace_wire::rpc::{self, MessageType};
use millrace_wire::rpcrdma::{
    Body, Header, Lists, Segment, Version, encode_plain_header, encode_result_header, has_reads,
};
use millrace_wire::xdr::{Encoder, Padding};

use super::answer::{self, Prepared, ReplyLayout};
use super::counters::count;
use super::pull::remote;
use super::request::drop_message;
use super::shortage::refusal as no_room;
use super::small_data::FetchedItem;
use super::{Arrived, ResponderShared};
use crate::call::{Answer, Call, Reply, ReplyParts, Serve, Shortage};

/// Serves a received call. Returns it if it may have to wait for something: it has had no effect
/// then.
pub fn serve_at_once<S: Serve>(
    shared: &ResponderShared<S>,
    mut received: Arrived,
) -> Option<Arrived> {
    let connection = &received.connection;
    if !connection.answers_at_once() || !shared.remote_access_failures.is_empty() {
        return Some(received);
    }
    // Arguments that have to be fetched are waited for.
    let message = &received.receive[..received.length];
    if received.fetched.is_none() && has_reads(message) {
        return Some(received);
    }
    let parsed = Header::parse_call(message, &connection.terms().rules);
    let Ok(header) = &parsed else {
        return Some(received);
    };
    let Some((lists, message)) = immediate_call(shared, header) else {
        return Some(received);
    };
    if !lists.reads.is_empty() && received.fetched.is_none() {
        return Some(received);
    }
    // As in a task: what is taken is charged to the client, and a panic loses no receive.
    let charging = shared.flow.charging(connection.memory());
    let service = connection.in_service(shared);
    let mut is_authenticated = false;
    let served = serve(
        shared,
        &received,
        header,
        lists,
        message,
        &mut is_authenticated,
    );
    service.over();
    drop(charging);
    let Some(outcome) = served else {
        received.is_authenticated = is_authenticated;
        return Some(received);
    };
    count(shared, connection, |counters| counters.calls.add(1));
    connection.spoke(shared, header.version);
    let (words, version) = (header.words, header.version);
    let Arrived {
        connection,
        receive,
        arrived,
        ..
    } = received;
    if matches!(outcome, AnswerAtOnce::Nothing) {
        drop_message(shared, &connection, receive);
        return None;
    }
    shared.answered(&connection, arrived);
    let credits = connection.repost_and_grant_at_once(shared, receive, words.credits);
    let reply = match outcome {
        AnswerAtOnce::Plain(reply) => reply.prepare(shared, version, words.xid, credits),
        AnswerAtOnce::Prepared(reply) => {
            reply.grant(credits);
            reply
        }
        AnswerAtOnce::Nothing => return None,
    };
    connection.send_at_once(shared, reply);
    None
}

/// The lists and the message of a call that may be served at once, when all of it is there.
#[inline]
pub fn immediate_call<'h, 'a, S: Serve>(
    shared: &ResponderShared<S>,
    header: &'h Header<'a>,
) -> Option<(&'h Lists<'a>, &'a [u8])> {
    let Body::Message {
        lists,
        message,
        padding: None,
    } = &header.body
    else {
        return None;
    };
    let is_call = matches!(rpc::peek(message), Ok((_, MessageType::Call)));
    (is_call && shared.programs.is_immediate(message)).then_some((lists, message))
}

/// What is sent for a call.
enum AnswerAtOnce {
    /// A message without chunks but one for a result.
    Plain(PlainReply),
    /// Any other reply, or an error of the transport.
    Prepared(Prepared),
    /// Nothing.
    Nothing,
}

/// A message that is sent inline, of a call without chunks for its reply or with one segment for a
/// result.
struct PlainReply {
    buffer: Buffer,
    message: Range<usize>,
    result: Option<PlacedResult>,
    invalidate: Option<Key>,
}

/// The result of a call that offers one segment for it, and nothing else.
struct PlacedResult {
    data: Slice,
    /// Where it goes, and the bytes of it.
    segment: Segment,
}

impl PlacedResult {
    /// Takes the result from a reply, if it is one slice that fits into the segment.
    #[inline]
    fn take(parts: &mut ReplyParts, lists: &Lists<'_>) -> Option<Self> {
        let segment = lists.only_result()?;
        let ([_], [data]) = (&parts.bulk[..], &parts.slices[..]) else {
            return None;
        };
        let length = u32::try_from(data.len()).ok()?;
        if length == 0 || length > segment.length {
            return None;
        }
        Some(Self {
            data: parts.slices.pop()?,
            segment: Segment { length, ..segment },
        })
    }
}

impl PlainReply {
    /// Writes the header in front of the message.
    #[inline]
    fn prepare<S>(
        self,
        shared: &ResponderShared<S>,
        version: Version,
        xid: u32,
        credits: u32,
    ) -> Prepared {
        let Self {
            mut buffer,
            message,
            result,
            invalidate,
        } = self;
        let out = &mut Encoder::new(&mut buffer[..message.start]);
        let encoded = match &result {
            None => encode_plain_header(out, version, xid, credits, MessageType::Reply),
            Some(result) => encode_result_header(out, version, xid, credits, result.segment),
        };
        debug_assert!(
            encoded.is_ok() && out.position() == message.start,
            "`limits` kept this much room"
        );
        let whole = std::iter::once(buffer.into_slice(0..message.end));
        let mut chain = shared.chain();
        let Some(result) = result else {
            return Prepared::new(xid, chain, invalidate, whole);
        };
        answer::write(
            &mut chain,
            remote(result.segment),
            std::iter::once(result.data),
        );
        Prepared {
            written: result.segment.length.into(),
            ..Prepared::new(xid, chain, invalidate, whole)
        }
    }
}

/// Has a call executed and prepares its reply. `None` if it may have to wait.
#[inline]
fn serve<S: Serve>(
    shared: &ResponderShared<S>,
    received: &Arrived,
    header: &Header<'_>,
    lists: &Lists<'_>,
    message: &[u8],
    is_authenticated: &mut bool,
) -> Option<AnswerAtOnce> {
    let connection = &received.connection;
    let inline = connection.inline();
    let send = inline.limit(header.version);
    let limits = answer::limits(header.version, lists, send);
    let buffer = shared.pool.try_obtain(Class::Control)?;
    if limits.headroom > send.min(buffer.len()) {
        return None;
    }
    let mut reply = Reply::new(&shared.pool, buffer, limits, shared.slices());
    let fetched = received.fetched.as_ref();
    let argument = fetched.map(|item| item.argument);
    let call = Call {
        connection: connection.identity(),
        arrived: received.arrived,
        message,
        bulk: argument.as_slice(),
        fetched: fetched.map(FetchedItem::bytes),
        padding: Padding::default(),
        is_authenticated: false,
    };
    let answer = shared.programs.serve_at_once(call, &mut reply);
    *is_authenticated = reply.is_authenticated();
    let moved = reply.account;
    let mut parts = reply.into_parts();
    let is_inline = parts.message.end <= send && header.invalidate == 0;
    let shortage = match answer {
        Some(Answer::Send) => {
            let result = match is_inline {
                true => PlacedResult::take(&mut parts, lists),
                false => None,
            };
            let returns_chunks = !lists.writes.is_empty() || lists.reply.is_some();
            if result.is_some() || is_inline && !returns_chunks && parts.bulk.is_empty() {
                connection.usage().moved(moved.read, moved.written);
                shared.recycle_slices(parts.slices);
                return Some(AnswerAtOnce::Plain(PlainReply {
                    buffer: parts.buffer,
                    message: parts.message,
                    result,
                    invalidate: answer::invalidated(header, lists, connection),
                }));
            }
            let layout = ReplyLayout::of(&parts, header, lists, inline);
            match &layout {
                Some(layout)
                    if !layout.is_flat || answer::flatten_at_once(shared, &mut parts, layout) =>
                {
                    connection.usage().moved(moved.read, moved.written);
                    let prepared = layout.prepare(shared, parts, header, lists, connection);
                    return Some(AnswerAtOnce::Prepared(prepared));
                }
                // Memory is short. Calls with so many slices may be repeated: programs see to that where
                // replies are flattened.
                Some(_) => {
                    shared.recycle_slices(parts.slices);
                    return None;
                }
                None => Shortage::of(&parts),
            }
        }
        Some(Answer::TooLarge(shortage)) => shortage,
        Some(Answer::Silent) => {
            shared.recycle_slices(parts.slices);
            return Some(AnswerAtOnce::Nothing);
        }
        Some(Answer::Disconnect) => {
            shared.recycle_slices(parts.slices);
            connection.close(true);
            return Some(AnswerAtOnce::Nothing);
        }
        Some(Answer::Broken) | None => {
            shared.recycle_slices(parts.slices);
            return None;
        }
    };
    connection.usage().moved(moved.read, moved.written);
    let ReplyParts { buffer, slices, .. } = parts;
    shared.recycle_slices(slices);
    let refusal = no_room(lists, shortage);
    let error = answer::refused(shared, connection, refusal, &header.words, buffer);
    Some(error.map_or(AnswerAtOnce::Nothing, AnswerAtOnce::Prepared))
}
