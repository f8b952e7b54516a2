//! I/O that has begun: it ends before what it relied on is granted to others (RFC 8881 section
//! 8.4.3).
//!
//! When state is revoked, stateids no longer allow I/O, but some may go on: an RDMA Read that fills
//! memory, or an operation of a store. So the home raises a fence for a client whose state it has
//! revoked, and each reactor tells which files the client's I/O from before goes on with there. Answers
//! of the home about a file wait until there is none with this file. Nobody else waits for it: it may
//! take as long as the client likes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use millrace_reactor::completion::Completions;

use super::clients::ClientId;
use super::files::FileKey;

/// How long an answer waits. Then its client calls again.
const WAIT_MOST: Duration = Duration::from_secs(5);

/// Fences of all reactors.
pub struct IoFences {
    reactors: usize,
    /// The latest fence that was raised.
    newest: AtomicU64,
    /// Whether there is none that I/O may go on behind.
    is_clear: AtomicBool,
    open: Mutex<Vec<RaisedFence>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The fences of a client that I/O may go on behind. There is one of each client, however often state
/// of it is revoked meanwhile.
struct RaisedFence {
    client: ClientId,
    /// The first one and the latest one.
    first: u64,
    latest: u64,
    /// Reactors that have not told.
    silent: Vec<usize>,
    /// The files of I/O that goes on at the others, each with its reactor.
    running: Vec<(usize, FileKey)>,
}

impl RaisedFence {
    /// Takes the I/O that goes on at a reactor. Returns whether that is news.
    fn note(&mut self, reactor: usize, io: &[Option<BegunIo>]) -> bool {
        let own = io.iter().flatten();
        let own = own.filter(|io| io.client == self.client && io.fence < self.latest);
        let own: Vec<_> = own.map(|io| (reactor, io.file)).collect();
        let (silent, running) = (self.silent.len(), self.running.len());
        self.silent.retain(|other| *other != reactor);
        self.running.retain(|(other, _)| *other != reactor);
        self.running.extend(own);
        // I/O ends, and none begins behind a fence.
        (silent, running) != (self.silent.len(), self.running.len())
    }

    fn is_passed(&self) -> bool {
        self.silent.is_empty() && self.running.is_empty()
    }

    fn blocks(&self, file: &FileKey) -> bool {
        !self.silent.is_empty() || self.running.iter().any(|(_, other)| other == file)
    }
}

impl fmt::Debug for IoFences {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("IoFences")
            .field("newest", &self.newest)
            .field("is_clear", &self.is_clear)
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
            is_clear: AtomicBool::new(true),
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

    fn open(&self) -> MutexGuard<'_, Vec<RaisedFence>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of a client has been revoked, and allows no I/O from now on.
    pub(super) fn raise(&self, client: ClientId) {
        let mut open = self.open();
        let serial = self.newest.load(Acquire) + 1;
        let silent = (0..self.reactors).collect();
        match open.iter_mut().find(|fence| fence.client == client) {
            Some(known) => (known.latest, known.silent) = (serial, silent),
            None => open.push(RaisedFence {
                client,
                first: serial,
                latest: serial,
                silent,
                running: Vec::new(),
            }),
        }
        self.is_clear.store(false, Release);
        self.newest.store(serial, Release);
        drop(open);
        self.wake();
    }

    fn newest(&self) -> u64 {
        self.newest.load(Acquire)
    }

    /// Whether no I/O goes on behind any fence.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.is_clear.load(Acquire)
    }

    /// How many clients have fences that I/O may go on behind.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open().len()
    }

    /// Whether I/O with a file may go on behind a fence up to some.
    fn blocks(&self, file: &FileKey, serial: u64) -> bool {
        let open = self.open();
        let mut earlier = open.iter().take_while(|fence| fence.first <= serial);
        earlier.any(|fence| fence.blocks(file))
    }

    /// A reactor tells the I/O that goes on there.
    fn note(&self, reactor: usize, io: &[Option<BegunIo>]) {
        let mut open = self.open();
        let mut is_news = false;
        open.retain_mut(|fence| {
            is_news |= fence.note(reactor, io);
            !fence.is_passed()
        });
        self.is_clear.store(open.is_empty(), Release);
        drop(open);
        if is_news {
            self.wake();
        }
    }
}

/// I/O of a client with a file that goes on.
#[derive(Clone, Copy, Debug)]
struct BegunIo {
    client: ClientId,
    file: FileKey,
    /// The latest fence when it began: what was revoked before allows none of it.
    fence: u64,
}

/// An answer that waits.
#[derive(Clone, Copy, Debug)]
struct FenceWait {
    file: FileKey,
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

    /// I/O of a client with a file begins, before its stateid is checked. It ends with the guard.
    #[must_use]
    pub fn begin(self: &Rc<Self>, client: ClientId, file: &FileKey) -> RunningIo {
        let fence = self.fences.newest();
        let begun = Some(BegunIo {
            client,
            file: *file,
            fence,
        });
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
            fence,
            place,
        }
    }

    /// Tells the I/O that goes on here.
    fn tell(&self) {
        self.seen.set(self.fences.newest());
        self.fences.note(self.reactor, &self.running.borrow());
    }

    /// Waits until no I/O with a file goes on behind the fences that there are. `false` if that takes
    /// long.
    pub(super) async fn wait(&self, file: FileKey, now: Duration) -> bool {
        if self.fences.is_clear() {
            return true;
        }
        let serial = self.fences.newest();
        self.tell();
        if !self.fences.blocks(&file, serial) {
            return true;
        }
        let (token, outcome) = self.outcomes.register();
        self.waiting.borrow_mut().push(FenceWait {
            file,
            serial,
            until: now + WAIT_MOST,
            token,
        });
        outcome.await
    }

    /// Looks at new fences, and ends waits. To be called in each turn.
    pub(super) fn poll(&self, now: Duration) {
        if self.seen.get() != self.fences.newest() {
            self.tell();
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|one| {
            let is_free = !self.fences.blocks(&one.file, one.serial);
            let is_over = is_free || now >= one.until;
            if is_over {
                // Who has asked may be gone.
                let _ = self.outcomes.complete(one.token, is_free);
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
    /// The latest fence when it began.
    fence: u64,
    place: usize,
}

impl Drop for RunningIo {
    fn drop(&mut self) {
        let register = &self.register;
        register.running.borrow_mut()[self.place] = None;
        register.free.borrow_mut().push(self.place);
        if !register.fences.is_clear() && self.fence < register.fences.newest() {
            register.tell();
        }
    }
}
