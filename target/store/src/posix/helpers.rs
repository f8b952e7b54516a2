//! Threads for operations on names and attributes, which rings cannot do and which would block a
//! reactor. Each volume has a few of its own, so that a hanging device does not delay other
//! volumes. Jobs are served client by client in turn (`client_queues`), so that a client with many
//! jobs delays another by one job at most.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use millrace_reactor::run_on;
use rustix::fs::Mode;

use super::client_queues::ClientQueues;
use super::sys;
use crate::{ClientKey, Result, StoreError};

/// How long an idle thread is kept.
const IDLE: Duration = Duration::from_secs(10);

/// Limits of a volume's helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperLimits {
    /// The most threads, started on demand.
    pub threads: usize,
    /// The most jobs that wait for a thread. Beyond, one of the client with the most is answered
    /// [`StoreError::Delay`].
    pub queue: usize,
}

/// The helpers of one volume. Clones share them; the threads end when the last one is dropped and
/// the queue is empty.
#[derive(Clone)]
pub struct Helpers {
    shared: Arc<Shared>,
    /// Ends the threads when the last clone is dropped.
    _door: Arc<Door>,
}

struct Shared {
    name: String,
    state: Mutex<HelpersState>,
    /// Jobs that are not queued yet: no more than enter while a thread has the state. A reactor does
    /// not wait for the state, as a helper that has it may not be running.
    entering: Sender<(ClientKey, HelperWork)>,
    entered: Receiver<(ClientKey, HelperWork)>,
}

struct HelpersState {
    limits: HelperLimits,
    queue: ClientQueues<HelperWork>,
    threads: usize,
    /// Threads that sleep.
    idle: Vec<Thread>,
    /// Whether an idle thread was woken and has not come yet. No other one is woken until then:
    /// short jobs of one burst are run by the threads that are awake, rather than each by a thread
    /// that has to be woken.
    is_waking: bool,
    closed: bool,
    /// The time of the last job's end, or of the first job's arrival after none was there.
    progressed: Option<Instant>,
    running: usize,
}

static START: OnceLock<HelperStart> = OnceLock::new();

/// How each helper starts.
struct HelperStart {
    cores: Vec<usize>,
    act: fn(),
}

/// Sets where helpers started from now on run, with the kernel's threads for file data, and their
/// first action, such as dropping rights. They run on the core of the thread that starts them
/// otherwise, which may be a reactor's. Only the first call has an effect.
pub fn on_start(cores: Vec<usize>, act: fn()) {
    let _ = START.set(HelperStart { cores, act });
}

/// The cores of helpers, if they were set.
pub(crate) fn cores() -> Option<&'static [usize]> {
    START.get().map(|start| start.cores.as_slice())
}

type HelperWork = Box<dyn QueuedJob>;

/// A job and its waiter.
trait QueuedJob: Send {
    fn run(self: Box<Self>);
    /// Answers a job that is not run: its waiter is asked to retry.
    fn refuse(self: Box<Self>);
}

struct PromisedJob<T, F> {
    /// Owned by the job from the start, so that a job that is never run is answered too.
    promise: Promise<T>,
    job: F,
}

impl<T: Send, F: FnOnce() -> T + Send> QueuedJob for PromisedJob<T, F> {
    fn run(self: Box<Self>) {
        self.promise.fill((self.job)());
    }

    fn refuse(self: Box<Self>) {
        self.promise.put(Err(StoreError::Delay));
    }
}

struct Door(Arc<Shared>);

impl Drop for Door {
    fn drop(&mut self) {
        let idle = self.0.with_state(|state| {
            state.closed = true;
            std::mem::take(&mut state.idle)
        });
        idle.iter().for_each(Thread::unpark);
    }
}

/// The load of a volume's helpers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelperLoad {
    /// Threads that exist.
    pub threads: usize,
    /// Jobs that threads are running.
    pub running: usize,
    /// Jobs that wait for a thread.
    pub queued: usize,
    /// Clients with such jobs.
    pub queued_clients: usize,
    /// The time since the last job ended, while jobs are running.
    pub stuck: Duration,
}

impl Helpers {
    /// Helpers without a thread yet. `name` begins the threads' names.
    #[must_use]
    pub fn new(name: &str, limits: HelperLimits) -> Self {
        let (entering, entered) = unbounded();
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            entering,
            entered,
            state: Mutex::new(HelpersState {
                limits,
                queue: ClientQueues::default(),
                threads: 0,
                idle: Vec::new(),
                is_waking: false,
                closed: false,
                progressed: None,
                running: 0,
            }),
        });
        Self {
            _door: Arc::new(Door(Arc::clone(&shared))),
            shared,
        }
    }

    /// Runs a job on a helper. It begins at once or in the client's turn, whether or not the future
    /// is polled, and runs to its end even if the future is dropped.
    pub fn run<T: Send + 'static>(
        &self,
        client: ClientKey,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Job<T> {
        let slot = Arc::new(Mutex::new(HelperSlot::Waiting(None)));
        let promise = Promise(Arc::clone(&slot));
        let work = Box::new(PromisedJob { promise, job });
        // The receiver lives as long.
        let _ = self.shared.entering.send((client, work));
        self.shared.queue_entered();
        Job { slot }
    }

    /// Whether jobs of other clients wait for a thread: a long job then ends early, and continues
    /// in another turn.
    #[must_use]
    pub fn is_wanted_by_others(&self, client: ClientKey) -> bool {
        let shared = &self.shared;
        shared.with_state(|state| state.queue.has_others(client))
    }

    /// Changes the limits. Surplus threads end when they are idle.
    pub fn set_limits(&self, limits: HelperLimits) {
        self.shared.with_state(|state| state.limits = limits);
    }

    /// The current load.
    #[must_use]
    pub fn load(&self) -> HelperLoad {
        self.shared.with_state(|state| {
            let since = state.progressed.filter(|_| state.running > 0);
            HelperLoad {
                threads: state.threads,
                running: state.running,
                queued: state.queue.len(),
                queued_clients: state.queue.clients(),
                stuck: since.map_or(Duration::ZERO, |since| since.elapsed()),
            }
        })
    }
}

impl Shared {
    /// Queues the jobs that have entered, and wakes a thread for them. If another thread has the
    /// state, that one does so when it leaves it. To be called after each use of the state.
    fn queue_entered(self: &Arc<Self>) {
        loop {
            // Either this thread finds the state free, or the one that has it finds the jobs: each
            // has written before this, and reads behind it.
            fence(SeqCst);
            if self.entered.is_empty() {
                return;
            }
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let mut refused = Vec::new();
            for (client, work) in self.entered.try_iter() {
                refused.extend(self.queue(&mut state, client, work));
            }
            self.wake_another(state);
            refused.into_iter().for_each(QueuedJob::refuse);
        }
    }

    /// Returns the refused job: this one, or one of the client with the most.
    fn queue(
        self: &Arc<Self>,
        state: &mut HelpersState,
        client: ClientKey,
        work: HelperWork,
    ) -> Option<HelperWork> {
        // Idle threads may already have been woken for queued jobs.
        let idle = state.idle.len() + usize::from(state.is_waking);
        if state.queue.len() >= idle && state.threads < state.limits.threads.max(1) {
            self.spawn(state);
        }
        if state.threads == 0 {
            return Some(work);
        }
        let mut refused = None;
        if state.queue.len() >= state.limits.queue.max(1) {
            refused = state.queue.make_room(client);
            if refused.is_none() {
                return Some(work);
            }
        }
        state.queue.push(client, work);
        refused
    }

    /// Leaves the state, and wakes an idle thread for the queue, unless one is on its way.
    fn wake_another(&self, mut state: MutexGuard<'_, HelpersState>) {
        let wakes = state.queue.len() > 0 && !state.is_waking;
        let woken = wakes.then(|| state.idle.pop()).flatten();
        state.is_waking |= woken.is_some();
        drop(state);
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Uses the state; waits for it.
    fn with_state<T>(self: &Arc<Self>, act: impl FnOnce(&mut HelpersState) -> T) -> T {
        let outcome = act(&mut self.lock());
        self.queue_entered();
        outcome
    }

    fn spawn(self: &Arc<Self>, state: &mut HelpersState) {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(self.name.clone());
        if thread.spawn(move || shared.serve()).is_ok() {
            state.threads += 1;
        }
    }

    fn serve(self: &Arc<Self>) {
        if let Some(HelperStart { cores, act }) = START.get() {
            // Where this is not allowed, the process has logged it for its other threads.
            let _ = run_on(cores);
            act();
        }
        unmask();
        let mut state = self.lock();
        loop {
            if let Some(work) = state.queue.pop() {
                if state.running == 0 {
                    state.progressed = Some(Instant::now());
                }
                state.running += 1;
                // This job may take any time.
                self.wake_another(state);
                self.queue_entered();
                // A panic ends the one job, which its promise reports.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.run()));
                state = self.lock();
                state.running -= 1;
                state.progressed = Some(Instant::now());
                if sys::identity::lost() {
                    // Another thread serves the queue. If it cannot be started, the jobs are
                    // answered at least.
                    self.spawn(&mut state);
                    if state.threads == 1 {
                        let unserved = std::mem::take(&mut state.queue);
                        state.threads -= 1;
                        drop(state);
                        drop(unserved);
                        self.queue_entered();
                        return;
                    }
                    break;
                }
                continue;
            }
            if state.closed {
                break;
            }
            if state.threads > state.limits.threads.max(1) {
                break;
            }
            state.idle.push(thread::current());
            drop(state);
            self.queue_entered();
            let slept = Instant::now();
            thread::park_timeout(IDLE);
            state = self.lock();
            let me = thread::current().id();
            match state.idle.iter().position(|thread| thread.id() == me) {
                // Nobody has woken it.
                Some(at) => {
                    state.idle.remove(at);
                    if slept.elapsed() >= IDLE && state.queue.len() == 0 {
                        break;
                    }
                }
                None => state.is_waking = false,
            }
        }
        state.threads -= 1;
        drop(state);
        self.queue_entered();
    }

    fn lock(&self) -> MutexGuard<'_, HelpersState> {
        lock(&self.state)
    }
}

/// Files made by helpers get the permissions that clients request.
fn unmask() {
    if let Err(error) = sys::identity::own_umask() {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            tracing::warn!(
                %error,
                "threads cannot have separate file mode masks; the mask of the process is set to 0"
            );
        });
        rustix::process::umask(Mode::empty());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum HelperSlot<T> {
    Waiting(Option<Waker>),
    Done(Result<T>),
    Taken,
}

/// Fills a slot, also when the job panicked.
struct Promise<T>(Arc<Mutex<HelperSlot<T>>>);

impl<T> Promise<T> {
    fn fill(&self, value: T) {
        self.put(Ok(value));
    }

    fn put(&self, value: Result<T>) {
        let before = {
            let mut slot = lock(&self.0);
            match *slot {
                HelperSlot::Waiting(_) => std::mem::replace(&mut *slot, HelperSlot::Done(value)),
                HelperSlot::Done(_) | HelperSlot::Taken => return,
            }
        };
        if let HelperSlot::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.put(Err(StoreError::Io));
    }
}

/// The outcome of a job, [`StoreError::Delay`] if it was refused.
pub struct Job<T> {
    slot: Arc<Mutex<HelperSlot<T>>>,
}

impl<T> Job<T> {
    /// Whether it was refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(&*lock(&self.slot), HelperSlot::Done(Err(StoreError::Delay)))
    }
}

impl<T> Future for Job<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.slot);
        match &mut *slot {
            HelperSlot::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            done => match std::mem::replace(done, HelperSlot::Taken) {
                HelperSlot::Done(value) => Poll::Ready(value),
                HelperSlot::Waiting(_) | HelperSlot::Taken => unreachable!("polled after its end"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
