//! Starting reactors, and handles for other threads.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use crossbeam_channel::{Sender, TrySendError, bounded};

use crate::activity::Activity;
use crate::alarm::Alarm;
use crate::core::{self, Context, PollMode, Polling, Worker};
use crate::counters::CoreCounters;

/// Capacity of a mailbox. A full mailbox is an expected state, not an error.
const MAILBOX: usize = 1024;

/// The configuration of a reactor.
#[derive(Clone, Debug)]
pub struct ReactorConfig {
    /// The core to pin to.
    pub core: Option<usize>,
    /// The thread's name (the kernel shows 15 bytes of it).
    pub name: String,
    /// The polling mode.
    pub poll: PollMode,
}

/// Why a reactor did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The core does not exist, or this process may not use it.
    #[error("core {core} cannot be used; this process may use cores {allowed:?}")]
    Core {
        /// The requested core.
        core: usize,
        /// The permitted ones.
        allowed: Vec<usize>,
    },
    /// A thread or eventfd cannot be created.
    #[error("cannot start a reactor: {0}")]
    System(#[from] io::Error),
    /// The worker could not be created.
    #[error("{0}")]
    Build(Box<dyn Error + Send + Sync>),
    /// Creating the worker panicked; the panic was printed.
    #[error("building the worker panicked")]
    Panicked,
}

/// Why a message was not sent; it is returned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError<M> {
    /// The mailbox is full.
    #[error("the reactor's mailbox is full")]
    Full(M),
    /// The reactor has stopped.
    #[error("the reactor has stopped")]
    Stopped(M),
}

/// A handle to a reactor, for any thread. The reactor stops when its worker requests it, not when
/// handles are dropped.
pub struct ReactorHandle<M> {
    mailbox: Sender<M>,
    context: Context,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl<M> ReactorHandle<M> {
    /// Sends a message and wakes the reactor if it sleeps. Never blocks.
    ///
    /// # Errors
    /// Returns the message if the mailbox is full or the reactor has stopped.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.mailbox
            .try_send(message)
            .map_err(|error| match error {
                TrySendError::Full(message) => SendError::Full(message),
                TrySendError::Disconnected(message) => SendError::Stopped(message),
            })?;
        self.context.alarm.ring();
        Ok(())
    }

    /// The reactor's counters.
    pub fn counters(&self) -> Arc<CoreCounters> {
        Arc::clone(&self.context.counters)
    }

    /// Messages that wait in its mailbox.
    pub fn messages_waiting(&self) -> usize {
        self.mailbox.len()
    }

    /// Time since it last ended a turn; zero while it sleeps without work or has stopped.
    pub fn last_turn_age(&self) -> Duration {
        if self.context.activity.at_rest() {
            return Duration::ZERO;
        }
        self.context.counters.last_loop_age(Instant::now())
    }

    /// The reactor's name.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// The core that the reactor is pinned to.
    pub fn core(&self) -> Option<usize> {
        self.context.core
    }

    /// The current activity of the reactor.
    pub fn activity(&self) -> &Activity {
        &self.context.activity
    }

    /// The alarm of the reactor.
    pub fn alarm(&self) -> &Alarm {
        &self.context.alarm
    }

    /// Waits until the reactor has stopped. Only the first call on any clone waits.
    ///
    /// # Errors
    /// The payload of the panic that ended it.
    pub fn join(&self) -> thread::Result<()> {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        thread.map_or(Ok(()), JoinHandle::join)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl<M> Clone for ReactorHandle<M> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox.clone(),
            context: self.context.clone(),
            thread: Arc::clone(&self.thread),
        }
    }
}

/// Starts a reactor: pins its thread, creates its worker there, and returns when the loop runs.
///
/// # Errors
/// [`SpawnError`]; no thread is left then.
pub fn spawn<W, F>(config: ReactorConfig, build: F) -> Result<ReactorHandle<W::Message>, SpawnError>
where
    W: Worker,
    F: FnOnce(&Context) -> Result<W, Box<dyn Error + Send + Sync>> + Send + 'static,
{
    let ReactorConfig { core, name, poll } = config;
    if let Some(core) = core {
        check_core(core)?;
    }
    let context = Context {
        name: name.as_str().into(),
        core,
        alarm: Alarm::new()?,
        counters: Arc::default(),
        activity: Activity::new(W::ACTIVITIES),
        polling: Polling::new(poll),
    };
    let (mailbox, messages) = bounded(MAILBOX);
    let (report, outcome) = bounded(1);
    let inside = context.clone();
    let thread = thread::Builder::new().name(name).spawn(move || {
        let built = pin(core).and_then(|()| build(&inside).map_err(SpawnError::Build));
        match built {
            Ok(worker) => {
                let _ = report.send(Ok(()));
                drop(report);
                core::run(worker, &inside, &messages);
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        }
    })?;
    match outcome.recv() {
        Ok(Ok(())) => {
            let thread = Arc::new(Mutex::new(Some(thread)));
            Ok(ReactorHandle {
                mailbox,
                context,
                thread,
            })
        }
        failed => {
            let _ = thread.join();
            Err(failed.map_or(SpawnError::Panicked, |outcome| {
                outcome.err().unwrap_or(SpawnError::Panicked)
            }))
        }
    }
}

/// The cores that this thread may use, by number. To be called before pinning: a pinned thread may
/// use its own core only.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    cores.into_iter().map(|core| core.id).collect()
}

/// The library that pins threads aborts on numbers beyond its table, so they are checked first.
fn check_core(core: usize) -> Result<(), SpawnError> {
    let allowed = allowed_cores();
    if allowed.contains(&core) {
        Ok(())
    } else {
        Err(SpawnError::Core { core, allowed })
    }
}

fn pin(core: Option<usize>) -> Result<(), SpawnError> {
    match core {
        Some(id) if !core_affinity::set_for_current(CoreId { id }) => {
            Err(SpawnError::System(io::Error::last_os_error()))
        }
        _ => Ok(()),
    }
}
