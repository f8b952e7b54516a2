//! Puts a call's RPC message together from what came inline and what is in read chunks.
//!
//! Data that the binding lets stay apart ([`binding::keeps_apart`]) stays in its chunk, to be
//! fetched straight to where it shall live. All else is put back into the stream at its position
//! (RFC 5666 section 3.4), in a buffer of its own.

use millrace_mempool::{Buffer, Class};
use millrace_wire::rpcrdma::{Lists, ReadChunk};
use millrace_wire::xdr::{Padding, round_up};

use super::binding;
use super::pull::Puller;
use super::shared::Shared;
use crate::call::{BulkArgument, another};

/// Bytes of a long message that are fetched to see what it is, when it is too long to be anything
/// but a WRITE. All that stands before the data of a WRITE fits (RFC 1813 section 3.3.7: at most
/// 24 bytes of call header, two 408 byte authenticators, and 88 bytes of arguments).
const HEAD: usize = 4096;

/// Longest message that is put together as a whole. The longest arguments without bulk data are
/// two names or a path (RFC 1813): far below this.
const WHOLE: usize = 64 * 1024;

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The chunks cannot be put together: answer ERR_CHUNK.
    Chunks,
    /// The connection ended.
    Broken,
}

/// A message as far as it was put together.
pub struct Message<'a> {
    /// The buffer that it was put together in; `None` if it stands in the receive buffer.
    pub buffer: Option<Buffer>,
    /// Its bytes, in that buffer.
    pub length: usize,
    /// Data left in its chunk, and how many of the chunk's bytes come before it.
    pub apart: Option<(BulkArgument, ReadChunk<'a>, u64)>,
}

/// Puts an inline message together with its chunks.
pub async fn inline<'a, S>(
    puller: &Puller<'_, S>,
    shared: &Shared<S>,
    message: &[u8],
    padding: Padding,
    lists: &Lists<'a>,
) -> Result<Message<'a>, Failed> {
    let mut chunks = lists.reads.chunks().filter(|chunk| chunk.position > 0);
    let Some(first) = chunks.next() else {
        return Ok(Message {
            buffer: None,
            length: message.len(),
            apart: None,
        });
    };
    if chunks.next().is_none() && binding::keeps_apart(message) {
        let taken = first.taken().ok_or(Failed::Chunks)?;
        let bulk = BulkArgument {
            position: taken.position,
            length: taken.length,
        };
        let apart = Some((bulk, first, 0));
        return Ok(Message {
            buffer: None,
            length: message.len(),
            apart,
        });
    }
    // Positions do not count alignment pads, so only the one who decodes knows where in a padded
    // message they are.
    if padding.align > 1 {
        return Err(Failed::Chunks);
    }
    let (buffer, length) = put_back(puller, shared, message, lists).await?;
    Ok(Message {
        buffer: Some(buffer),
        length,
        apart: None,
    })
}

/// Fetches a long message from its position zero chunk (RFC 5666 section 5.1).
pub async fn long<'a, S>(
    puller: &Puller<'_, S>,
    shared: &Shared<S>,
    lists: &Lists<'a>,
) -> Result<Message<'a>, Failed> {
    let zero = lists.reads.chunk(0).ok_or(Failed::Chunks)?;
    let total = usize::try_from(zero.length()).map_err(|_| Failed::Chunks)?;
    let fetched = total.min(if total > WHOLE { HEAD } else { WHOLE });
    let buffer = fetch(puller, shared, zero, fetched).await?;
    if total == fetched {
        let none = Padding::default();
        let rest = inline(puller, shared, &buffer[..total], none, lists).await?;
        return Ok(match rest.buffer {
            Some(_) => rest,
            None => Message {
                buffer: Some(buffer),
                ..rest
            },
        });
    }
    // Too long for anything but a WRITE whose data stands in the chunk: the part from the data on
    // stays there. Whatever else claims to be so long is cut off, and fails to decode.
    if lists.reads.chunks().nth(1).is_some() {
        return Err(Failed::Chunks);
    }
    Ok(match binding::write_data_position(&buffer[..fetched]) {
        Some(position) => {
            let bulk = BulkArgument {
                position: u32::try_from(position).map_err(|_| Failed::Chunks)?,
                length: u32::try_from(total - position).map_err(|_| Failed::Chunks)?,
            };
            let apart = Some((bulk, zero, position as u64));
            Message {
                buffer: Some(buffer),
                length: position,
                apart,
            }
        }
        None => Message {
            buffer: Some(buffer),
            length: fetched,
            apart: None,
        },
    })
}

/// Fetches the first `length` bytes of a chunk.
async fn fetch<S>(
    puller: &Puller<'_, S>,
    shared: &Shared<S>,
    chunk: ReadChunk<'_>,
    length: usize,
) -> Result<Buffer, Failed> {
    // Not of the class of replies, which would wait for each other then.
    let whole = shared.pool.acquire(Class::Medium).await;
    let whole = whole.into_slice(0..length);
    puller
        .fetch(chunk, 0, std::slice::from_ref(&whole))
        .await
        .map_err(|_| Failed::Broken)?;
    whole.try_into_buffer().map_err(|_| Failed::Broken)
}

/// Puts all chunks behind position zero back into the stream. The round-up of each is supplied
/// here (RFC 5666 section 3.7).
async fn put_back<S>(
    puller: &Puller<'_, S>,
    shared: &Shared<S>,
    message: &[u8],
    lists: &Lists<'_>,
) -> Result<(Buffer, usize), Failed> {
    let chunks = || lists.reads.chunks().filter(|chunk| chunk.position > 0);
    let apart: u64 = chunks().map(|chunk| round_up(chunk.length()) + 3).sum();
    let length = usize::try_from(apart)
        .ok()
        .and_then(|apart| apart.checked_add(message.len()));
    let length = length
        .filter(|length| *length <= WHOLE)
        .ok_or(Failed::Chunks)?;
    let whole = another(&shared.pool, length.max(Class::Medium.size())).await;
    let whole = whole.into_slice(0..length);
    let (mut at, mut taken) = (0, 0);
    for chunk in chunks() {
        let position = chunk.position as usize;
        // What stands inline before the chunk. A position inside an earlier chunk, or beyond what
        // the stream has, is wrong.
        let before = position.checked_sub(at).ok_or(Failed::Chunks)?;
        let there = before.min(message.len() - taken);
        // The round-up of the last item inline may have been left out.
        if before - there >= 4 {
            return Err(Failed::Chunks);
        }
        whole.copy_from(at, &message[taken..taken + there]);
        whole.fill_zero(at + there..position);
        (at, taken) = (position, taken + there);
        let bytes = usize::try_from(chunk.length()).map_err(|_| Failed::Chunks)?;
        let rounded = bytes.next_multiple_of(4);
        whole.fill_zero(at + bytes..at + rounded);
        let sink = whole.slice(at..at + bytes);
        puller
            .fetch(chunk, 0, &[sink])
            .await
            .map_err(|_| Failed::Broken)?;
        at += rounded;
    }
    whole.copy_from(at, &message[taken..]);
    let buffer = whole.try_into_buffer().map_err(|_| Failed::Broken)?;
    Ok((buffer, at + message.len() - taken))
}
