//! Sending replies and errors.

use std::rc::Rc;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, NoMemory, Slice};
use millrace_reactor::fabric::chain::{self, Direction, NOBODY};
use millrace_reactor::fabric::{Key, Operation, SLICES_MAX, Slices, WorkRequest};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{
    FirstWords, Header, Lists, Optional, Outgoing, Refusal, ReplyChunks, Version, Versions,
    WriteChunk, encode_header, version2,
};
use millrace_wire::xdr::{Encoder, ITEMS_MAX, pad, round_up};

use super::ccp::Agreed;
use super::connection::Connection;
use super::pull::remote;
use super::settings::Inline;
use super::shared::Shared;
use crate::call::{Broken, Limits, NO_CHUNKS, ReplyParts};

/// Where the credit word stands (RFC 5666 section 4.1).
const CREDITS_AT: usize = 8;

/// What a reply to a call of this version and with these lists may take.
pub fn limits(version: Version, lists: &Lists<'_>, inline: usize) -> Limits {
    let headroom = version.before_lists() + lists.reply_length();
    let reply_chunk = lists.reply.map_or(0, |chunk| clamp(chunk.total()));
    let mut apart = NO_CHUNKS;
    for (room, chunk) in apart.iter_mut().zip(lists.writes.iter()) {
        *room = (!chunk.is_empty()).then(|| u32::try_from(chunk.total()).unwrap_or(u32::MAX));
    }
    Limits {
        headroom,
        message: inline.saturating_sub(headroom).max(reply_chunk),
        apart,
        tells_shortage: version == Version::Two,
    }
}

fn clamp(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The handles of all segments of a call.
fn handles(lists: &Lists<'_>) -> impl Iterator<Item = u32> {
    let reads = lists.reads.iter().map(|entry| entry.segment);
    let writes = lists.writes.iter().flat_map(|chunk| chunk.iter());
    let reply = lists.reply.into_iter().flat_map(|chunk| chunk.iter());
    let segments = reads.chain(writes).chain(reply);
    segments.map(|segment| segment.handle)
}

/// The one key that all segments of a call share, if they do. A key that only some share may be
/// one that the client keeps for longer than this call, like Linux's pad segments.
pub(super) fn common_key(lists: &Lists<'_>) -> Option<Key> {
    let mut handles = handles(lists);
    let first = handles.next()?;
    handles.all(|handle| handle == first).then_some(Key(first))
}

/// The key that the reply to a call invalidates at the client. In version two the call nominates it
/// (version two draft section 5.2.3): no other may be taken, and one that is none of the call's is
/// not. In version one private data allows it for all calls.
fn invalidated(header: &Header<'_>, lists: &Lists<'_>, connection: &Connection) -> Option<Key> {
    if !connection.invalidates() {
        return None;
    }
    match header.version {
        Version::One if connection.inline().invalidate => common_key(lists),
        Version::One => None,
        Version::Two => handles(lists)
            .find(|&handle| handle != 0 && handle == header.invalidate)
            .map(Key),
    }
}

/// A reply that is ready to leave, but for the credits it announces. It is handed on several times
/// for each call, so it is kept small.
pub struct Prepared {
    pub(super) xid: u32,
    /// The RDMA Writes that go before the Send.
    pub(super) chain: Vec<WorkRequest>,
    /// What the Send carries. The header begins the first slice.
    pub(super) send: Vec<Slice>,
    /// Bytes that the chain writes.
    pub(super) written: u64,
    pub(super) invalidate: Option<Key>,
    pub(super) long: bool,
    /// Number of the exposure that the client is to fetch.
    pub(super) exposed: Option<u64>,
    /// Limits that hold for all that comes behind it.
    pub(super) agreed: Option<Box<Agreed>>,
}

// What is longer is moved by calls of memcpy.
const _: () = assert!(size_of::<Prepared>() <= 128);

/// Plans a reply: bulk data to its write chunk, if there is one, else into the message; the
/// message inline if it fits, else into the reply chunk (RFC 5666 section 5.2). `inline` are the
/// limits that the call began with.
///
/// # Errors
/// The parts, when the message fits nowhere.
pub async fn prepare<S>(
    shared: &Shared<S>,
    mut parts: ReplyParts,
    header: &Header<'_>,
    lists: &Lists<'_>,
    connection: &Rc<Connection>,
    inline: Inline,
) -> Result<Prepared, ReplyParts> {
    let xid = header.words.xid;
    let (headroom, end) = (parts.message.start, parts.message.end);
    let (mut within, mut count, mut pad_max, mut fits) = (0, 0, 0, true);
    let mut targets = ArrayVec::<_, ITEMS_MAX>::new();
    let mut chunks = lists.writes.iter();
    for item in &parts.bulk {
        let chunk = chunks.next().filter(|chunk| !chunk.is_empty());
        match &chunk {
            Some(chunk) => fits &= item.length as u64 <= chunk.total(),
            None => {
                within += round_up(item.length as u64) as usize;
                pad_max = pad_max.max(pad(item.length));
                count += 1;
            }
        }
        targets.push(chunk);
    }
    let length = parts.message.len() + within;
    let long = headroom + length > inline.limit(header.version);
    let reply_room = lists.reply.map_or(0, |chunk| chunk.total());
    if (long && length as u64 > reply_room) || !fits {
        return Err(parts);
    }
    let items = || parts.bulk.iter().zip(&targets);
    let mut chain = shared.chain();
    let mut written = ArrayVec::<u64, ITEMS_MAX>::new();
    let mut data = &parts.slices[..];
    for (item, target) in items() {
        let (own, others) = data.split_at(covering(data, item.length));
        data = others;
        written.push(target.map_or(0, |chunk| {
            let segments = chunk.iter().map(remote);
            chain::transfer(Direction::ToPeer, own, segments, &mut chain)
        }));
    }
    // A gathered Send takes the message around the data, the data, and its round-up.
    let flat = count > 0 && !long && parts.slices.len() + 2 * count + 1 > SLICES_MAX;
    let end = if flat { headroom + length } else { end };
    if flat {
        if flatten(shared, &mut parts, &targets, end).await.is_err() {
            shared.recycle_chain(chain);
            return Err(parts);
        }
    } else if end + pad_max > parts.buffer.len() {
        shared.recycle_chain(chain);
        return Err(parts);
    }
    let chunks = ReplyChunks {
        reads: &[],
        call: lists,
        written: &written,
        reply_written: if long { length as u64 } else { 0 },
    };
    let mut out = Encoder::new(&mut parts.buffer[..headroom]);
    let outgoing = Outgoing {
        version: header.version,
        xid,
        credits: 0,
        inline: !long,
        direction: MessageType::Reply,
        invalidate: header.invalidate,
    };
    let encoded = encode_header(&mut out, &outgoing, &chunks);
    debug_assert!(
        encoded.is_ok() && out.position() == headroom,
        "`limits` kept this much room"
    );
    if pad_max > 0 && !flat {
        parts.buffer[end..end + pad_max].fill(0);
    }

    let whole = parts
        .buffer
        .into_slice(0..if flat { end } else { end + pad_max });
    let mut at = if long { headroom } else { 0 };
    let mut message = shared.slices();
    if count > 0 && !flat {
        let mut data = &parts.slices[..];
        for (item, target) in parts.bulk.iter().zip(&targets) {
            let (own, others) = data.split_at(covering(data, item.length));
            data = others;
            if target.is_none() {
                let position = headroom + item.position;
                message.push(whole.slice(at..position));
                message.extend_from_slice(own);
                message.push(whole.slice(end..end + pad(item.length)));
                at = position;
            }
        }
    }
    message.push(whole.slice(at..end));
    if count > 0 {
        message.retain(|slice| !slice.is_empty());
    }
    let mut written: u64 = written.iter().sum();
    shared.recycle_slices(parts.slices);
    if let (true, Some(chunk)) = (long, lists.reply) {
        let segments = chunk.iter().map(remote);
        written += chain::transfer(Direction::ToPeer, &message, segments, &mut chain);
        message.clear();
        message.push(whole.slice(0..headroom));
    }
    let invalidate = invalidated(header, lists, connection);
    Ok(Prepared {
        xid,
        chain,
        send: message,
        written,
        invalidate,
        long,
        exposed: None,
        agreed: None,
    })
}

impl Prepared {
    /// Announces `credits` and posts the RDMA Writes and the Send as one chain.
    pub async fn send<S>(
        mut self,
        shared: &Shared<S>,
        connection: &Rc<Connection>,
        credits: u32,
    ) -> Result<(), Broken> {
        if let Some(first) = self.send.first() {
            first.copy_from(CREDITS_AT, &credits.to_be_bytes());
        }
        let operation = Operation::Send {
            invalidate: self.invalidate,
            solicited: false,
        };
        self.chain.push(WorkRequest {
            token: NOBODY,
            operation,
            local: Slices::new(),
            signalled: false,
        });
        if let Some(last) = self.chain.last_mut() {
            // Filled where it stands: a list of slices is large to move.
            last.local.extend(self.send.drain(..));
        }
        for request in &mut self.chain {
            request.token = token_of(self.xid);
        }
        let posted = connection.post(shared, &mut self.chain).await;
        if let (Ok(()), Some(number)) = (posted, self.exposed) {
            connection.exposures.sent(shared, connection, number);
        }
        if let (Ok(()), Some(agreed)) = (posted, &self.agreed) {
            connection.agree(agreed);
        }
        shared.recycle_chain(self.chain);
        shared.recycle_slices(self.send);
        for counters in [connection.counters(), &*shared.counters] {
            counters.written_bytes.add(self.written);
            counters
                .invalidations
                .add(u64::from(self.invalidate.is_some()));
            if self.long {
                counters.replies_long.add(1);
            } else {
                counters.replies_inline.add(1);
            }
        }
        posted
    }
}

/// How many of the first slices hold `length` bytes.
fn covering(slices: &[Slice], length: usize) -> usize {
    let mut held = 0;
    let ends = |slice: &Slice| {
        held += slice.len();
        held >= length
    };
    match length {
        0 => 0,
        _ => slices
            .iter()
            .position(ends)
            .map_or(slices.len(), |last| last + 1),
    }
}

/// Moves data that has no chunk and lies in more pieces than a Send may gather into the message,
/// which then ends at `end` of the buffer.
///
/// # Errors
/// There is no memory for that; the parts are as before.
async fn flatten<S>(
    shared: &Shared<S>,
    parts: &mut ReplyParts,
    targets: &[Option<WriteChunk<'_>>],
    end: usize,
) -> Result<(), NoMemory> {
    let message = parts.message.clone();
    if end > parts.buffer.len() {
        let mut larger = shared.pool.obtain_another(end).await?;
        larger[message.clone()].copy_from_slice(&parts.buffer[message.clone()]);
        parts.buffer = larger;
    }
    let (mut from, mut to) = (message.end, end);
    let mut last = parts.slices.len();
    // From the last to the first, so that nothing is written over that is still to be moved.
    for (item, target) in parts.bulk.iter().zip(targets).rev() {
        let mut first = last;
        let mut left = item.length;
        while left > 0 {
            first -= 1;
            left -= parts.slices[first].len();
        }
        if target.is_none() {
            let at = message.start + item.position;
            to -= from - at;
            parts.buffer.copy_within(at..from, to);
            from = at;
            let behind = to;
            to -= item.length + pad(item.length);
            let mut filled = to;
            for slice in &parts.slices[first..last] {
                slice.copy_to(0, &mut parts.buffer[filled..filled + slice.len()]);
                filled += slice.len();
            }
            parts.buffer[filled..behind].fill(0);
        }
        last = first;
    }
    Ok(())
}

/// The upper half of tokens of replies. Nobody waits for those; completions of that generation
/// are told from them by not being known.
const REPLY: u64 = 0xffff_ffff << 32;

/// The token of the work requests that answer a call.
fn token_of(xid: u32) -> u64 {
    REPLY | u64::from(xid)
}

/// The call that a work request was the answer to.
pub fn call_of(token: u64) -> Option<u32> {
    // The lower half is the XID.
    (token & REPLY == REPLY).then_some(token as u32)
}

/// Encodes the error for a message that is refused, and returns its length.
pub fn encode_refusal(
    refusal: Refusal,
    words: &FirstWords,
    versions: Versions,
    buffer: &mut [u8],
) -> Option<usize> {
    let mut out = Encoder::new(buffer);
    // The credits are written when they are known.
    refusal.encode(words, 0, versions, &mut out).ok()?;
    Some(out.position())
}

/// Encodes what an extension answers (version two draft section 4.1), if that may be sent at all.
pub fn encode_optional(xid: u32, optional: &Optional<'_>, buffer: &mut [u8]) -> Option<usize> {
    let mut out = Encoder::new(buffer);
    // The credits are written when they are known.
    version2::encode_optional(&mut out, xid, 0, optional).ok()?;
    Some(out.position())
}

/// Sends an error or an extension's answer. Such messages are plain Sends: only replies invalidate
/// (version two draft section 5.2.3).
pub async fn send_plain<S>(
    shared: &Shared<S>,
    connection: &Rc<Connection>,
    buffer: Buffer,
    length: usize,
    credits: u32,
) -> Result<(), Broken> {
    let whole = buffer.into_slice(0..length);
    whole.copy_from(CREDITS_AT, &credits.to_be_bytes());
    let mut chain = shared.chain();
    chain.push(WorkRequest {
        token: NOBODY,
        operation: Operation::Send {
            invalidate: None,
            solicited: false,
        },
        local: std::iter::once(whole).collect(),
        signalled: false,
    });
    let posted = connection.post(shared, &mut chain).await;
    shared.recycle_chain(chain);
    posted
}
