//! Sending replies and errors.

use std::rc::Rc;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, Class, NoMemory, Slice};
use millrace_reactor::fabric::chain::{self, Direction, NOBODY, RemoteSegment};
use millrace_reactor::fabric::{Key, Operation, SLICES_MAX, Slices, WorkRequest};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{
    FirstWords, Header, Lists, Outgoing, Refusal, ReplyChunks, Version, WriteChunk, encode_header,
    encode_plain_header,
};
use millrace_wire::xdr::{Encoder, ITEMS_MAX, pad, round_up};

use super::compat::FollowUp;
use super::connection::RdmaConnection;
use super::counters::count;
use super::pull::remote;
use super::settings::Inline;
use super::shared::ResponderShared;
use crate::call::{Broken, Limits, NO_CHUNKS, ReplyParts, insert_bulk};

/// The offset of the credit word (RFC 5666 section 4.1).
const CREDITS_AT: usize = 8;

/// The limits of a reply to a call of this version with these lists.
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
        flattens: true,
    }
}

fn clamp(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Whether a condition holds for the handles of all segments of a call.
fn all_handles(lists: &Lists<'_>, mut are: impl FnMut(u32) -> bool) -> bool {
    lists.reads.iter().all(|entry| are(entry.segment.handle))
        && (lists.writes.iter()).all(|chunk| chunk.iter().all(|segment| are(segment.handle)))
        && (lists.reply).is_none_or(|chunk| chunk.iter().all(|segment| are(segment.handle)))
}

/// The one key shared by all segments of a call, if there is one. A key of only some segments may
/// be one that the client keeps for longer than this call, like Linux's pad segments.
pub(super) fn common_key(lists: &Lists<'_>) -> Option<Key> {
    if lists.is_empty() {
        return None;
    }
    let mut first = None;
    let is_common = all_handles(lists, |handle| *first.get_or_insert(handle) == handle);
    first.filter(|_| is_common).map(Key)
}

/// The key that the reply to a call invalidates at the client. In version two the call nominates it
/// (version two draft section 5.2.3): no other key may be invalidated, and it must be one of the
/// call's. In version one private data permits it for all calls.
pub(super) fn invalidated(
    header: &Header<'_>,
    lists: &Lists<'_>,
    connection: &RdmaConnection,
) -> Option<Key> {
    if !connection.invalidates() {
        return None;
    }
    match header.version {
        Version::One if connection.inline().invalidate => common_key(lists),
        Version::One => None,
        Version::Two => {
            let key = header.invalidate;
            let is_own = key != 0 && !all_handles(lists, |handle| handle != key);
            is_own.then_some(Key(key))
        }
    }
}

/// A reply ready to be sent, except for the credits it announces.
pub struct Prepared {
    /// The RDMA Writes and the Send. The header begins the Send's first slice.
    pub(super) chain: Vec<WorkRequest>,
    /// Bytes written by the chain.
    pub(super) written: u64,
    pub(super) invalidates: bool,
    pub(super) form: ReplyForm,
    pub(super) follow_up: Option<FollowUp>,
}

/// How the message of a reply travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyForm {
    /// Inline.
    Inline,
    /// In chunks.
    Long,
    /// There is none, but an error of the transport or a call to the client.
    None,
}

impl ReplyForm {
    /// That of a message, in chunks or not.
    pub fn of(is_long: bool) -> Self {
        match is_long {
            true => Self::Long,
            false => Self::Inline,
        }
    }
}

/// The layout of a reply: bulk data goes to its write chunk, if there is one, else into the
/// message; the message is sent inline if it fits, else in the reply chunk (RFC 5666 section 5.2).
pub struct ReplyLayout<'a> {
    /// The write chunk of each bulk result, if it has one.
    targets: ArrayVec<Option<WriteChunk<'a>>, ITEMS_MAX>,
    /// Bytes of results in the message, and of the longest of their round-ups.
    within: usize,
    pad_max: usize,
    /// The length of the message including them.
    length: usize,
    long: bool,
    /// The data must be moved into the message ([`flatten`]).
    pub is_flat: bool,
}

impl<'a> ReplyLayout<'a> {
    /// The layout for a reply to a call that began with these limits; `None` if the message fits
    /// nowhere.
    pub fn of(
        parts: &ReplyParts,
        header: &Header<'_>,
        lists: &Lists<'a>,
        inline: Inline,
    ) -> Option<Self> {
        let (mut bytes, mut within, mut pad_max) = (0, 0, 0);
        let mut targets = ArrayVec::new();
        let mut chunks = lists.writes.iter();
        for item in &parts.bulk {
            let chunk = chunks.next().filter(|chunk| !chunk.is_empty());
            match &chunk {
                Some(chunk) if item.length as u64 > chunk.total() => return None,
                Some(_) => {}
                None => {
                    bytes += round_up(item.length as u64) as usize;
                    pad_max = pad_max.max(pad(item.length));
                    within += 1;
                }
            }
            targets.push(chunk);
        }
        let length = parts.message.len() + bytes;
        let long = parts.message.start + length > inline.limit(header.version);
        if long && length as u64 > lists.reply.map_or(0, |chunk| chunk.total()) {
            return None;
        }
        // A gathered Send has slices for the message around the data, the data, and its round-up.
        let is_flat = within > 0 && !long && parts.slices.len() + 2 * within + 1 > SLICES_MAX;
        if !is_flat && parts.message.end + pad_max > parts.buffer.len() {
            return None;
        }
        Some(Self {
            targets,
            within,
            pad_max,
            length,
            long,
            is_flat,
        })
    }

    /// Encodes the header and lists the work requests of a reply.
    pub fn prepare<S>(
        &self,
        shared: &ResponderShared<S>,
        mut parts: ReplyParts,
        header: &Header<'_>,
        lists: &Lists<'_>,
        connection: &Rc<RdmaConnection>,
    ) -> Prepared {
        let Self { within, length, .. } = *self;
        let headroom = parts.message.start;
        let mut chain = shared.chain();
        let mut written = ArrayVec::<u64, ITEMS_MAX>::new();
        if let [Some(chunk)] = self.targets[..] {
            written.extend(write_whole(&mut parts.slices, chunk, &mut chain));
        }
        let mut data = &parts.slices[..];
        for (item, target) in parts.bulk.iter().zip(&self.targets).skip(written.len()) {
            let (own, others) = data.split_at(covering(data, item.length));
            data = others;
            written.push(target.map_or(0, |chunk| {
                let segments = chunk.iter().map(remote);
                chain::transfer(Direction::ToPeer, own, segments, &mut chain)
            }));
        }
        let (end, pad_max) = match self.is_flat {
            true => (headroom + length, 0),
            false => (parts.message.end, self.pad_max),
        };
        let chunks = ReplyChunks {
            reads: &[],
            call: lists,
            written: &written,
            reply_written: if self.long { length as u64 } else { 0 },
        };
        let mut out = Encoder::new(&mut parts.buffer[..headroom]);
        let outgoing = Outgoing {
            version: header.version,
            xid: header.words.xid,
            credits: 0,
            inline: !self.long,
            direction: MessageType::Reply,
            invalidate: header.invalidate,
        };
        let encoded = if lists.is_empty() && header.invalidate == 0 {
            let xid = header.words.xid;
            encode_plain_header(&mut out, header.version, xid, 0, MessageType::Reply)
        } else {
            encode_header(&mut out, &outgoing, &chunks)
        };
        debug_assert!(
            encoded.is_ok() && out.position() == headroom,
            "`limits` kept this much room"
        );
        if pad_max > 0 {
            parts.buffer[end..end + pad_max].fill(0);
        }

        let whole = parts.buffer.into_slice(0..end + pad_max);
        let mut written: u64 = written.iter().sum();
        let (xid, invalidate) = (header.words.xid, invalidated(header, lists, connection));
        if within == 0 && !self.long {
            shared.recycle_slices(parts.slices);
            return Prepared {
                written,
                ..Prepared::new(xid, chain, invalidate, std::iter::once(whole))
            };
        }
        let mut message = shared.slices();
        let mut at = if self.long { headroom } else { 0 };
        let mut data = &parts.slices[..];
        let gathered = if self.is_flat { &[] } else { &parts.bulk[..] };
        for (item, target) in gathered.iter().zip(&self.targets) {
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
        message.push(whole.slice(at..end));
        message.retain(|slice| !slice.is_empty());
        if let (true, Some(chunk)) = (self.long, lists.reply) {
            let segments = chunk.iter().map(remote);
            written += chain::transfer(Direction::ToPeer, &message, segments, &mut chain);
            message.clear();
            message.push(whole.slice(0..headroom));
        }
        shared.recycle_slices(parts.slices);
        let prepared = Prepared {
            written,
            form: ReplyForm::of(self.long),
            ..Prepared::new(xid, chain, invalidate, message.drain(..))
        };
        shared.recycle_slices(message);
        prepared
    }
}

impl Prepared {
    /// A reply to a call, without data in its chunks but what `chain` writes there. `send` begins
    /// with the header.
    pub(super) fn new(
        xid: u32,
        mut chain: Vec<WorkRequest>,
        invalidate: Option<Key>,
        send: impl IntoIterator<Item = Slice>,
    ) -> Self {
        let token = token_of(xid);
        for request in &mut chain {
            request.token = token;
        }
        chain.push(WorkRequest {
            token,
            operation: Operation::Send {
                invalidate,
                solicited: false,
            },
            local: Slices::new(),
            signalled: false,
        });
        if let Some(last) = chain.last_mut() {
            // Filled in place: a list of slices is expensive to move.
            send.into_iter().for_each(|slice| last.local.push(slice));
        }
        Self {
            chain,
            written: 0,
            invalidates: invalidate.is_some(),
            form: ReplyForm::Inline,
            follow_up: None,
        }
    }

    /// Announces `credits`.
    pub fn grant(&self, credits: u32) {
        let send = self.chain.last();
        if let Some(first) = send.and_then(|send| send.local.first()) {
            first.copy_from(CREDITS_AT, &credits.to_be_bytes());
        }
    }

    /// Announces `credits` and posts the RDMA Writes and the Send as one chain.
    pub async fn send<S>(
        &mut self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        credits: u32,
    ) -> Result<(), Broken> {
        self.grant(credits);
        let posted = connection.post(shared, &mut self.chain).await;
        self.sent(shared, connection, posted);
        posted
    }

    /// Counts it and begins what follows, after its chain was posted.
    pub fn sent<S>(
        &mut self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        posted: Result<(), Broken>,
    ) {
        if let (Ok(()), Some(follow_up)) = (posted, self.follow_up.take()) {
            follow_up.begin(shared, connection);
        }
        shared.recycle_chain(std::mem::take(&mut self.chain));
        for counters in [connection.counters(), &*shared.counters] {
            counters.written_bytes.add(self.written);
            counters.invalidations.add(u64::from(self.invalidates));
            match self.form {
                ReplyForm::Inline => counters.replies_inline.add(1),
                ReplyForm::Long => counters.replies_long.add(1),
                ReplyForm::None => {}
            }
        }
    }
}

/// Writes the only slice of a result into the first segment of its chunk, if it fits there, without
/// a second reference to its memory. Returns its bytes.
fn write_whole(
    slices: &mut Vec<Slice>,
    chunk: WriteChunk<'_>,
    chain: &mut Vec<WorkRequest>,
) -> Option<u64> {
    let ([slice], segment) = (&slices[..], remote(chunk.iter().next()?)) else {
        return None;
    };
    let length = slice.len();
    if length == 0 || length > segment.length as usize {
        return None;
    }
    write(chain, segment, slices.drain(..));
    Some(length as u64)
}

/// Adds an RDMA Write of slices to the beginning of a segment.
#[inline]
pub(super) fn write(
    chain: &mut Vec<WorkRequest>,
    segment: RemoteSegment,
    slices: impl IntoIterator<Item = Slice>,
) {
    chain.push(WorkRequest {
        token: NOBODY,
        operation: Operation::Write(segment.address),
        local: Slices::new(),
        signalled: false,
    });
    // Filled in place: a list of slices is expensive to move.
    if let Some(request) = chain.last_mut() {
        let local = &mut request.local;
        slices.into_iter().for_each(|slice| local.push(slice));
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

/// Moves data into the message if it has no chunk and more slices than a Send may gather.
///
/// # Errors
/// There is no memory for that; the parts are unchanged.
pub async fn flatten<S>(
    shared: &ResponderShared<S>,
    parts: &mut ReplyParts,
    layout: &ReplyLayout<'_>,
) -> Result<(), NoMemory> {
    let end = parts.message.start + layout.length;
    let larger = match end > parts.buffer.len() {
        true => Some(shared.pool.obtain_another(end).await?),
        false => None,
    };
    flatten_into(parts, layout, larger);
    Ok(())
}

/// The same at once. False if there is no memory for that; the parts are unchanged.
pub fn flatten_at_once<S>(
    shared: &ResponderShared<S>,
    parts: &mut ReplyParts,
    layout: &ReplyLayout<'_>,
) -> bool {
    let end = parts.message.start + layout.length;
    let mut larger = None;
    if end > parts.buffer.len() {
        larger = Class::for_size(end).and_then(|class| shared.pool.try_obtain(class));
        if larger.is_none() {
            return false;
        }
    }
    flatten_into(parts, layout, larger);
    true
}

fn flatten_into(parts: &mut ReplyParts, layout: &ReplyLayout<'_>, larger: Option<Buffer>) {
    let message = parts.message.clone();
    let end = message.start + layout.length;
    if let Some(mut larger) = larger {
        larger[message.clone()].copy_from_slice(&parts.buffer[message.clone()]);
        parts.buffer = larger;
    }
    let whole = &mut parts.buffer[message.start..end];
    let is_within = |index: usize| layout.targets.get(index).is_some_and(Option::is_none);
    insert_bulk(whole, message.len(), &parts.bulk, &parts.slices, is_within);
}

/// The upper half of tokens of replies. They have no waiters: no generation of these is so high.
const REPLY: u64 = 0xffff_ffff << 32;

/// The token of the work requests that answer a call.
fn token_of(xid: u32) -> u64 {
    REPLY | u64::from(xid)
}

/// The call that a work request answered.
pub fn call_of(token: u64) -> Option<u32> {
    // The lower half is the XID.
    (token & REPLY == REPLY).then_some(token as u32)
}

/// Prepares the error for a refused message; `None` if it cannot be encoded. It is a plain Send:
/// only replies invalidate (version two draft section 5.2.3).
pub fn refused<S>(
    shared: &ResponderShared<S>,
    connection: &RdmaConnection,
    refusal: Refusal,
    words: &FirstWords,
    mut buffer: Buffer,
) -> Option<Prepared> {
    let mut out = Encoder::new(&mut buffer);
    let versions = connection.terms().rules.versions;
    // The credits are written when they are known.
    refusal.encode(words, 0, versions, &mut out).ok()?;
    let length = out.position();
    count(shared, connection, |counters| {
        counters.count_error(refusal, words.version);
    });
    let whole = std::iter::once(buffer.into_slice(0..length));
    Some(Prepared {
        form: ReplyForm::None,
        ..Prepared::new(words.xid, shared.chain(), None, whole)
    })
}
