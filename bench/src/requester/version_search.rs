//! How far the search for a connection's version is, and which servers were lost by it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most servers that are remembered; the oldest makes room.
const SERVERS_MAX: usize = 1024;

/// Servers that seem to speak version one only. Entries expire. Clones share the list.
#[derive(Clone, Debug)]
pub struct VersionMemory {
    period: Duration,
    servers: Arc<Mutex<Vec<(SocketAddr, Instant)>>>,
}

impl VersionMemory {
    /// An empty memory that keeps a server for so long.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            servers: Arc::default(),
        }
    }

    /// Whether a server is remembered.
    #[must_use]
    pub fn holds(&self, address: SocketAddr, now: Instant) -> bool {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut servers = servers.iter();
        servers.any(|&(server, until)| server == address && now < until)
    }

    pub(super) fn keep(&self, address: SocketAddr, now: Instant) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|&(server, until)| server != address && now < until);
        if servers.len() >= SERVERS_MAX {
            servers.remove(0);
        }
        servers.push((address, now + self.period));
    }
}

impl Default for VersionMemory {
    /// Ten minutes.
    fn default() -> Self {
        Self::new(Duration::from_secs(600))
    }
}

/// How far a connection is with finding its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchStep {
    /// The version is known.
    Known,
    /// The first message has not left.
    ToSend,
    /// Its answer is awaited.
    Sent,
    /// No answer in time: the connection is ending.
    Lost,
    /// The answer was an error, and version one has not brought a reply yet.
    FellBack,
}

/// The search for the version of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct VersionSearch {
    pub step: SearchStep,
    pub xid: u32,
    /// By when the answer must be here.
    pub deadline: Option<Instant>,
}

impl VersionSearch {
    pub const KNOWN: Self = Self {
        step: SearchStep::Known,
        xid: 0,
        deadline: None,
    };

    /// Whether this is the answer that is awaited.
    pub fn awaits(&self, xid: u32) -> bool {
        self.step == SearchStep::Sent && self.xid == xid
    }

    /// A good reply has come.
    pub fn confirm(&mut self) {
        if self.step == SearchStep::FellBack {
            self.step = SearchStep::Known;
        }
    }

    /// Gives up waiting when it is time, and says so: the connection is to end.
    pub fn expire(&mut self, now: Instant) -> bool {
        let late = self.deadline.is_some_and(|deadline| deadline <= now);
        if late {
            self.deadline = None;
            self.step = SearchStep::Lost;
        }
        late
    }
}
