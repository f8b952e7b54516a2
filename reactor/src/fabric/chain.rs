//! Pairs local memory with a peer's segments: the one place that cuts a transfer into work
//! requests.

use millrace_mempool::Slice;

use super::{Operation, RemoteAddress, SLICES_MAX, Slices, WorkRequest};

/// Token of work requests whose success nobody waits for.
pub const NOBODY: u64 = u64::MAX;

/// A range of the peer's memory, as a chunk's segment names it (RFC 5666 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Where it begins.
    pub address: RemoteAddress,
    /// Bytes.
    pub length: u32,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer, by RDMA Reads.
    FromPeer,
    /// To the peer, by RDMA Writes.
    ToPeer,
}

/// Appends to `chain` the unsignalled work requests that move bytes between `local` and `remote`,
/// both taken in order, each filled to its end before the next (RFC 5666 section 3.7). Segments
/// and slices of no length are skipped. Returns the bytes that the chain moves: the shorter side.
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
            let operation = match direction {
                Direction::FromPeer => Operation::Read(address),
                Direction::ToPeer => Operation::Write(address),
            };
            // Filled where it stands, for a work request is long to move.
            chain.push(WorkRequest {
                token: NOBODY,
                operation,
                local: Slices::new(),
                signalled: false,
            });
            let length = chain.last_mut().map_or(0, |request| {
                source.take(segment.length - done, &mut request.local)
            });
            done += length;
            moved += u64::from(length);
        }
    }
    moved
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

/// Walks over local slices.
struct Cursor<'a> {
    slices: &'a [Slice],
    offset: usize,
}

impl Cursor<'_> {
    /// Whether no byte is left; if one is, the first slice has it.
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

    /// Puts the next at most `wanted` bytes into `taken`, in at most [`SLICES_MAX`] pieces, and
    /// says how many.
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
    use crate::fabric::Key;
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
            Operation::Send { .. } => unreachable!("a transfer never sends"),
        }
    }

    fn length(request: &WorkRequest) -> usize {
        request.local.iter().map(Slice::len).sum()
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

    proptest! {
        /// Whatever the cuts on both sides, byte n of the local memory meets byte n of the remote.
        #[test]
        fn every_byte_meets_its_place(
            locals in prop::collection::vec(0_usize..50, 0..12),
            remotes in prop::collection::vec(0_u32..50, 0..12),
        ) {
            let pool = pool();
            let whole = pool.try_acquire(Class::Control).expect("free").into_slice(0..4096);
            let base = whole.as_ptr() as usize;
            let mut at = 0;
            let local: Vec<_> = locals.iter().map(|length| {
                at += length;
                whole.slice(at - length..at)
            }).collect();
            let mut start = 0;
            let remote: Vec<_> = remotes.iter().map(|length| {
                start += u64::from(*length);
                segment(7, start - u64::from(*length), *length)
            }).collect();
            let mut chain = Vec::new();
            let moved = transfer(Direction::FromPeer, &local, remote, &mut chain);
            prop_assert_eq!(moved, (at as u64).min(start));
            let mut next = 0_u64;
            for request in &chain {
                prop_assert_eq!(address(request), (7, next));
                for piece in &request.local {
                    prop_assert_eq!((piece.as_ptr() as usize - base) as u64, next);
                    next += piece.len() as u64;
                }
            }
            prop_assert_eq!(next, moved);
        }
    }
}
