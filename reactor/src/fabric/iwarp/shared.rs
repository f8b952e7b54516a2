//! State shared by the connections of one provider.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use millrace_iwarp::Staging;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::event::epoll;

use super::config::IwarpConfig;
use super::counters::IwarpCounters;

/// Size of the common receive buffer: as much as one call can return, and small enough to stay in
/// the core's own cache between the call and the copy.
const SCRATCH_BYTES: usize = 256 * 1024;

/// Set in the epoll data of listeners.
pub(super) const LISTENER: u64 = 1 << 63;

pub(super) struct IwarpShared {
    pub(super) config: IwarpConfig,
    pub(super) epoll: OwnedFd,
    pub(super) counters: Arc<IwarpCounters>,
    /// Received bytes before they are placed; empty between two calls.
    pub(super) scratch: Box<[u8]>,
    /// No deadline is earlier.
    pub(super) earliest: Option<Instant>,
    spare: Vec<Staging>,
    random: ChaCha20Rng,
}

impl IwarpShared {
    pub(super) fn new(config: IwarpConfig) -> io::Result<Self> {
        Ok(Self {
            config,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            counters: Arc::default(),
            scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(),
            earliest: None,
            spare: Vec::new(),
            random: ChaCha20Rng::try_from_os_rng()
                .map_err(|error| io::Error::other(error.to_string()))?,
        })
    }

    pub(super) fn random(&mut self) -> u32 {
        self.random.next_u32()
    }

    /// Adds a socket to the epoll set. Events occur once for every change, so that a socket served
    /// without polling costs nothing more.
    pub(super) fn watch(&self, socket: impl AsFd, data: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(data),
            flags,
        )?)
    }

    /// Adds a listening socket, which reports while it has connections.
    pub(super) fn watch_listener(&self, socket: impl AsFd, index: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(LISTENER | u64::from(index));
        Ok(epoll::add(
            &self.epoll,
            socket,
            data,
            epoll::EventFlags::IN,
        )?)
    }

    /// Enables or disables events of a listening socket.
    pub(super) fn hear_listener(&self, socket: impl AsFd, index: u32, reports: bool) {
        let data = epoll::EventData::new_u64(LISTENER | u64::from(index));
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, reports);
        // It fails only for sockets not in the set.
        let _ = epoll::modify(&self.epoll, socket, data, flags);
    }

    /// Removes a listening socket.
    pub(super) fn forget_listener(&self, socket: impl AsFd) {
        // It fails only for sockets not in the set.
        let _ = epoll::delete(&self.epoll, socket);
    }

    pub(super) fn has_deadline(&mut self, deadline: Instant) {
        self.earliest = Some(
            self.earliest
                .map_or(deadline, |earliest| earliest.min(deadline)),
        );
    }

    /// Storage for a sending connection; allocated only while more of them send at once than ever
    /// before.
    pub(super) fn staging(&mut self) -> Staging {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn give_back(&mut self, staging: Option<Staging>) {
        self.spare.extend(staging);
    }

    pub(super) fn connections(&self) -> usize {
        let count = self.counters.fabric.connections.get();
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}
