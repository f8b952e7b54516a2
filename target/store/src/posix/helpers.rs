//! Threads for what rings cannot do and reactors must not wait for: everything about names and
//! attributes. Each volume has its own few, so that one whose device hangs holds up no other.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustix::fs::Mode;

use super::sys;
use crate::{Result, StoreError};

/// How long an idle thread stays.
const IDLE: Duration = Duration::from_secs(10);

/// Bounds of a volume's helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperLimits {
    /// Most threads; they come as they are needed.
    pub threads: usize,
    /// Most jobs that wait for a thread. One more is answered [`StoreError::Delay`].
    pub queue: usize,
}

/// The helpers of one volume. Clones share them; the threads end when the last one is gone and the
/// queue is empty.
#[derive(Clone)]
pub struct Helpers {
    shared: Arc<Shared>,
    /// Ends the threads when the last clone goes.
    _door: Arc<Door>,
}

struct Shared {
    name: String,
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    limits: HelperLimits,
    queue: VecDeque<Work>,
    threads: usize,
    idle: usize,
    closed: bool,
    /// When the last job ended, or the first came after none was there.
    progressed: Option<Instant>,
    running: usize,
}

type Work = Box<dyn FnOnce() + Send>;

struct Door(Arc<Shared>);

impl Drop for Door {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

/// What a volume's helpers are at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelperLoad {
    /// Threads that exist.
    pub threads: usize,
    /// Jobs that threads are at.
    pub running: usize,
    /// Jobs that wait for a thread.
    pub queued: usize,
    /// How long no job has ended although some run.
    pub stuck: Duration,
}

impl Helpers {
    /// Helpers without a thread yet. `name` begins the threads' names.
    #[must_use]
    pub fn new(name: &str, limits: HelperLimits) -> Self {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            state: Mutex::new(State {
                limits,
                queue: VecDeque::new(),
                threads: 0,
                idle: 0,
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

    /// Runs a job on a helper. It begins at once or in its turn, whether or not the future is
    /// polled, and runs to its end even if the future is dropped.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        let slot = Arc::new(Mutex::new(Slot::Waiting(None)));
        // Of the work from the start, so that work which nobody gets to is answered too.
        let promise = Promise(Arc::clone(&slot));
        let work = Box::new(move || promise.fill(job()));
        if self.shared.enter(work).is_err() {
            *lock(&slot) = Slot::Done(Err(StoreError::Delay));
        }
        Job { slot }
    }

    /// Puts other bounds in force. Threads that are too many end when they are idle.
    pub fn set_limits(&self, limits: HelperLimits) {
        self.shared.lock().limits = limits;
    }

    /// What they are at.
    #[must_use]
    pub fn load(&self) -> HelperLoad {
        let state = self.shared.lock();
        let since = state.progressed.filter(|_| state.running > 0);
        HelperLoad {
            threads: state.threads,
            running: state.running,
            queued: state.queue.len(),
            stuck: since.map_or(Duration::ZERO, |since| since.elapsed()),
        }
    }
}

impl Shared {
    fn enter(self: &Arc<Self>, work: Work) -> std::result::Result<(), ()> {
        let mut state = self.lock();
        // Those that are idle may have been called for what is queued already.
        if state.queue.len() >= state.idle && state.threads < state.limits.threads.max(1) {
            self.spawn(&mut state);
        }
        if state.threads == 0 || state.queue.len() >= state.limits.queue.max(1) {
            return Err(());
        }
        state.queue.push_back(work);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    fn spawn(self: &Arc<Self>, state: &mut State) {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name(self.name.clone());
        if thread.spawn(move || shared.serve()).is_ok() {
            state.threads += 1;
        }
    }

    fn serve(self: &Arc<Self>) {
        unmask();
        let mut state = self.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                if state.running == 0 {
                    state.progressed = Some(Instant::now());
                }
                state.running += 1;
                drop(state);
                // A panic ends the one job, whose promise tells so.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                state = self.lock();
                state.running -= 1;
                state.progressed = Some(Instant::now());
                if sys::identity::lost() {
                    // Another serves those who wait. If there is none they are answered at least.
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
            if waited.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Files that helpers make get the permissions that clients ask for.
fn unmask() {
    if let Err(error) = sys::identity::own_umask() {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            tracing::warn!(
                %error,
                "threads may not have a file mode mask of their own; the process's is set to 0"
            );
        });
        rustix::process::umask(Mode::empty());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Slot<T> {
    Waiting(Option<Waker>),
    Done(Result<T>),
    Taken,
}

/// Fills a slot, also when the job did not come to its end.
struct Promise<T>(Arc<Mutex<Slot<T>>>);

impl<T> Promise<T> {
    fn fill(&self, value: T) {
        self.put(Ok(value));
    }

    fn put(&self, value: Result<T>) {
        let before = {
            let mut slot = lock(&self.0);
            match *slot {
                Slot::Waiting(_) => std::mem::replace(&mut *slot, Slot::Done(value)),
                Slot::Done(_) | Slot::Taken => return,
            }
        };
        if let Slot::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.put(Err(StoreError::Io));
    }
}

/// The outcome of a job, [`StoreError::Delay`] if there was no room for it.
pub struct Job<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

impl<T> Future for Job<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.slot);
        match &mut *slot {
            Slot::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            done => match std::mem::replace(done, Slot::Taken) {
                Slot::Done(value) => Poll::Ready(value),
                Slot::Waiting(_) | Slot::Taken => unreachable!("polled after its end"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
