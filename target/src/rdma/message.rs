//! Assembles a call's RPC message from its inline part and its read chunks.
//!
//! Argument data that the program table marks as eligible for direct data placement stays in its
//! chunk, to be fetched directly to its destination. All other data is inserted into the stream at
//! its position (RFC 5666 section 3.4), in a separate buffer.

use millrace_mempool::{Buffer, Class};
use millrace_wire::rpc::CallHeader;
use millrace_wire::rpcrdma::{Lists, ReadChunk, ReadList};
use millrace_wire::xdr::{Decoder, ITEMS_MAX, Padding, round_up};

use super::pull::Puller;
use super::shared::ResponderShared;
use crate::call::{BulkArgument, Serve};
use crate::rpc::program::{FIXED_WORDS, WHOLE};

/// Bytes of a message fetched first, if it is so long that its procedure determines what to do: most
/// calls of this length have a last item that stays in its chunk. The part before the data of a WRITE fits (RFC 1813 section 3.3.7: at
/// most 24 bytes of call header, two 408 byte authenticators, and 88 bytes of arguments).
const HEAD: usize = 4096;

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblyError {
    /// The chunks cannot be assembled: answer ERR_CHUNK.
    Chunks,
    /// The connection ended.
    Broken,
}

/// A message as far as it was assembled.
pub struct CallMessage<'a> {
    /// The buffer of the assembled message; `None` if it is in the receive buffer.
    pub buffer: Option<Buffer>,
    /// Its bytes, in that buffer.
    pub length: usize,
    /// Data left in chunks.
    pub reduced: ReducedItems<'a>,
}

/// Items left in their chunks.
#[derive(Clone, Copy)]
pub enum ReducedItems<'a> {
    /// Each chunk of the list except those at position zero is one.
    Chunks(ReadList<'a>),
    /// The last item is the end of a position zero chunk, from this byte on.
    End(ReadChunk<'a>, u32),
}

impl<'a> ReducedItems<'a> {
    /// The chunk of each item, and how many of its bytes come before the item's data.
    pub fn iter(&self) -> impl Iterator<Item = (ReadChunk<'a>, u32)> + use<'a> {
        let (list, end) = match *self {
            Self::Chunks(list) => (list, None),
            Self::End(chunk, skip) => (ReadList::default(), Some((chunk, skip))),
        };
        behind_zero(list).map(|chunk| (chunk, 0)).chain(end)
    }

    /// The lengths of the items, for the program; `None` for an item of 2^32 bytes or more.
    pub fn arguments(&self) -> impl Iterator<Item = Option<BulkArgument>> + use<'a> {
        self.iter().map(|(chunk, skip)| match skip {
            0 => chunk.taken(),
            skip => Some(BulkArgument {
                position: skip,
                length: u32::try_from(chunk.length() - u64::from(skip)).ok()?,
            }),
        })
    }
}

impl Default for ReducedItems<'_> {
    fn default() -> Self {
        Self::Chunks(ReadList::default())
    }
}

fn behind_zero(list: ReadList<'_>) -> impl Iterator<Item = ReadChunk<'_>> {
    list.chunks().filter(|chunk| chunk.position > 0)
}

/// Assembles an inline message and its chunks, some of which are left in place.
pub async fn inline<'a, S: Serve>(
    puller: &Puller<'_, S>,
    shared: &ResponderShared<S>,
    message: &[u8],
    padding: Padding,
    lists: &Lists<'a>,
) -> Result<CallMessage<'a>, AssemblyError> {
    let length = message.len();
    // Positions do not count alignment pads, so only the decoder knows their places in a padded
    // message.
    if padding.align > 1 {
        return Err(AssemblyError::Chunks);
    }
    let mut buffer = room(puller, shared, Class::Medium).await?;
    let start = buffer.get_mut(..length).ok_or(AssemblyError::Chunks)?;
    start.copy_from_slice(message);
    put_back(puller, buffer, length, lists).await
}

/// Whether the chunks after position zero are left in place; else they are inserted.
pub fn are_reduced<S: Serve>(
    shared: &ResponderShared<S>,
    message: &[u8],
    lists: &Lists<'_>,
) -> bool {
    if lists.reads.is_empty() {
        return true;
    }
    let Some(first) = behind_zero(lists.reads).next() else {
        return true;
    };
    let eligible = || shared.programs.procedure(message)?.arguments;
    let most = eligible().map_or(0, |arguments| arguments.most.min(ITEMS_MAX));
    // Lists may be long.
    let count = behind_zero(lists.reads).take(most + 1).count();
    first.position >= FIXED_WORDS && count <= most
}

/// Fetches a long message from its position zero chunk (RFC 5666 section 5.1).
pub async fn long<'a, S: Serve>(
    puller: &Puller<'_, S>,
    shared: &ResponderShared<S>,
    lists: &Lists<'a>,
) -> Result<CallMessage<'a>, AssemblyError> {
    let zero = lists.reads.chunk(0).ok_or(AssemblyError::Chunks)?;
    let total = usize::try_from(zero.length()).map_err(|_| AssemblyError::Chunks)?;
    let mut fetched = total.min(if total > WHOLE { HEAD } else { WHOLE });
    let mut buffer = fetch(puller, shared, Class::Medium, zero, fetched).await?;
    if total > fetched && total <= most(shared, &buffer[..fetched]) {
        // Calls that wait for memory while they hold some could wait for each other.
        drop(buffer);
        fetched = total;
        buffer = fetch(puller, shared, Class::Large, zero, total).await?;
    }
    if total == fetched {
        if !are_reduced(shared, &buffer[..total], lists) {
            return put_back(puller, buffer, total, lists).await;
        }
        return Ok(CallMessage {
            buffer: Some(buffer),
            length: total,
            reduced: ReducedItems::Chunks(lists.reads),
        });
    }
    // Too long for anything but arguments whose last item may stay in the chunk: it does, from its
    // data on. Any other message of this length is truncated, and fails to decode.
    if lists.reads.chunks().nth(1).is_some() {
        return Err(AssemblyError::Chunks);
    }
    Ok(match last_item(shared, &buffer[..fetched]) {
        Some(position) => {
            let skip = u32::try_from(position).map_err(|_| AssemblyError::Chunks)?;
            CallMessage {
                buffer: Some(buffer),
                length: position,
                reduced: ReducedItems::End(zero, skip),
            }
        }
        None => CallMessage {
            buffer: Some(buffer),
            length: fetched,
            reduced: ReducedItems::default(),
        },
    })
}

/// Most bytes of a call that is put together as a whole, by its first ones.
fn most<S: Serve>(shared: &ResponderShared<S>, message: &[u8]) -> usize {
    let procedure = shared.programs.procedure(message);
    procedure.map_or(WHOLE, |procedure| procedure.whole)
}

/// The offset of the data of the item that ends the arguments, from the XID; `None` if the table
/// has no such item, or `message` is shorter.
fn last_item<S: Serve>(shared: &ResponderShared<S>, message: &[u8]) -> Option<usize> {
    let to_last = shared.programs.procedure(message)?.arguments?.to_last?;
    let mut input = Decoder::new(message);
    CallHeader::decode(&mut input).ok()?;
    to_last(&mut input).ok()?;
    Some(input.position())
}

/// A buffer for assembling a message, once the client may hold one more: the client determines when
/// its parts arrive.
async fn room<S>(
    puller: &Puller<'_, S>,
    shared: &ResponderShared<S>,
    class: Class,
) -> Result<Buffer, AssemblyError> {
    // Not of the class of replies, which could then wait for each other.
    let obtained = shared.pool.obtain(class).await;
    obtained.map_err(|error| {
        puller.connection().no_memory(error);
        AssemblyError::Broken
    })
}

/// Fetches the first `length` bytes of a chunk into a buffer of this class.
async fn fetch<S>(
    puller: &Puller<'_, S>,
    shared: &ResponderShared<S>,
    class: Class,
    chunk: ReadChunk<'_>,
    length: usize,
) -> Result<Buffer, AssemblyError> {
    let whole = room(puller, shared, class).await?;
    let whole = whole.into_slice(0..length);
    puller
        .fetch(chunk, 0, std::slice::from_ref(&whole))
        .await
        .map_err(|_| AssemblyError::Broken)?;
    whole.try_into_buffer().map_err(|_| AssemblyError::Broken)
}

/// Inserts all chunks after position zero into the stream, whose other `inline` bytes begin the
/// buffer. The round-up of each is added here (RFC 5666 section 3.7).
async fn put_back<'a, S>(
    puller: &Puller<'_, S>,
    mut buffer: Buffer,
    inline: usize,
    lists: &Lists<'_>,
) -> Result<CallMessage<'a>, AssemblyError> {
    let chunks = || lists.reads.chunks().filter(|chunk| chunk.position > 0);
    // Including a round-up before each that may be missing inline.
    let apart: u64 = chunks().map(|chunk| round_up(chunk.length()) + 3).sum();
    let free = buffer.len().min(WHOLE).saturating_sub(inline) as u64;
    if apart > free {
        return Err(AssemblyError::Chunks);
    }
    // The inline part is moved to the end, and from there to its places, which are never behind it.
    let end = buffer.len();
    let mut rest = end - inline;
    buffer.copy_within(..inline, rest);
    let mut at = 0;
    for chunk in chunks() {
        let position = chunk.position as usize;
        // The inline part before the chunk. A position inside an earlier chunk, or beyond the
        // stream, is an error.
        let before = position.checked_sub(at).ok_or(AssemblyError::Chunks)?;
        let there = before.min(end - rest);
        // The round-up of the last inline item may be omitted.
        if before - there >= 4 {
            return Err(AssemblyError::Chunks);
        }
        buffer.copy_within(rest..rest + there, at);
        buffer[at + there..position].fill(0);
        rest += there;
        let bytes = usize::try_from(chunk.length()).map_err(|_| AssemblyError::Chunks)?;
        at = position + bytes.next_multiple_of(4);
        buffer[position + bytes..at].fill(0);
    }
    buffer.copy_within(rest.., at);
    let length = at + end - rest;
    let whole = buffer.into_slice(0..length);
    for chunk in chunks() {
        let (position, bytes) = (chunk.position as usize, chunk.length() as usize);
        let sink = whole.slice(position..position + bytes);
        puller
            .fetch(chunk, 0, &[sink])
            .await
            .map_err(|_| AssemblyError::Broken)?;
    }
    let buffer = whole.try_into_buffer().map_err(|_| AssemblyError::Broken)?;
    Ok(CallMessage {
        buffer: Some(buffer),
        length,
        reduced: ReducedItems::default(),
    })
}
