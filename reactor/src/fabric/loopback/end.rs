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

/// Where a queue pair stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopbackPhase {
    /// Nobody's.
    Free,
    /// Asked for a connection, no answer yet.
    Connecting,
    /// Asked by the peer, not answered yet.
    Asked,
    /// Open.
    Established,
    /// What is posted is still sent; then it ends.
    Closing,
}

/// What travels to an end.
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
    /// Nobody listens.
    Refused,
    /// A work request of the peer's.
    Work(RemoteSource),
    /// The next piece of a work request of the peer's is due; the last one listed.
    Piece(Transfer),
    /// What became of a work request of this end's.
    Done {
        sequence: u64,
        result: Result<(), WorkError>,
    },
    /// The peer has ended, and this end ends too.
    End(Ended),
}

/// Where a work request of the peer's is.
#[derive(Debug)]
pub(super) enum RemoteSource {
    /// In its send queue, under this sequence number.
    Queued(u64),
    /// On its way, with its bytes: the peer has done with it.
    Carried(Operation, Box<[u8]>),
}

/// A Write or Read of the peer's that has arrived and is not carried out wholly.
#[derive(Debug)]
pub(super) struct Transfer {
    pub source: RemoteSource,
    pub operation: Operation,
    /// What is still to be moved, and when.
    pub pieces: Vec<(Instant, Range<usize>)>,
}

/// A work request in the send queue.
#[derive(Debug)]
pub(super) struct QueuedWork {
    pub request: WorkRequest,
    pub result: Option<Result<(), WorkError>>,
}

/// Memory that the peer can reach.
#[derive(Debug)]
pub(super) struct Exposed {
    pub exposure: Exposure,
    pub access: Access,
    pub local: Slices,
    /// Invalidated by the peer, or about to be handed back.
    pub dead: bool,
    /// When a revocation takes effect.
    pub dies: Option<Instant>,
}

/// What an end can find wrong with the peer, and how a Terminate says it (RFC 5040 section 4.8,
/// RFC 5041 section 8).
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
            // Of write rights DDP knows nothing: the key is not one for Writes.
            Self::WriteKey => (1, 1, 0),
            Self::WriteBounds => (1, 1, 1),
            Self::NoReceive => (1, 2, 2),
            Self::TooLong => (1, 2, 5),
        };
        Terminate { layer, kind, code }
    }

    /// What the work request that is to blame comes to.
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
    /// When the provider gives up waiting, while connecting or closing.
    pub deadline: Option<Instant>,
    pub receives: VecDeque<Buffer>,
    pub exposures: Vec<Exposed>,
    /// What arrives in the order of sending.
    pub arrivals: VecDeque<(Instant, Frame)>,
    /// What arrives in any order.
    pub loose: Vec<(Instant, Frame)>,
    pub transfers: Vec<Transfer>,
    /// Work of the peer's was lost, as the peer has ended.
    pub gap: bool,
    pub send_queue: VecDeque<QueuedWork>,
    /// Sequence number of the queue's first entry.
    pub first: u64,
    /// Of the first entry that has not left.
    pub next: u64,
    /// Of the first entry that no flush has released.
    pub released: u64,
    /// RDMA Reads that have left and are not done.
    pub reads_open: u16,
    /// Most of those at once, beside the depth.
    pub reads_most: u16,
    /// No completions are reported any more until the end.
    pub withheld: bool,
    /// When entries of the send queue are free that were taken by work that is done.
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

    /// What arrives next, of all that is due.
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

    /// When something next falls due.
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

    /// The work requests that continue a Read, counted.
    pub fn continuations(&self, sequence: u64) -> usize {
        let behind = (sequence + 1).checked_sub(self.first);
        let behind = behind.and_then(|behind| usize::try_from(behind).ok());
        let entries = self.send_queue.iter().skip(behind.unwrap_or(usize::MAX));
        entries
            .take_while(|entry| entry.request.operation == Operation::ReadMore)
            .count()
    }

    /// The memory of a work request, with that of all that continue it.
    pub fn memory(&self, sequence: u64) -> impl Iterator<Item = &Slice> {
        let index = sequence.checked_sub(self.first);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let entries = self.send_queue.iter().skip(index.unwrap_or(usize::MAX));
        let entries = entries.take(1 + self.continuations(sequence));
        entries.flat_map(|entry| &entry.request.local)
    }

    /// A Read has come to its end, and all that continues it.
    pub fn finish_read(&mut self, sequence: u64, result: Result<(), WorkError>) {
        for later in 0..=self.continuations(sequence) as u64 {
            if let Some(entry) = self.entry(sequence + later) {
                entry.result = Some(result);
            }
        }
    }

    /// The exposure behind a key that the peer named, dead or alive.
    pub fn exposed(&mut self, key: Key) -> Option<&mut Exposed> {
        self.exposures
            .iter_mut()
            .find(|exposed| exposed.exposure.key == key)
    }

    /// Checks that the peer may reach `length` bytes there; gives the memory and the place in it.
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
