//! Slots that other servers read: a thread writes them to files that the servers share.
//!
//! Reactors hand over copies of the slots that they change, and do not wait for the file system.
//! The thread writes those that have come meanwhile, makes them durable, and only then ends the
//! waits that were begun behind them.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use millrace_reactor::Sleep;

use super::layout::{PAGE, SLOT};
use crate::log_limit::LogLimit;

/// Most slots that wait to be written. Others are left out while the file system does not answer.
const WAITING_MAX: usize = 1 << 16;

/// How long slots wait that nobody waits for.
const PAUSE: Duration = Duration::from_millis(100);

/// The way to the thread that writes slots. The thread ends when all ways to it are gone.
#[derive(Clone, Debug)]
pub(super) struct SlotThread {
    orders: Sender<SlotOrder>,
    progress: Arc<SlotProgress>,
}

#[derive(Debug, Default)]
struct SlotProgress {
    /// Whether a wait has ended before its slots were written, and none have been since.
    is_late: AtomicBool,
    /// Waits that ended so or did not begin, and slots that were not written at all.
    unshared: AtomicU64,
}

impl SlotProgress {
    fn count_unshared(&self) {
        self.unshared.fetch_add(1, Relaxed);
    }
}

/// An order to the thread.
#[derive(Debug)]
enum SlotOrder {
    Write {
        file: Arc<File>,
        offset: u64,
        slot: Box<[u8; SLOT]>,
    },
    /// All before this is waited for.
    Signal(Arc<FlushSignal>),
}

/// Whether the orders before one have been carried out, and who waits for that.
#[derive(Debug, Default)]
struct FlushSignal {
    state: Mutex<(bool, Option<Waker>)>,
    changed: Condvar,
}

impl FlushSignal {
    fn state(&self) -> MutexGuard<'_, (bool, Option<Waker>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        let mut state = self.state();
        state.0 = true;
        self.changed.notify_all();
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

impl SlotThread {
    /// Starts the thread, which calls `on_start` first.
    ///
    /// # Errors
    /// The system starts none.
    pub fn start(on_start: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (orders, received) = crossbeam_channel::unbounded();
        let progress = Arc::<SlotProgress>::default();
        let progress_there = Arc::clone(&progress);
        let thread = thread::Builder::new().name("shared-replies".to_owned());
        thread.spawn(move || {
            on_start();
            run(&received, &progress_there);
        })?;
        Ok(Self { orders, progress })
    }

    /// Changes that were executed before they were recorded, and slots that were not written.
    pub fn unshared(&self) -> u64 {
        self.progress.unshared.load(Relaxed)
    }

    /// A file that the thread writes slots to.
    pub fn file(&self, file: &Arc<File>) -> SharedFile {
        SharedFile {
            thread: self.clone(),
            file: Arc::clone(file),
        }
    }

    /// Waits until all slots are written that were handed over before. Says whether they are.
    pub fn flush(&self, within: Duration) -> bool {
        let signal = Arc::new(FlushSignal::default());
        let _ = self.orders.send(SlotOrder::Signal(Arc::clone(&signal)));
        let state = signal.state();
        let waited = signal
            .changed
            .wait_timeout_while(state, within, |state| !state.0);
        waited.unwrap_or_else(PoisonError::into_inner).0.0
    }
}

/// A file that other servers read.
#[derive(Clone, Debug)]
pub(super) struct SharedFile {
    thread: SlotThread,
    file: Arc<File>,
}

impl SharedFile {
    /// Hands a changed slot over.
    pub fn put(&self, place: u64, slot: &[u8]) {
        let Ok(slot) = <[u8; SLOT]>::try_from(slot) else {
            return;
        };
        if self.thread.orders.len() < WAITING_MAX {
            let _ = self.thread.orders.send(SlotOrder::Write {
                file: Arc::clone(&self.file),
                offset: PAGE as u64 + place * SLOT as u64,
                slot: Box::new(slot),
            });
        } else {
            self.thread.progress.count_unshared();
        }
    }

    /// What to wait for until all slots are written that this thread has handed over, but not
    /// longer than `deadline` sleeps. `None` while they are written later than that.
    pub fn written(&self, deadline: impl FnOnce() -> Sleep) -> Option<WrittenSlots> {
        let progress = &self.thread.progress;
        if progress.is_late.load(Relaxed) {
            progress.count_unshared();
            return None;
        }
        let signal = Arc::new(FlushSignal::default());
        let order = SlotOrder::Signal(Arc::clone(&signal));
        self.thread.orders.send(order).ok()?;
        Some(WrittenSlots {
            signal,
            deadline: deadline(),
            progress: Arc::clone(progress),
        })
    }
}

/// Ends when slots are written, or too late for a call to wait for.
#[derive(Debug)]
pub struct WrittenSlots {
    signal: Arc<FlushSignal>,
    deadline: Sleep,
    progress: Arc<SlotProgress>,
}

impl Future for WrittenSlots {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.signal.state();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        drop(state);
        let slept = Pin::new(&mut self.deadline).poll(context);
        if slept.is_ready() {
            self.progress.is_late.store(true, Relaxed);
            self.progress.count_unshared();
        }
        slept
    }
}

/// The thread.
fn run(orders: &Receiver<SlotOrder>, progress: &SlotProgress) {
    let mut warnings = LogLimit::default();
    while let Ok(first) = orders.recv() {
        let mut batch = vec![first];
        let due = Instant::now() + PAUSE;
        while !matches!(batch.last(), Some(SlotOrder::Signal(_)))
            && let Ok(next) = orders.recv_deadline(due)
        {
            batch.push(next);
        }
        batch.extend(orders.try_iter().take(WAITING_MAX));
        if let Err(error) = write(&batch, progress)
            && warnings.is_due(Instant::now())
        {
            tracing::warn!(
                %error,
                "gateways.shared_replies: replies cannot be recorded; calls may be executed twice if \
                 another gateway takes the place of this one"
            );
        }
        if progress.is_late.swap(false, Relaxed) && warnings.is_due(Instant::now()) {
            tracing::warn!(
                "gateways.shared_replies: the shared folder took longer than a second to record \
                 changes, which were executed meanwhile; if this gateway had ended, they might have \
                 been executed twice"
            );
        }
        for order in &batch {
            if let SlotOrder::Signal(signal) = order {
                signal.set();
            }
        }
    }
}

/// Writes slots in the order of their changes, and makes them durable.
fn write(batch: &[SlotOrder], progress: &SlotProgress) -> io::Result<()> {
    let mut files: Vec<&Arc<File>> = Vec::new();
    // The others are written even if one cannot be.
    let mut outcome = Ok(());
    for order in batch {
        if let SlotOrder::Write { file, offset, slot } = order {
            let written = file.write_all_at(&slot[..], *offset);
            if written.is_err() {
                progress.count_unshared();
            }
            outcome = outcome.and(written);
            if !files.iter().any(|known| Arc::ptr_eq(known, file)) {
                files.push(file);
            }
        }
    }
    for file in files {
        let synced = file.sync_data();
        if synced.is_err() {
            progress.count_unshared();
        }
        outcome = outcome.and(synced);
    }
    outcome
}
