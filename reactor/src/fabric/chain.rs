//! Maps local memory to a peer's segments: the only code that splits a transfer into work requests.
//!
//! # Small RDMA Reads
//!
//! Linux's software iWARP answers a short RDMA Read with wrong bytes, without an error, if they
//! cross a page of its memory: `siw_try_1seg` (drivers/infiniband/sw/siw/siw_qp_tx.c) copies up to
//! 32 bytes directly into the packet, and takes the wrong part of them from each of the two pages.
//! It checks the length of the whole Read Request, so the end of a longer Read is not affected.
//! Hence no Read of [`SMALL_READ_MAX`] bytes or less crosses a multiple of [`PEER_PAGE`] of the
//! peer's offset, whose lower bits are the offset within a page.

use millrace_mempool::Slice;

use super::{Key, Operation, RemoteAddress, SLICES_MAX, Slices, WorkRequest};

/// The token of work requests whose success has no waiter.
pub const NOBODY: u64 = u64::MAX;

/// The longest RDMA Read that must not cross a page of the peer: twice the length that Linux 6.12
/// copies into a packet, since that number depends on the size of its headers.
pub const SMALL_READ_MAX: u32 = 64;

/// The smallest page of any peer. Larger pages begin at multiples of it.
pub const PEER_PAGE: u32 = 4096;

/// A range of the peer's memory, as in a chunk's segment (RFC 5666 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Its start.
    pub address: RemoteAddress,
    /// Bytes.
    pub length: u32,
}

impl RemoteSegment {
    /// The segment with this steering tag, tagged offset of its first byte, and length.
    #[must_use]
    pub const fn new(handle: u32, offset: u64, length: u32) -> Self {
        let key = Key(handle);
        let address = RemoteAddress { key, offset };
        Self { address, length }
    }
}

/// A Send that invalidates no key and whose success is not awaited.
#[must_use]
pub const fn plain_send(local: Slices) -> WorkRequest {
    WorkRequest {
        token: NOBODY,
        operation: Operation::Send {
            invalidate: None,
            solicited: false,
        },
        local,
        signalled: false,
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer, by RDMA Reads.
    FromPeer {
        /// The most local slices that one Read may fill ([`super::DataPath::read_slices`]).
        slices: usize,
    },
    /// To the peer, by RDMA Writes.
    ToPeer,
}

/// Appends to `chain` the unsignalled work requests that move bytes between `local` and `remote`,
/// both taken in order, each filled to its end before the next (RFC 5666 section 3.7). Segments
/// and slices of no length are skipped. Returns the bytes that the chain moves: the shorter side.
///
/// From the peer, one Read fills as many slices as it may; further work requests hold those beyond
/// [`SLICES_MAX`].
pub fn transfer(
    direction: Direction,
    local: &[Slice],
    remote: impl IntoIterator<Item = RemoteSegment>,
    chain: &mut Vec<WorkRequest>,
) -> u64 {
    let mut source = Cursor {
        slices: local,
        offset: 0,
    };
    let mut moved = 0;
    for segment in remote {
        let mut done = 0;
        while done < segment.length {
            if source.is_empty() {
                return moved;
            }
            let address = RemoteAddress {
                key: segment.address.key,
                offset: segment.address.offset.wrapping_add(u64::from(done)),
            };
            let left = segment.length - done;
            let length = match direction {
                Direction::FromPeer { slices } => {
                    let length = read_length(address.offset, source.reach(left, slices));
                    let mut read = source.append(Operation::Read(address), length, chain);
                    while read < length {
                        read += source.append(Operation::ReadMore, length - read, chain);
                    }
                    read
                }
                Direction::ToPeer => source.append(Operation::Write(address), left, chain),
            };
            done += length;
            moved += u64::from(length);
        }
    }
    moved
}

/// The length of the next RDMA Read, which begins at `offset` of the peer and could have up to
/// `bytes`.
fn read_length(offset: u64, bytes: u32) -> u32 {
    if bytes > SMALL_READ_MAX {
        return bytes;
    }
    // The remainder is less than a page.
    let in_page = (offset % u64::from(PEER_PAGE)) as u32;
    bytes.min(PEER_PAGE - in_page)
}

/// How many of the first `most` work requests of a chain can be posted before the rest: a Read is
/// posted together with the work requests that continue it.
pub fn separable(chain: &[WorkRequest], most: usize) -> usize {
    let mut count = most.min(chain.len());
    while count > 0
        && let Some(next) = chain.get(count)
        && next.operation == Operation::ReadMore
    {
        count -= 1;
    }
    // A Read longer than `most` cannot be split.
    if count == 0 {
        most.min(chain.len())
    } else {
        count
    }
}

/// `segments` without their first `skip` bytes.
pub fn skip(
    segments: impl IntoIterator<Item = RemoteSegment>,
    mut skip: u64,
) -> impl Iterator<Item = RemoteSegment> {
    segments.into_iter().map(move |segment| {
        let cut = u64::from(segment.length).min(skip);
        skip -= cut;
        RemoteSegment {
            address: RemoteAddress {
                key: segment.address.key,
                offset: segment.address.offset.wrapping_add(cut),
            },
            // `cut` is at most the length.
            length: segment.length - cut as u32,
        }
    })
}

/// `segments` cut off after their first `limit` bytes.
pub fn limit(
    segments: impl IntoIterator<Item = RemoteSegment>,
    mut limit: u64,
) -> impl Iterator<Item = RemoteSegment> {
    segments.into_iter().map(move |segment| {
        let kept = u64::from(segment.length).min(limit);
        limit -= kept;
        RemoteSegment {
            length: kept as u32,
            ..segment
        }
    })
}

/// Iterates over local slices.
struct Cursor<'a> {
    slices: &'a [Slice],
    offset: usize,
}

impl Cursor<'_> {
    /// Whether no byte is left; if one is, it is in the first slice.
    fn is_empty(&mut self) -> bool {
        while let Some((first, others)) = self.slices.split_first() {
            if first.len() > self.offset {
                return false;
            }
            self.slices = others;
            self.offset = 0;
        }
        true
    }

    /// Bytes of the next `slices` non-empty slices, at most `wanted`.
    fn reach(&self, wanted: u32, slices: usize) -> u32 {
        let lengths = self.slices.iter().map(Slice::len);
        let mut skip = self.offset;
        let bytes = lengths
            .map(|length| length - std::mem::take(&mut skip))
            .filter(|length| *length > 0)
            .take(slices.max(1))
            .try_fold(0_u32, |bytes, length| {
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                let bytes = bytes.saturating_add(length).min(wanted);
                if bytes < wanted {
                    Ok(bytes)
                } else {
                    Err(bytes)
                }
            });
        bytes.unwrap_or_else(|bytes| bytes)
    }

    /// Appends one work request with at most the next `wanted` bytes, and returns their number.
    fn append(&mut self, operation: Operation, wanted: u32, chain: &mut Vec<WorkRequest>) -> u32 {
        // Filled in place, as a work request is expensive to move.
        chain.push(WorkRequest {
            token: NOBODY,
            operation,
            local: Slices::new(),
            signalled: false,
        });
        chain
            .last_mut()
            .map_or(0, |request| self.take(wanted, &mut request.local))
    }

    /// Puts at most the next `wanted` bytes into `taken`, in at most [`SLICES_MAX`] pieces, and
    /// returns their number.
    fn take(&mut self, wanted: u32, taken: &mut Slices) -> u32 {
        let mut length = 0;
        while length < wanted
            && !taken.is_full()
            && !self.is_empty()
            && let Some(first) = self.slices.first()
        {
            let rest = first.len() - self.offset;
            let piece = rest.min((wanted - length) as usize);
            taken.push(first.slice(self.offset..self.offset + piece));
            self.offset += piece;
            length += piece as u32;
        }
        debug_assert!(taken.len() <= SLICES_MAX);
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Key, READ_SLICES_MAX};
    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
    use proptest::prelude::*;

    fn segment(key: u32, offset: u64, length: u32) -> RemoteSegment {
        RemoteSegment {
            address: RemoteAddress {
                key: Key(key),
                offset,
            },
            length,
        }
    }

    fn pool() -> Pool {
        let registry = Registry::new(HugepagePolicy::Off);
        Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("ordinary pages")
    }

    fn address(request: &WorkRequest) -> (u32, u64) {
        match request.operation {
            Operation::Write(at) | Operation::Read(at) => (at.key.0, at.offset),
            other => unreachable!("{other:?} has no address"),
        }
    }

    fn length(request: &WorkRequest) -> usize {
        request.local.iter().map(Slice::len).sum()
    }

    /// A chain as seen by the peer: each request with its address, its bytes and its slices.
    fn on_the_wire(chain: &[WorkRequest]) -> Vec<((u32, u64), usize, usize)> {
        let mut seen: Vec<((u32, u64), usize, usize)> = Vec::new();
        for request in chain {
            let (bytes, slices) = (length(request), request.local.len());
            match (request.operation, seen.last_mut()) {
                (Operation::ReadMore, Some(read)) => {
                    (read.1, read.2) = (read.1 + bytes, read.2 + slices);
                }
                _ => seen.push((address(request), bytes, slices)),
            }
        }
        seen
    }

    fn pieces(pool: &Pool, lengths: &[usize]) -> Vec<Slice> {
        let class = Class::for_size(lengths.iter().sum::<usize>().max(1)).expect("small");
        let whole = pool.try_acquire(class).expect("free");
        let whole = whole.into_slice(0..class.size());
        let mut at = 0;
        let piece = |length: &usize| {
            at += length;
            whole.slice(at - length..at)
        };
        lengths.iter().map(piece).collect()
    }

    /// Addresses without their key, and lengths, of the Reads of a transfer.
    fn reads(sinks: &[usize], slices: usize, segments: &[(u64, u32)]) -> Vec<(u64, usize)> {
        let (pool, mut chain) = (pool(), Vec::new());
        let local = pieces(&pool, sinks);
        let remote = segments
            .iter()
            .map(|&(offset, length)| segment(1, offset, length));
        transfer(Direction::FromPeer { slices }, &local, remote, &mut chain);
        let seen = on_the_wire(&chain);
        seen.into_iter()
            .map(|((_, offset), bytes, _)| (offset, bytes))
            .collect()
    }

    #[test]
    fn rr1_chunk_18_segments_are_filled_in_order_to_their_end() {
        let pool = pool();
        let buffer = pool.try_acquire(Class::Control).expect("free");
        let local = [buffer.into_slice(0..8)];
        let mut chain = Vec::new();
        let remote = [
            segment(1, 10, 3),
            segment(2, 0, 0),
            segment(3, 20, 5),
            segment(4, 0, 1),
        ];
        assert_eq!(transfer(Direction::ToPeer, &local, remote, &mut chain), 8);
        let seen: Vec<_> = chain.iter().map(|r| (address(r), length(r))).collect();
        assert_eq!(seen, [((1, 10), 3), ((3, 20), 5)]);
    }

    #[test]
    fn skipping_and_limiting_keep_the_middle() {
        let all = [
            segment(1, 100, 10),
            segment(2, 200, 10),
            segment(3, 300, 10),
        ];
        let middle: Vec<_> = limit(skip(all, 13), 9).collect();
        assert_eq!(
            middle,
            [segment(1, 110, 0), segment(2, 203, 7), segment(3, 300, 2)]
        );
    }

    #[test]
    fn a_small_read_ends_at_the_page_of_the_peer() {
        // All 64 bits of an offset are the peer's own: only the position in the page matters.
        for base in [0, 4096, 0xabcd_0123_0000_7000, u64::MAX - 4095] {
            assert_eq!(reads(&[100], 9, &[(base + 4089, 7)]), [(base + 4089, 7)]);
            assert_eq!(
                reads(&[100], 9, &[(base.wrapping_sub(4096) + 4095, 64)]),
                [(base.wrapping_sub(4096) + 4095, 1), (base, 63)]
            );
            assert_eq!(reads(&[100], 9, &[(base, 64)]), [(base, 64)]);
        }
        assert_eq!(reads(&[100], 9, &[(4090, 65)]), [(4090, 65)]);
        // The bytes of a page that do not fit into one slice are in one Read with those of the
        // next.
        assert_eq!(reads(&[65529, 8], 2, &[(0, 65537)]), [(0, 65537)]);
        // With one slice for each Read, the small rest is split at the page.
        assert_eq!(
            reads(&[65529, 8], 1, &[(0, 65537)]),
            [(0, 65529), (65529, 7), (65536, 1)]
        );
    }

    #[test]
    fn one_read_fills_as_many_slices_as_it_may() {
        let sinks = [4089].into_iter().chain([4096; 15]).chain([8]);
        let sinks: Vec<usize> = sinks.collect();
        assert_eq!(reads(&sinks, READ_SLICES_MAX, &[(0, 65537)]), [(0, 65537)]);
        assert_eq!(
            reads(&sinks, 16, &[(0, 65537)]),
            [(0, 65529), (65529, 7), (65536, 1)]
        );
    }

    #[test]
    fn chains_are_split_between_reads() {
        let (pool, mut chain) = (pool(), Vec::new());
        let local = pieces(&pool, &[100; 20]);
        let remote = [segment(1, 0, 900), segment(2, 0, 1100)];
        let direction = Direction::FromPeer { slices: 64 };
        transfer(direction, &local, remote, &mut chain);
        // Three work requests of nine slices, and three of eleven.
        assert_eq!(chain.len(), 6);
        let parts: Vec<_> = (0..8).map(|most| separable(&chain, most)).collect();
        assert_eq!(parts, [0, 1, 2, 3, 3, 3, 6, 6]);
    }

    proptest! {
        /// However both sides are split, byte n of the local memory is paired with byte n of the
        /// remote, no Read fills more slices than it may, and no small one crosses a page of the
        /// peer.
        #[test]
        fn every_byte_meets_its_place(
            locals in prop::collection::vec(prop_oneof![0_usize..50, 4000_usize..4200], 0..30),
            remotes in prop::collection::vec(prop_oneof![0_u32..100, 4000_u32..9000], 0..20),
            start in prop_oneof![3500_u64..4200, u64::MAX - 600..=u64::MAX, any::<u64>()],
            slices in prop_oneof![1_usize..4, 1_usize..70],
            writes in any::<bool>(),
        ) {
            let pool = pool();
            let local = pieces(&pool, &locals);
            let base = local.first().map_or(0, |first| first.as_ptr() as usize);
            let mut end = start;
            let remote: Vec<_> = remotes.iter().map(|length| {
                let begin = end;
                end = end.wrapping_add(u64::from(*length));
                segment(7, begin, *length)
            }).collect();
            let mut chain = Vec::new();
            let direction = if writes { Direction::ToPeer } else { Direction::FromPeer { slices } };
            let moved = transfer(direction, &local, remote, &mut chain);
            let bytes = remotes.iter().map(|&length| u64::from(length)).sum::<u64>();
            prop_assert_eq!(moved, (locals.iter().sum::<usize>() as u64).min(bytes));
            let mut next = 0_u64;
            for request in &chain {
                match request.operation {
                    Operation::Write(at) if writes => {
                        prop_assert_eq!((at.key.0, at.offset), (7, start.wrapping_add(next)));
                    }
                    Operation::Read(at) if !writes => {
                        prop_assert_eq!((at.key.0, at.offset), (7, start.wrapping_add(next)));
                    }
                    Operation::ReadMore if !writes && next > 0 => {}
                    other => prop_assert!(false, "{:?}", other),
                }
                prop_assert!(!request.local.is_empty());
                for piece in &request.local {
                    prop_assert!(!piece.is_empty());
                    prop_assert_eq!((piece.as_ptr() as usize - base) as u64, next);
                    next += piece.len() as u64;
                }
            }
            prop_assert_eq!(next, moved);
            for ((_, offset), bytes, filled) in on_the_wire(&chain) {
                if !writes {
                    prop_assert!(filled <= slices);
                    let crosses = offset % 4096 + bytes as u64 > 4096;
                    prop_assert!(bytes > 64 || !crosses, "{} bytes at {:#x}", bytes, offset);
                }
            }
        }
    }
}
