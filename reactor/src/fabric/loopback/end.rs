//! One end of a connection: a queue pair's queues, exposures and arrivals.

use std::collections::VecDeque;
use std::time::Instant;

use millrace_mempool::Buffer;

use super::scatter;
use crate::fabric::{
    Access, Ended, Exposure, Key, PrivateData, QueuePairId, QueuePairLimits, ReadDepths,
    RemoteAddress, Slices, Terminate, WorkError, WorkRequest,
};

/// Where a queue pair stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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
    /// A work request of the peer's, which stays in its send queue meanwhile.
    Work { sequence: u64 },
    /// What became of a work request of this end's.
    Done {
        sequence: u64,
        result: Result<(), WorkError>,
    },
    /// The peer has ended, and this end ends too.
    End(Ended),
}

/// A work request in the send queue.
#[derive(Debug)]
pub(super) struct Entry {
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
pub(super) struct End {
    pub generation: u32,
    pub provider: usize,
    pub phase: Phase,
    /// The other end, once it exists.
    pub peer: Option<QueuePairId>,
    pub limits: QueuePairLimits,
    pub depths: ReadDepths,
    /// When the provider gives up waiting, while connecting or closing.
    pub deadline: Option<Instant>,
    pub receives: VecDeque<Buffer>,
    pub exposures: Vec<Exposed>,
    pub arrivals: VecDeque<(Instant, Frame)>,
    pub send_queue: VecDeque<Entry>,
    /// Sequence number of the queue's first entry.
    pub first: u64,
    /// Of the first entry that has not left.
    pub next: u64,
    /// Of the first entry that no flush has released.
    pub released: u64,
    /// RDMA Reads that have left and are not done.
    pub reads_open: u16,
}

impl End {
    pub fn new(provider: usize, generation: u32, phase: Phase, limits: QueuePairLimits) -> Self {
        Self {
            generation,
            provider,
            phase,
            peer: None,
            limits,
            depths: ReadDepths::default(),
            deadline: None,
            receives: VecDeque::new(),
            exposures: Vec::new(),
            arrivals: VecDeque::new(),
            send_queue: VecDeque::new(),
            first: 0,
            next: 0,
            released: 0,
            reads_open: 0,
        }
    }

    pub fn is_open(&self) -> bool {
        self.phase == Phase::Established
    }

    pub fn send_room(&self) -> usize {
        let depth = self.limits.send_depth as usize;
        if self.is_open() {
            depth.saturating_sub(self.send_queue.len())
        } else {
            0
        }
    }

    pub fn entry(&mut self, sequence: u64) -> Option<&mut Entry> {
        let index = sequence.checked_sub(self.first)?;
        self.send_queue.get_mut(usize::try_from(index).ok()?)
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
