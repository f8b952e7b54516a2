//! Classic mode: replies that the client fetches (RFC 5666 sections 3.4, 3.8 and 5.2).
//!
//! A reply that fits neither inline nor into the chunks of its call is exposed. Data separate from
//! the message becomes a read chunk at its position if the rest fits inline, else the whole message
//! becomes one at position zero (RDMA_NOMSG). The exposed memory is that of the data: extents of
//! the store, and the reply's own buffer.
//!
//! If a limit prevents one more exposure, a reply waits in a queue while its own connection has
//! exposures that can end, but gives up when one ends after the reply has waited for a window. All
//! others are answered ERR_CHUNK at once, as without classic mode: the limit may be used up by
//! other connections for any time.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, Class, Pool, Slice};
use millrace_reactor::fabric::ExposeError;
use millrace_reactor::fabric::chain::{self, Direction};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{
    FIRST_WORDS, Lists, Outgoing, READ_ENTRY_LENGTH, ReadSegment, ReplyChunks, Segment, Version,
    encode_header,
};
use millrace_wire::xdr::{Encode, Encoder, pad};

use super::FollowUp;
use super::exposures::{SEGMENTS_MAX, Segments};
use crate::call::{BulkResult, Limits, ReplyParts};
use crate::rdma::answer::{Prepared, ReplyForm, common_key};
use crate::rdma::counters::count;
use crate::rdma::pull::remote;
use crate::rdma::settings::Inline;
use crate::rdma::{RdmaConnection, ResponderShared};

/// The longest reply message that is exposed: the largest READ and the message around its data.
const MESSAGE_MAX: usize = Class::Large.size() + Class::Control.size();

/// The most slices of data in one reply if a key covers `group` of them: the message before and
/// after it and its round-up may have to be exposed with it.
const fn pieces_max(group: usize) -> usize {
    SEGMENTS_MAX * group - 3
}

/// Buffers of each class left free when one is held for long, so that calls without exposures are
/// not delayed.
const SPARE: [(Class, usize); 3] = [
    (Class::Control, SPARE_MAX),
    (Class::Medium, 4),
    (Class::Large, 1),
];

/// The most replies of one reactor, and of one connection, that wait for an exposure: each holds a
/// task and a buffer.
const WAITING_MAX: usize = 256;
const WAITING_CONNECTION_MAX: usize = WAITING_MAX / 2;

const SPARE_MAX: usize = 16;

/// The limits of a reply that can be exposed.
pub fn limits(limits: Limits) -> Limits {
    Limits {
        message: limits.message.max(MESSAGE_MAX),
        ..limits
    }
}

/// The parts of a reply that a client fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadChunkPlan {
    /// Whether it is the whole message, at position zero; else its data only.
    whole: bool,
    /// The data without a write chunk.
    within: Option<BulkResult>,
    /// The number of segments exposed.
    segments: usize,
    /// Bytes of the transport header.
    header: usize,
}

impl ReadChunkPlan {
    /// For `message` bytes around data in `slices` slices, of which one key covers `group`; none if
    /// the header does not fit inline.
    fn new(
        lists: &Lists<'_>,
        within: Option<BulkResult>,
        message: usize,
        slices: usize,
        group: usize,
        send: usize,
    ) -> Option<Self> {
        let header = |segments| FIRST_WORDS + lists.reply_length() + READ_ENTRY_LENGTH * segments;
        let data = slices.div_ceil(group);
        if within.is_some() && header(data) + message <= send {
            return Some(Self {
                whole: false,
                within,
                segments: data,
                header: header(data),
            });
        }
        let pieces = within.map_or(1, |bulk| {
            let behind = usize::from(bulk.position < message);
            1 + slices + usize::from(pad(bulk.length) > 0) + behind
        });
        let segments = pieces.div_ceil(group);
        (header(segments) <= send).then_some(Self {
            whole: true,
            within,
            segments,
            header: header(segments),
        })
    }

    /// The position of the chunk in the stream.
    fn position(&self) -> usize {
        let data = self.within.filter(|_| !self.whole);
        data.map_or(0, |bulk| bulk.position)
    }

    /// Zeros after the data in a whole message.
    fn padding(&self) -> usize {
        let within = self.within.filter(|_| self.whole);
        within.map_or(0, |bulk| pad(bulk.length))
    }

    /// Encodes the header, with space for keys that are not known yet.
    fn encode(&self, out: &mut [u8], xid: u32, lists: &Lists<'_>, written: u64) {
        let unknown = ReadSegment {
            position: 0,
            segment: Segment {
                handle: 0,
                length: 0,
                offset: 0,
            },
        };
        let outgoing = Outgoing {
            version: Version::One,
            xid,
            credits: 0,
            inline: !self.whole,
            direction: MessageType::Reply,
            invalidate: 0,
        };
        let chunks = ReplyChunks {
            reads: &[unknown; SEGMENTS_MAX][..self.segments],
            call: lists,
            written: &[written][..usize::from(written > 0)],
            reply_written: 0,
        };
        let mut out = Encoder::new(out);
        let encoded = encode_header(&mut out, &outgoing, &chunks);
        debug_assert!(
            encoded.is_ok() && out.position() == self.header,
            "{self:?} {encoded:?}"
        );
    }
}

/// Plans a reply for which [`crate::rdma::answer::prepare`] found no space: exposes the parts that
/// the client fetches. `None` if nothing can be exposed: then the call's chunks cannot carry its
/// reply.
pub async fn prepare<S>(
    shared: &ResponderShared<S>,
    mut parts: ReplyParts,
    xid: u32,
    lists: &Lists<'_>,
    connection: &Rc<RdmaConnection>,
    inline: Inline,
) -> Option<Prepared> {
    // Replies with several results are not exposed.
    let bulk = match parts.bulk[..] {
        [] => None,
        [bulk] => Some(bulk),
        _ => return None,
    };
    let chunk = lists.writes.iter().next().filter(|chunk| !chunk.is_empty());
    let fits = |bulk: &BulkResult| chunk.is_some_and(|c| bulk.length as u64 <= c.total());
    let apart = bulk.filter(fits);
    let within = bulk.filter(|_| apart.is_none());
    // The class of the largest buffer held until the exposure ends.
    let mut class = parts.buffer.class();
    let group = connection.exposure_slices();
    if within.is_some() && parts.slices.len() > pieces_max(group) {
        class = class.max(gather(&shared.pool, &mut parts.slices).await?);
    }
    let (message, slices) = (parts.message.clone(), parts.slices.len());
    let send = inline.limit(Version::One);
    let plan = ReadChunkPlan::new(lists, within, message.len(), slices, group, send)?;

    // The header has a buffer of its own, so that it is neither exposed nor held for long.
    let padding = plan.padding();
    let obtained = shared.pool.obtain_another(padding + plan.header).await;
    let mut frame = obtained.ok()?;
    let written = apart.map_or(0, |bulk| bulk.length as u64);
    frame[..padding].fill(0);
    plan.encode(&mut frame[padding..], xid, lists, written);
    // It is held for long only if it contains padding.
    let beside = if padding > 0 {
        frame.capacity() - padding
    } else {
        0
    };
    let frame = frame.into_slice(0..padding + plan.header);
    let (padding, header) = frame.split_at(padding);

    let mut chain = shared.chain();
    if let (Some(_), Some(chunk)) = (apart, chunk) {
        let segments = chunk.iter().map(remote);
        chain::transfer(Direction::ToPeer, &parts.slices, segments, &mut chain);
        parts.slices.clear();
    }
    let unused = parts.buffer.capacity() - message.len();
    let whole = parts.buffer.into_slice(0..message.end);
    let mut pieces = parts.slices;
    if plan.whole {
        around(&mut pieces, &whole, &message, within, padding);
    }
    let cost = ExposureCost {
        extra: if plan.whole {
            (unused + beside) as u64
        } else {
            0
        },
        class,
    };
    let admitted = admit(shared, connection, xid, &pieces, cost).await;
    shared.recycle_slices(pieces);
    let Ok((segments, number)) = admitted else {
        shared.recycle_chain(chain);
        count(shared, connection, |counters| {
            counters.exposures_refused.add(1);
        });
        return None;
    };
    debug_assert_eq!(segments.len(), plan.segments, "as planned");
    name(&header, &segments, plan.position());

    let message = (!plan.whole).then(|| whole.slice(message));
    let invalidate = connection.inline().invalidate;
    let invalidate = invalidate.then(|| common_key(lists)).flatten();
    let send = std::iter::once(header).chain(message);
    Some(Prepared {
        written,
        form: ReplyForm::of(plan.whole),
        follow_up: Some(FollowUp::Exposed(number)),
        ..Prepared::new(xid, chain, invalidate, send)
    })
}

/// Puts the message around its data, which is already in `pieces`.
fn around(
    pieces: &mut Vec<Slice>,
    whole: &Slice,
    message: &Range<usize>,
    within: Option<BulkResult>,
    padding: Slice,
) {
    let at = within.map_or(message.end, |bulk| message.start + bulk.position);
    pieces.insert(0, whole.slice(message.start..at));
    pieces.push(padding);
    pieces.push(whole.slice(at..message.end));
    pieces.retain(|slice| !slice.is_empty());
}

/// Writes the keys into a header's read list, which follows its first words.
fn name(header: &Slice, segments: &Segments, position: usize) {
    let mut entries = [0; READ_ENTRY_LENGTH * SEGMENTS_MAX];
    let mut out = Encoder::new(&mut entries);
    for exposure in segments {
        let entry = ReadSegment {
            // Shorter than any message.
            position: position as u32,
            segment: Segment {
                handle: exposure.key.0,
                length: exposure.length,
                offset: exposure.offset,
            },
        };
        let encoded = out.bool(true).and_then(|()| entry.encode(&mut out));
        debug_assert!(encoded.is_ok(), "there is room for the most segments");
    }
    let length = out.position();
    header.copy_from(FIRST_WORDS, &entries[..length]);
}

/// Copies data in too many slices into one. Returns the class of its buffer; none if no class is
/// large enough.
async fn gather(pool: &Pool, slices: &mut Vec<Slice>) -> Option<Class> {
    let length: usize = slices.iter().map(Slice::len).sum();
    if length > Class::Large.size() {
        return None;
    }
    let buffer: Buffer = pool.obtain_another(length).await.ok()?;
    let class = buffer.class();
    let together = buffer.into_slice(0..length);
    let mut at = 0;
    for slice in slices.drain(..) {
        together.copy_from_slice(at, &slice, 0..slice.len());
        at += slice.len();
    }
    slices.push(together);
    Some(class)
}

/// The resources of a reply beside its exposed bytes.
#[derive(Clone, Copy)]
struct ExposureCost {
    /// Bytes released with the exposure.
    extra: u64,
    /// The class of the largest buffer held while it waits or is exposed.
    class: Class,
}

/// Exposes a reply, in turn with others of its connection if it must wait for an exposure to end.
async fn admit<S>(
    shared: &ResponderShared<S>,
    connection: &Rc<RdmaConnection>,
    xid: u32,
    pieces: &[Slice],
    cost: ExposureCost,
) -> Result<(Segments, u64), ExposeError> {
    if !spare(&shared.pool, cost.class) {
        return Err(ExposeError::Full);
    }
    let exposures = &connection.compat.exposures;
    let open = || exposures.open(shared, connection, xid, pieces, cost.extra);
    if exposures.waiting.is_empty() {
        match open() {
            Err(ExposeError::Full) => {}
            opened => return opened,
        }
    }
    // Only another reply of this connection can release an exposure, when it is fetched or
    // abandoned; or has released it, if a waiter is about to use it.
    if exposures.waiting.is_empty() && exposures.open_replies() == 0 {
        return Err(ExposeError::Full);
    }
    let all = WaitingReply::enter(&shared.exposed.waiting, WAITING_MAX);
    let mine = WaitingReply::enter(&exposures.waiters, WAITING_CONNECTION_MAX);
    let (Some(_all), Some(_mine)) = (all, mine) else {
        return Err(ExposeError::Full);
    };
    count(shared, connection, |counters| {
        counters.exposure_waits.add(1);
    });
    let deadline = shared.clock.now() + shared.settings.get().exposures.window;
    let mut opened = Err(ExposeError::Full);
    let enough = || {
        opened = open();
        let hopeless = exposures.open_replies() == 0 || shared.clock.now() >= deadline;
        opened != Err(ExposeError::Full) || hopeless
    };
    let waited = exposures.queue(&exposures.waiting, enough).await;
    waited.map_err(|_| ExposeError::Closed)?;
    opened
}

/// A slot of a waiting reply, released on drop.
struct WaitingReply<'a>(&'a Cell<usize>);

impl<'a> WaitingReply<'a> {
    fn enter(count: &'a Cell<usize>, most: usize) -> Option<Self> {
        if count.get() >= most {
            return None;
        }
        count.set(count.get() + 1);
        Some(Self(count))
    }
}

impl Drop for WaitingReply<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Whether a buffer of this class may be held for long.
fn spare(pool: &Pool, class: Class) -> bool {
    // The header's buffer is of the smallest class, whatever the others are.
    let held = |&&(spared, _): &&(Class, usize)| spared == class || spared == Class::Control;
    SPARE.iter().filter(held).all(|&(spared, count)| {
        let one = |_| pool.try_acquire(spared);
        let free: ArrayVec<Buffer, SPARE_MAX> = (0..count).map_while(one).collect();
        free.len() == count
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_mempool::{HugepagePolicy, PoolConfig, Registry};
    use millrace_reactor::fabric::SLICES_MAX;
    use proptest::prelude::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn pool() -> Pool {
        let registry = Registry::new(HugepagePolicy::Off);
        Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).expect("ordinary pages")
    }

    fn ready<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("nothing to wait for"),
        }
    }

    #[test]
    fn data_in_very_many_pieces_is_moved_into_one() {
        let pool = pool();
        let mut buffer = pool.try_acquire(Class::Medium).expect("free");
        for (byte, index) in buffer.iter_mut().zip(0_u32..) {
            *byte = index as u8;
        }
        let expected = buffer[..60_000].to_vec();
        let whole = buffer.into_slice(0..60_000);
        let mut slices: Vec<Slice> = (0..60)
            .map(|n| whole.slice(n * 1000..n * 1000 + 1000))
            .collect();
        assert_eq!(ready(gather(&pool, &mut slices)), Some(Class::Medium));
        let mut copied = vec![0; 60_000];
        slices[0].copy_to(0, &mut copied);
        assert_eq!((slices.len(), copied), (1, expected));
        // More than any buffer holds.
        let mut slices = vec![whole; 20];
        assert_eq!(ready(gather(&pool, &mut slices)), None);
    }

    #[test]
    fn a_class_that_is_nearly_used_up_is_not_held_for_long() {
        let pool = pool();
        assert!(spare(&pool, Class::Large));
        let mut taken: Vec<Buffer> = Vec::new();
        while let Some(buffer) = pool.try_acquire(Class::Large) {
            taken.push(buffer);
        }
        assert!(!spare(&pool, Class::Large) && spare(&pool, Class::Control));
        taken.pop();
        assert!(spare(&pool, Class::Large));
    }

    proptest! {
        /// A header never exceeds the inline limit, nor does an inline message with it, and there
        /// is a segment for every few pieces.
        #[test]
        fn rr1_done_02_a_plan_keeps_to_the_inline_limit(
            position in 1_usize..500, behind in 0_usize..500, length in 1_usize..100_000,
            slices in 1_usize..=pieces_max(SLICES_MAX), group in 1_usize..=SLICES_MAX,
            send in 100_usize..5000, apart: bool,
        ) {
            let (position, behind) = (position * 4, behind * 4);
            let slices = slices.min(pieces_max(group));
            let within = (!apart).then_some(BulkResult { position, length });
            let message = position + behind;
            let lists = Lists::default();
            let plan = ReadChunkPlan::new(&lists, within, message, slices, group, send);
            let least = FIRST_WORDS + lists.reply_length() + READ_ENTRY_LENGTH;
            prop_assert!(plan.is_some() || send < least + SEGMENTS_MAX * READ_ENTRY_LENGTH);
            if let Some(plan) = plan {
                prop_assert!(plan.segments >= 1 && plan.segments <= SEGMENTS_MAX);
                let inline = if plan.whole { 0 } else { message };
                prop_assert!(plan.header + inline <= send);
                prop_assert_eq!(plan.position() == 0, plan.whole);
                let mut header = vec![0; plan.header];
                plan.encode(&mut header, 1, &lists, 0);
            }
        }
    }
}
