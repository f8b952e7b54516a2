//! Reads, writes and syncs of file data: by an io_uring for each reactor, or by threads where rings
//! are not available. Threads also make writes that a ring does not begin in time: see
//! `operations`.
//!
//! An operation owns its file and its memory until the kernel has completed it, even if its future
//! was dropped. Short and interrupted transfers are continued here. Operations beyond the limit
//! wait, client by client in turn.
//!
//! Memory is registered with the ring, files are not. That would save 14 ns of the 270 that a read
//! of 4 KiB from the page cache takes (Linux 6.18), and would cost a system call whenever a file is
//! opened or closed, and one more bounded table.
//!
//! | module | content |
//! | --- | --- |
//! | `operations` | the table of operations, their progress and wakers |
//! | `machine` | the executors, and the identities that they act for |
//! | `personalities` | the identities that are registered with the ring |
//! | `registrations` | their registration by helpers |
//! | `threads` | execution without a ring |

mod machine;
mod operations;
mod personalities;
mod registrations;
mod threads;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use millrace_mempool::{Arena, Pool, Slice};
use millrace_reactor::Alarm;

use self::machine::Machine;
use self::operations::{Operations, Request};
use super::hold::Hold;
use super::identity::Identity;
pub use super::sys::work::Durability;
use super::sys::work::{HeldResources, Work};
use crate::ClientKey;

/// The most operations of a ring.
const MOST: u32 = 32_768;

/// The kind of executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// A ring if the system supports it, else threads.
    #[default]
    Auto,
    /// A ring (io_uring).
    Ring,
    /// Threads.
    Threads,
}

/// The configuration of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// The kind of executor.
    pub backend: Backend,
    /// The most operations in progress, from 1 to 32768; further ones wait.
    pub operations: u32,
}

/// One reactor's engine, for the operations of one client. Clones share it.
///
/// An operation keeps its file, its memory and its [`Hold`] until the kernel has completed it, even
/// if the future that waits for it is dropped. It begins when its future is first polled.
///
/// Dropping the last clone cancels operations in progress, and waits for those that cannot be
/// cancelled. If a device does not complete them within two seconds, their memory is never reused.
#[derive(Clone)]
pub struct Engine {
    inner: Rc<Inner>,
    client: ClientKey,
}

struct Inner {
    pool: Pool,
    may_act: bool,
    operations: RefCell<Operations>,
}

impl Engine {
    /// An engine for the reactor of this thread, which the alarm wakes. All memory of operations
    /// must be in `arenas` or added by [`Engine::add_arena`].
    ///
    /// # Errors
    /// The requested backend is not available.
    pub fn new(
        config: EngineConfig,
        pool: &Pool,
        arenas: &[Arc<Arena>],
        alarm: Option<Alarm>,
    ) -> io::Result<Self> {
        Self::with(config, pool, arenas, alarm, true)
    }

    /// The same for a thread that may not act as others, not even for a moment: it uses RDMA devices,
    /// which it could not do afterwards. The first operations of a caller are executed by threads.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn beside_devices(
        config: EngineConfig,
        pool: &Pool,
        arenas: &[Arc<Arena>],
        alarm: Option<Alarm>,
    ) -> io::Result<Self> {
        Self::with(config, pool, arenas, alarm, false)
    }

    fn with(
        config: EngineConfig,
        pool: &Pool,
        arenas: &[Arc<Arena>],
        alarm: Option<Alarm>,
        may_act: bool,
    ) -> io::Result<Self> {
        let places = config.operations.clamp(1, MOST);
        let ring = |alarm| Machine::ring(places, alarm, may_act);
        let mut machine = match config.backend {
            Backend::Ring => ring(alarm)?,
            Backend::Threads => Machine::threads(places, alarm),
            Backend::Auto => ring(alarm.clone()).unwrap_or_else(|error| {
                tracing::warn!(
                    %error,
                    "io_uring is not available: file data is read and written by threads, which is \
                     slower"
                );
                Machine::threads(places, alarm)
            }),
        };
        for arena in arenas {
            machine.add_arena(arena);
        }
        Ok(Self {
            inner: Rc::new(Inner {
                pool: pool.clone(),
                may_act,
                operations: RefCell::new(Operations::new(machine, places)),
            }),
            client: ClientKey::OWN,
        })
    }

    /// The same engine for a client's operations, which wait in turn with those of other clients.
    #[must_use]
    pub fn for_client(&self, client: ClientKey) -> Self {
        Self {
            inner: Rc::clone(&self.inner),
            client,
        }
    }

    /// The reactor's memory.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// The backend in use: [`Backend::Ring`] or [`Backend::Threads`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.inner.operations.borrow().machine.backend()
    }

    /// Whether this thread may act as others.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.inner.may_act
    }

    /// Registers more memory. Unregistered memory works, but slower. The kernel pins it during this
    /// call, which takes long for small pages (about 0.1 s for a GiB).
    pub fn add_arena(&self, arena: &Arc<Arena>) {
        self.inner.operations.borrow_mut().machine.add_arena(arena);
    }

    /// Limits the threads that wait for devices on behalf of this reactor, those of the kernel and
    /// those of this process: to the sum of all volumes' operations, so that one volume that hangs
    /// does not take them all. Initially the limit is the engine's number of operations.
    ///
    /// # Errors
    /// The kernel does not support this limit (before Linux 5.15).
    pub fn set_workers(&self, most: u32) -> io::Result<()> {
        self.inner.operations.borrow().machine.set_workers(most)
    }

    /// Submits requested operations and collects completions. Returns the number of both.
    pub fn poll(&self, now: Instant) -> usize {
        let mut operations = self.inner.operations.borrow_mut();
        operations.begin_turn(now);
        if operations.running == 0 && !operations.machine.is_armed() {
            return 0;
        }
        let handed_over = operations.machine.turn();
        let completed = operations.reap();
        drop(operations);
        self.inner.settle();
        handed_over.max(completed)
    }

    /// When [`Engine::poll`] next has work even if nothing completes, for reactors that sleep.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.operations.borrow().next_deadline()
    }

    /// A descriptor that is readable when there are completions, for reactors that sleep.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.inner.operations.borrow().machine.descriptor()
    }

    /// To be called before a sleep: false if there are completions or unsubmitted operations.
    pub fn arm(&self) -> bool {
        self.inner.operations.borrow_mut().machine.arm()
    }

    /// Operations in progress.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.inner.operations.borrow().running
    }

    /// Operations that wait for others to complete.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.operations.borrow().waiters.len()
    }

    /// Reads into a slice; short only at the end of the file, or with `cached`. `cached` reads only
    /// data in the page cache: [`io::ErrorKind::WouldBlock`] if there is none.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub async fn read(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        slice: &Slice,
        cached: bool,
        identity: &Identity,
        hold: Option<Hold>,
    ) -> io::Result<usize> {
        let work = Work::Read { cached };
        self.transfer(file, offset, slice, work, identity, hold)
            .await
    }

    /// Writes a slice as an identity: the kernel removes set-id bits and counts quotas as for a
    /// write by that user. Short only when space runs out.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub async fn write(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        slice: &Slice,
        durability: Durability,
        identity: &Identity,
        hold: Option<Hold>,
    ) -> io::Result<usize> {
        let work = Work::Write(durability);
        self.transfer(file, offset, slice, work, identity, hold)
            .await
    }

    /// Makes all bytes written to a file durable, and its attributes if `attributes`.
    ///
    /// # Errors
    /// Errors of the kernel, also of writes that completed before.
    pub async fn sync(
        &self,
        file: &Arc<OwnedFd>,
        attributes: bool,
        hold: Option<Hold>,
    ) -> io::Result<()> {
        let operation = Operation {
            inner: &self.inner,
            file,
            slice: None,
            request: Request {
                work: Work::Sync { attributes },
                offset: 0,
                identity: None,
                client: self.client,
            },
            hold,
            stage: Stage::New,
        };
        operation.await.map(|_| ())
    }

    async fn transfer(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        slice: &Slice,
        work: Work,
        identity: &Identity,
        hold: Option<Hold>,
    ) -> io::Result<usize> {
        // A negative offset would mean the file's own position.
        if i64::try_from(offset).is_err() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if slice.is_empty() {
            return Ok(0);
        }
        let operation = Operation {
            inner: &self.inner,
            file,
            slice: Some(slice),
            request: Request {
                work,
                offset,
                identity: Some(identity),
                client: self.client,
            },
            hold,
            stage: Stage::New,
        };
        operation.await
    }
}

impl Inner {
    /// Notifies the observers of operations that have ended, and then wakes their waiters. Not
    /// while the operations are borrowed, since both may call back into the engine.
    fn settle(&self) {
        loop {
            let ending = self.operations.borrow_mut().endings.pop_front();
            if let Some(ending) = ending {
                ending.tell();
                continue;
            }
            let waker = self.operations.borrow_mut().wakers.pop_front();
            let Some(waker) = waker else {
                return;
            };
            waker.wake();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.operations.get_mut().wind_up();
        self.settle();
    }
}

/// One operation, as awaited by its caller.
struct Operation<'a> {
    inner: &'a Inner,
    file: &'a Arc<OwnedFd>,
    slice: Option<&'a Slice>,
    request: Request<'a>,
    hold: Option<Hold>,
    stage: Stage,
}

enum Stage {
    New,
    Waiting(usize),
    Begun { place: u32, generation: u32 },
    Ended,
}

impl Operation<'_> {
    fn begin(&mut self, operations: &mut Operations, place: u32) -> io::Result<()> {
        // If it fails, there is no slot to release.
        self.stage = Stage::Ended;
        let held = HeldResources {
            file: Arc::clone(self.file),
            slice: self.slice.cloned(),
        };
        let hold = self.hold.take();
        let generation = operations.begin(place, held, self.request, hold)?;
        self.stage = Stage::Begun { place, generation };
        Ok(())
    }

    /// One step; the operations are borrowed during it.
    fn step(
        &mut self,
        operations: &mut Operations,
        context: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let waker = context.waker();
        let place = match &self.stage {
            Stage::New => operations.free_place(),
            Stage::Waiting(number) => operations.waiters.poll(*number, waker),
            Stage::Begun { .. } => None,
            Stage::Ended => unreachable!("polled after its end"),
        };
        match (place, &self.stage) {
            (Some(place), _) => {
                if let Err(error) = self.begin(operations, place) {
                    return Poll::Ready(Err(error));
                }
            }
            (None, Stage::New) => {
                let number = operations.waiters.join(self.request.client, (), waker);
                self.stage = Stage::Waiting(number);
            }
            (None, _) => {}
        }
        let Stage::Begun { place, generation } = self.stage else {
            return Poll::Pending;
        };
        match operations.poll(place, generation, waker) {
            Some(outcome) => {
                self.stage = Stage::Ended;
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl Future for Operation<'_> {
    type Output = io::Result<usize>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let outcome = this.step(&mut this.inner.operations.borrow_mut(), context);
        this.inner.settle();
        outcome
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let mut operations = self.inner.operations.borrow_mut();
        match &self.stage {
            Stage::New | Stage::Ended => return,
            Stage::Waiting(number) => {
                if let Some(place) = operations.waiters.leave(*number) {
                    operations.vacate(place);
                }
            }
            &Stage::Begun { place, generation } => operations.detach(place, generation),
        }
        drop(operations);
        self.inner.settle();
    }
}
