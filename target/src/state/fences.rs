//! I/O that has begun: it ends before what it relied on is granted to others (RFC 8881 section
//! 8.4.3).
//!
//! When state is revoked, stateids no longer allow I/O, but some may go on: an RDMA Read that fills
//! memory, or an operation of a store. So the home raises a fence for a client whose state it has
//! revoked, and each reactor passes it when none of the client's I/O from before goes on there. Answers
//! of the home wait until all reactors have passed all fences that there are.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use millrace_reactor::completion::Completions;

use super::clients::ClientId;

/// How long an answer waits. Then its client calls again.
const WAIT_MOST: Duration = Duration::from_secs(5);

/// Fences of all reactors.
pub struct IoFences {
    reactors: usize,
    /// The latest fence that was raised, and the latest one that all reactors have passed, with all
    /// before it.
    newest: AtomicU64,
    passed: AtomicU64,
    open: Mutex<VecDeque<RaisedFence>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// A fence, and the reactors that have not passed it.
struct RaisedFence {
    serial: u64,
    client: ClientId,
    behind: Vec<usize>,
}

impl fmt::Debug for IoFences {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("IoFences")
            .field("newest", &self.newest)
            .field("passed", &self.passed)
            .finish_non_exhaustive()
    }
}

impl IoFences {
    /// Without a fence, for so many reactors.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self {
            reactors,
            newest: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            open: Mutex::default(),
            wake: OnceLock::new(),
        }
    }

    /// Wakes all reactors by this, when one of them may have something to do. The first one given
    /// counts.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<RaisedFence>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of a client has been revoked, and allows no I/O from now on.
    pub(super) fn raise(&self, client: ClientId) {
        let mut open = self.open();
        let serial = self.newest.load(Acquire) + 1;
        open.push_back(RaisedFence {
            serial,
            client,
            behind: (0..self.reactors).collect(),
        });
        self.newest.store(serial, Release);
        drop(open);
        self.wake();
    }

    fn has_passed(&self, serial: u64) -> bool {
        self.passed.load(Acquire) >= serial
    }

    fn newest(&self) -> u64 {
        self.newest.load(Acquire)
    }

    /// Whether all fences have been passed.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.has_passed(self.newest())
    }

    /// A reactor passes the fences of which no I/O goes on there.
    fn pass(&self, reactor: usize, running: &[Option<BegunIo>]) {
        let mut open = self.open();
        for fence in &mut *open {
            let mut running = running.iter().flatten();
            if !running.any(|io| io.client == fence.client && io.fence < fence.serial) {
                fence.behind.retain(|other| *other != reactor);
            }
        }
        let mut passed = None;
        while let Some(fence) = open.pop_front_if(|fence| fence.behind.is_empty()) {
            passed = Some(fence.serial);
        }
        drop(open);
        if let Some(serial) = passed {
            self.passed.store(serial, Release);
            self.wake();
        }
    }
}

/// I/O of a client that goes on.
#[derive(Clone, Copy, Debug)]
struct BegunIo {
    client: ClientId,
    /// The latest fence when it began: what was revoked before allows none of it.
    fence: u64,
}

/// An answer that waits.
#[derive(Clone, Copy, Debug)]
struct FenceWait {
    serial: u64,
    until: Duration,
    token: u64,
}

/// The I/O of one reactor that goes on, and answers that wait for I/O of all reactors.
#[derive(Debug)]
pub struct IoRegister {
    fences: Arc<IoFences>,
    reactor: usize,
    /// I/O that goes on; places that are free hold none.
    running: RefCell<Vec<Option<BegunIo>>>,
    free: RefCell<Vec<usize>>,
    /// The latest fence that was looked at.
    seen: Cell<u64>,
    outcomes: Completions<bool>,
    waiting: RefCell<Vec<FenceWait>>,
}

impl IoRegister {
    /// Of a reactor on which no I/O goes on.
    #[must_use]
    pub fn new(fences: Arc<IoFences>, reactor: usize) -> Self {
        Self {
            fences,
            reactor,
            running: RefCell::default(),
            free: RefCell::default(),
            seen: Cell::new(0),
            outcomes: Completions::new(),
            waiting: RefCell::default(),
        }
    }

    /// The latest fence that was raised.
    #[must_use]
    pub fn newest_fence(&self) -> u64 {
        self.fences.newest()
    }

    /// I/O of a client begins, before its stateid is checked. It ends with the guard.
    #[must_use]
    pub fn begin(self: &Rc<Self>, client: ClientId) -> RunningIo {
        let fence = self.fences.newest();
        let begun = Some(BegunIo { client, fence });
        let (mut running, known) = (self.running.borrow_mut(), self.free.borrow_mut().pop());
        let place = match known {
            Some(place) => {
                running[place] = begun;
                place
            }
            None => {
                running.push(begun);
                running.len() - 1
            }
        };
        RunningIo {
            register: Rc::clone(self),
            place,
        }
    }

    /// Passes fences of which no I/O goes on here.
    fn settle(&self) {
        self.seen.set(self.fences.newest());
        self.fences.pass(self.reactor, &self.running.borrow());
    }

    /// Waits until all reactors have passed all fences that there are. `false` if that takes long.
    pub(super) async fn wait(&self, now: Duration) -> bool {
        let serial = self.fences.newest();
        if self.fences.has_passed(serial) {
            return true;
        }
        self.settle();
        if self.fences.has_passed(serial) {
            return true;
        }
        let (token, outcome) = self.outcomes.register();
        self.waiting.borrow_mut().push(FenceWait {
            serial,
            until: now + WAIT_MOST,
            token,
        });
        outcome.await
    }

    /// Passes new fences, and ends waits. To be called in each turn.
    pub(super) fn poll(&self, now: Duration) {
        if self.seen.get() != self.fences.newest() {
            self.settle();
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|one| {
            let has_passed = self.fences.has_passed(one.serial);
            let is_over = has_passed || now >= one.until;
            if is_over {
                // Who has asked may be gone.
                let _ = self.outcomes.complete(one.token, has_passed);
            }
            !is_over
        });
    }

    /// When the next wait ends without success.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let waiting = self.waiting.borrow();
        waiting.iter().map(|one| one.until).min()
    }
}

/// I/O that goes on.
#[derive(Debug)]
pub struct RunningIo {
    register: Rc<IoRegister>,
    place: usize,
}

impl Drop for RunningIo {
    fn drop(&mut self) {
        let register = &self.register;
        register.running.borrow_mut()[self.place] = None;
        register.free.borrow_mut().push(self.place);
        if !register.fences.is_clear() {
            register.settle();
        }
    }
}
