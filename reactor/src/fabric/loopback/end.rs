//! One end of a connection: a queue pair's queues, exposures and arrivals.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Instant;

use millrace_mempool::{Buffer, Slice};

use super::scatter;
use crate::fabric::{
    Access, Ended, Exposure, Key, Operation, PrivateData, QueuePairId, QueuePairLimits, ReadDepths,
    RemoteAddress, Slices, Terminate, WorkError, WorkRequest,
};

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopbackPhase {
    /// Unused.
    Free,
    /// Connecting, without an answer yet.
    Connecting,
    /// Requested by the peer, not answered yet.
    Asked,
    /// Open.
    Established,
    /// Posted work is still sent; then it ends.
    Closing,
}

/// A frame on the way to an end.
#[derive(Debug)]
pub(super) enum Frame {
    Accepted {
        private_data: Box<PrivateData>,
        ird: u16,
        ord: u16,
    },
    Rejected {
        private_data: Box<PrivateData>,
        ird: u16,
        ord: u16,
    },
    /// There is no listener.
    Refused,
    /// A work request of the peer.
    Work(RemoteSource),
    /// The next piece of a peer's work request is due; the last one listed.
    Piece(Transfer),
    /// The result of a work request of this end.
    Done {
        sequence: u64,
        result: Result<(), WorkError>,
    },
    /// The peer has ended, and this end ends too.
    End(Ended),
}

/// The location of a peer's work request.
#[derive(Debug)]
pub(super) enum RemoteSource {
    /// In its send queue, under this sequence number.
    Queued(u64),
    /// In flight, with its bytes: the peer has completed it.
    Carried(Operation, Box<[u8]>),
}

/// A Write or Read of the peer that has arrived and is not completely executed.
#[derive(Debug)]
pub(super) struct Transfer {
    pub source: RemoteSource,
    pub operation: Operation,
    /// The remaining pieces, with their times.
    pub pieces: Vec<(Instant, Range<usize>)>,
}

/// A work request in the send queue.
#[derive(Debug)]
pub(super) struct QueuedWork {
    pub request: WorkRequest,
    pub result: Option<Result<(), WorkError>>,
}

/// Memory that the peer can access.
#[derive(Debug)]
pub(super) struct Exposed {
    pub exposure: Exposure,
    pub access: Access,
    pub local: Slices,
    /// Invalidated by the peer, or about to be returned.
    pub dead: bool,
    /// When a revocation takes effect.
    pub dies: Option<Instant>,
}

/// Errors of the peer detected by an end, and their Terminate codes (RFC 5040 section 4.8, RFC 5041
/// section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    NoReceive,
    TooLong,
    Invalidate,
    WriteKey,
    WriteBounds,
    ReadKey,
    ReadBounds,
    ReadRights,
}

impl Fault {
    pub fn terminate(self) -> Terminate {
        let (layer, kind, code) = match self {
            Self::ReadKey => (0, 1, 0),
            Self::ReadBounds => (0, 1, 1),
            Self::ReadRights => (0, 1, 2),
            Self::Invalidate => (0, 1, 9),
            // DDP has no write rights: the key is not valid for Writes.
            Self::WriteKey => (1, 1, 0),
            Self::WriteBounds => (1, 1, 1),
            Self::NoReceive => (1, 2, 2),
            Self::TooLong => (1, 2, 5),
        };
        Terminate { layer, kind, code }
    }

    /// The result of the work request that caused it.
    pub fn work_error(self) -> WorkError {
        match self {
            Self::NoReceive | Self::TooLong | Self::Invalidate => WorkError::Flushed,
            Self::WriteKey
            | Self::WriteBounds
            | Self::ReadKey
            | Self::ReadBounds
            | Self::ReadRights => WorkError::RemoteAccess,
        }
    }
}

#[derive(Debug)]
pub(super) struct LoopbackEnd {
    pub generation: u32,
    pub provider: usize,
    pub phase: LoopbackPhase,
    /// The other end, once it exists.
    pub peer: Option<QueuePairId>,
    /// The address of the side that connects.
    pub local: Option<SocketAddr>,
    pub limits: QueuePairLimits,
    pub depths: ReadDepths,
    /// The timeout while connecting or closing.
    pub deadline: Option<Instant>,
    pub receives: VecDeque<Buffer>,
    pub exposures: Vec<Exposed>,
    /// Frames that arrive in the order of sending.
    pub arrivals: VecDeque<(Instant, Frame)>,
    /// Frames that arrive in any order.
    pub loose: Vec<(Instant, Frame)>,
    pub transfers: Vec<Transfer>,
    /// Work of the peer was lost, as the peer has ended.
    pub gap: bool,
    pub send_queue: VecDeque<QueuedWork>,
    /// Sequence number of the queue's first entry.
    pub first: u64,
    /// That of the first unsent entry.
    pub next: u64,
    /// That of the first entry not released by a flush.
    pub released: u64,
    /// RDMA Reads sent and not completed.
    pub reads_open: u16,
    /// The most of those at once, in addition to the depth.
    pub reads_most: u16,
    /// No completions are reported any more until the end.
    pub withheld: bool,
    /// When late-released entries of the send queue become free.
    pub late_sends: Vec<Instant>,
    /// The same for exposures.
    pub late_keys: Vec<Instant>,
}

impl LoopbackEnd {
    pub fn new(
        provider: usize,
        generation: u32,
        phase: LoopbackPhase,
        limits: QueuePairLimits,
    ) -> Self {
        Self {
            generation,
            provider,
            phase,
            peer: None,
            local: None,
            limits,
            depths: ReadDepths::default(),
            deadline: None,
            receives: VecDeque::new(),
            exposures: Vec::new(),
            arrivals: VecDeque::new(),
            loose: Vec::new(),
            transfers: Vec::new(),
            gap: false,
            send_queue: VecDeque::new(),
            first: 0,
            next: 0,
            released: 0,
            reads_open: 0,
            reads_most: u16::MAX,
            withheld: false,
            late_sends: Vec::new(),
            late_keys: Vec::new(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.phase == LoopbackPhase::Established
    }

    pub fn send_room(&self) -> usize {
        let depth = self.limits.send_depth as usize;
        if self.is_open() {
            depth.saturating_sub(self.send_queue.len() + self.late_sends.len())
        } else {
            0
        }
    }

    /// The next due arrival.
    pub fn next_arrival(&mut self, now: Instant) -> Option<Frame> {
        let mut first = self.arrivals.front().map(|(due, _)| *due);
        let loose = self.loose.iter().map(|(due, _)| *due).enumerate();
        let loose = loose.min_by_key(|(_, due)| *due);
        let earlier = |due: Instant, first: Option<Instant>| first.is_none_or(|first| due < first);
        let loose = loose.filter(|(_, due)| earlier(*due, first));
        first = loose.map(|(_, due)| due).or(first);
        let pieces = self
            .transfers
            .iter()
            .enumerate()
            .flat_map(|(at, transfer)| {
                let pieces = transfer.pieces.iter().enumerate();
                pieces.map(move |(piece, (due, _))| ((at, piece), *due))
            });
        let piece = pieces.min_by_key(|(_, due)| *due);
        let piece = piece.filter(|(_, due)| earlier(*due, first));
        if let Some(((at, piece), due)) = piece {
            if due > now {
                return None;
            }
            let mut transfer = self.transfers.remove(at);
            let last = transfer.pieces.len() - 1;
            transfer.pieces.swap(piece, last);
            return Some(Frame::Piece(transfer));
        }
        if first.is_none_or(|first| first > now) {
            return None;
        }
        match loose {
            Some((at, _)) => Some(self.loose.remove(at).1),
            None => self.arrivals.pop_front().map(|(_, frame)| frame),
        }
    }

    /// The next time at which something is due.
    pub fn next_due(&self) -> Option<Instant> {
        let loose = self.loose.iter().map(|(due, _)| *due);
        let pieces = self.transfers.iter().flat_map(|transfer| &transfer.pieces);
        let pieces = pieces.map(|(due, _)| *due);
        let dying = self.exposures.iter().filter_map(|exposed| exposed.dies);
        let late = self.late_sends.iter().chain(&self.late_keys).copied();
        let all = loose.chain(pieces).chain(dying).chain(late);
        all.chain(self.arrivals.front().map(|(due, _)| *due)).min()
    }

    pub fn entry(&mut self, sequence: u64) -> Option<&mut QueuedWork> {
        let index = sequence.checked_sub(self.first)?;
        self.send_queue.get_mut(usize::try_from(index).ok()?)
    }

    /// The number of work requests that continue a Read.
    pub fn continuations(&self, sequence: u64) -> usize {
        let behind = (sequence + 1).checked_sub(self.first);
        let behind = behind.and_then(|behind| usize::try_from(behind).ok());
        let entries = self.send_queue.iter().skip(behind.unwrap_or(usize::MAX));
        entries
            .take_while(|entry| entry.request.operation == Operation::ReadMore)
            .count()
    }

    /// The memory of a work request, with that of its continuations.
    pub fn memory(&self, sequence: u64) -> impl Iterator<Item = &Slice> {
        let index = sequence.checked_sub(self.first);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let entries = self.send_queue.iter().skip(index.unwrap_or(usize::MAX));
        let entries = entries.take(1 + self.continuations(sequence));
        entries.flat_map(|entry| &entry.request.local)
    }

    /// Completes a Read and its continuations.
    pub fn finish_read(&mut self, sequence: u64, result: Result<(), WorkError>) {
        for later in 0..=self.continuations(sequence) as u64 {
            if let Some(entry) = self.entry(sequence + later) {
                entry.result = Some(result);
            }
        }
    }

    /// The exposure of a key named by the peer, revoked or not.
    pub fn exposed(&mut self, key: Key) -> Option<&mut Exposed> {
        self.exposures
            .iter_mut()
            .find(|exposed| exposed.exposure.key == key)
    }

    /// Checks the peer's access to `length` bytes; returns the memory and the offset in it.
    pub fn reach(
        &mut self,
        remote: RemoteAddress,
        length: usize,
        access: Access,
    ) -> Result<(&Slices, usize), Fault> {
        let (no_key, no_room, no_right) = match access {
            Access::RemoteWrite => (Fault::WriteKey, Fault::WriteBounds, Fault::WriteKey),
            Access::RemoteRead => (Fault::ReadKey, Fault::ReadBounds, Fault::ReadRights),
        };
        let exposed = self
            .exposed(remote.key)
            .filter(|exposed| !exposed.dead)
            .ok_or(no_key)?;
        if exposed.access != access {
            return Err(no_right);
        }
        let place = remote.offset.checked_sub(exposed.exposure.offset);
        let place = place
            .and_then(|place| usize::try_from(place).ok())
            .ok_or(no_room)?;
        let end = place.checked_add(length).ok_or(no_room)?;
        if end > scatter::length(&exposed.local) {
            return Err(no_room);
        }
        Ok((&exposed.local, place))
    }
}
