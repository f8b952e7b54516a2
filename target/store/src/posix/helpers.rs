//! Threads for operations on names and attributes, which rings cannot do and which would block a
//! reactor. Each volume has a few of its own, so that a hanging device does not delay other
//! volumes. Jobs are served client by client in turn (`client_queues`), so that a client with many
//! jobs delays another by one job at most.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

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
    work: Condvar,
}

struct HelpersState {
    limits: HelperLimits,
    queue: ClientQueues<HelperWork>,
    threads: usize,
    idle: usize,
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
        self.0.lock().closed = true;
        self.0.work.notify_all();
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
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            state: Mutex::new(HelpersState {
                limits,
                queue: ClientQueues::default(),
                threads: 0,
                idle: 0,
                is_waking: false,
                closed: false,
                progressed: None,
                running: 0,
            }),
            work: Condvar::new(),
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
        if let Err(refused) = self
            .shared
            .enter(client, Box::new(PromisedJob { promise, job }))
        {
            refused.refuse();
        }
        Job { slot }
    }

    /// Whether jobs of other clients wait for a thread: a long job then ends early, and continues
    /// in another turn.
    #[must_use]
    pub fn is_wanted_by_others(&self, client: ClientKey) -> bool {
        self.shared.lock().queue.has_others(client)
    }

    /// Changes the limits. Surplus threads end when they are idle.
    pub fn set_limits(&self, limits: HelperLimits) {
        self.shared.lock().limits = limits;
    }

    /// The current load.
    #[must_use]
    pub fn load(&self) -> HelperLoad {
        let state = self.shared.lock();
        let since = state.progressed.filter(|_| state.running > 0);
        HelperLoad {
            threads: state.threads,
            running: state.running,
            queued: state.queue.len(),
            queued_clients: state.queue.clients(),
            stuck: since.map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }
}

impl Shared {
    /// Returns the refused job: this one, or one of the client with the most.
    fn enter(
        self: &Arc<Self>,
        client: ClientKey,
        work: HelperWork,
    ) -> std::result::Result<(), HelperWork> {
        let mut state = self.lock();
        // Idle threads may already have been woken for queued jobs.
        if state.queue.len() >= state.idle && state.threads < state.limits.threads.max(1) {
            self.spawn(&mut state);
        }
        if state.threads == 0 {
            return Err(work);
        }
        let mut refused = None;
        if state.queue.len() >= state.limits.queue.max(1) {
            refused = state.queue.make_room(client);
            if refused.is_none() {
                return Err(work);
            }
        }
        state.queue.push(client, work);
        self.wake_another(state);
        refused.map_or(Ok(()), Err)
    }

    /// Wakes an idle thread for the queue, unless one is on its way.
    fn wake_another(&self, mut state: MutexGuard<'_, HelpersState>) {
        let wakes = state.queue.len() > 0 && state.idle > 0 && !state.is_waking;
        state.is_waking |= wakes;
        drop(state);
        if wakes {
            self.work.notify_one();
        }
    }

    fn spawn(self: &Arc<Self>, state: &mut HelpersState) {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name(self.name.clone());
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
            state.idle += 1;
            let (next, waited) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            state.is_waking = false;
            if waited.timed_out() && state.queue.len() == 0 {
                break;
            }
        }
        state.threads -= 1;
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
