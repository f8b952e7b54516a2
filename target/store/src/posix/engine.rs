//! Reads, writes and syncs of file data: a ring of the kernel's per reactor, or threads where there
//! are none.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use millrace_mempool::{Arena, Pool, Slice};
use millrace_reactor::Alarm;

use super::hold::Hold;
use super::identity::Identity;

/// What does the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// A ring where the system has them, else threads.
    #[default]
    Auto,
    /// A ring (io_uring).
    Ring,
    /// Threads.
    Threads,
}

/// What an engine is made from.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// What does the work.
    pub backend: Backend,
    /// Most operations under way.
    pub operations: u32,
}

/// How durable a write has to be before it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Not at all.
    None,
    /// Its data, and what is needed to find it again.
    Data,
    /// All attributes too.
    File,
}

/// One reactor's engine. Clones share it.
///
/// An operation keeps its file, its memory and its [`Hold`] until the kernel is done with it, also
/// when the future that waits for it is dropped. It begins when its future is first polled.
#[derive(Clone)]
pub struct Engine {
    inner: Rc<Inner>,
}

struct Inner {
    pool: Pool,
}

impl Engine {
    /// An engine for the reactor that the alarm rings. All memory that operations will use lies in
    /// `arenas` or comes by [`Engine::add_arena`].
    ///
    /// # Errors
    /// The backend that was asked for is not there.
    pub fn new(
        _config: EngineConfig,
        pool: &Pool,
        _arenas: &[Arc<Arena>],
        _alarm: Option<Alarm>,
    ) -> io::Result<Self> {
        Ok(Self {
            inner: Rc::new(Inner { pool: pool.clone() }),
        })
    }

    /// The reactor's memory.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// What does the work: [`Backend::Ring`] or [`Backend::Threads`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        Backend::Threads
    }

    /// Makes more memory known.
    pub fn add_arena(&self, _arena: &Arc<Arena>) {}

    /// Hands over what has been asked for and takes what has completed. Returns how much that was.
    pub fn poll(&self) -> usize {
        0
    }

    /// Readable when there is something to take, for reactors that sleep.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// Before a sleep: false if there is something to take already.
    pub fn arm(&self) -> bool {
        true
    }

    /// Operations under way.
    #[must_use]
    pub fn pending(&self) -> usize {
        0
    }

    /// Reads into a slice; less than its length at the end of the file only, or with `cached`.
    /// `cached` takes only what memory holds: [`io::ErrorKind::WouldBlock`] if that is nothing.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn read(
        &self,
        _file: &Arc<OwnedFd>,
        _offset: u64,
        _slice: &Slice,
        _cached: bool,
        _identity: &Identity,
        _hold: Option<Hold>,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Writes a slice on somebody's behalf: the kernel takes set-id bits away and counts quotas as
    /// if they had written themselves. Less than its length where space ends.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn write(
        &self,
        _file: &Arc<OwnedFd>,
        _offset: u64,
        _slice: &Slice,
        _durability: Durability,
        _identity: &Identity,
        _hold: Option<Hold>,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes all that was written to a file durable, and its attributes if `attributes`.
    ///
    /// # Errors
    /// What the kernel says, also of writes that completed before.
    pub async fn sync(
        &self,
        _file: &Arc<OwnedFd>,
        _attributes: bool,
        _hold: Option<Hold>,
    ) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
