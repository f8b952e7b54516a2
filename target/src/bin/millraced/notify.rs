//! Notifications of the service manager: sd_notify(3) of systemd. Without a manager nothing is
//! sent.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use millrace_admin::control::Control;
use millrace_admin::status::StalledReactor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;

/// Time of a stop beyond the time for calls in progress: closing connections, joining threads.
const AFTER_DRAIN: Duration = Duration::from_secs(10);

/// The interval of start-up notifications, and the time each of them extends: allocating hundreds
/// of gigabytes takes minutes.
const START_INTERVAL: Duration = Duration::from_secs(10);
const START_EXTENSION: Duration = Duration::from_secs(60);

/// The time that the manager has to act on a notification.
const BARRIER_TIMEOUT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// The name of listening sockets that the manager keeps.
const LISTENER: NotifyState<'static> = NotifyState::FdName("listener");

/// Lets the manager close the listening sockets that it has kept: one that is removed from now on is
/// closed.
pub fn close_kept() {
    say(&[NotifyState::FdStoreRemove, LISTENER]);
}

/// Waits until the manager has acted on all that it was told before (sd_notify_barrier(3)).
pub fn barrier() {
    if let Err(error) = pass_barrier() {
        tracing::warn!(%error, "the service manager does not answer ($NOTIFY_SOCKET)");
    }
}

/// The manager closes the file that comes with the word.
fn pass_barrier() -> io::Result<()> {
    let (closed, own) = io::pipe()?;
    sd_notify::notify_with_fds(&[NotifyState::Custom("BARRIER=1")], &[own.as_fd()])?;
    drop(own);
    let mut ends = [PollFd::new(&closed, PollFlags::IN)];
    match poll(&mut ends, Some(&BARRIER_TIMEOUT))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// The service manager that started this process, if one did.
#[derive(Clone, Default)]
pub struct Manager {
    /// The last status of a healthy service.
    status: Arc<Mutex<String>>,
}

impl Manager {
    /// The service is starting. Until the result is dropped, the manager's timeout is extended.
    pub fn starting(&self) -> io::Result<Repeating> {
        self.status("allocating memory and opening listeners", &[]);
        Repeating::spawn("starting", START_INTERVAL, || {
            say(&[NotifyState::ExtendTimeoutUsec(microseconds(
                START_EXTENSION,
            ))]);
        })
    }

    /// The service is ready for clients.
    pub fn ready(&self, status: &str) {
        self.status(status, &[NotifyState::Ready]);
    }

    /// Lets the manager keep these listening sockets for the next process, so that clients can
    /// connect meanwhile. It closes them if there will be none.
    pub fn keep_open(&self, sockets: &[OwnedFd]) {
        if sockets.is_empty() {
            return;
        }
        let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let sent = sd_notify::notify_with_fds(&[NotifyState::FdStore, LISTENER], &sockets);
        if let Err(error) = sent {
            tracing::warn!(%error, "clients cannot connect during a restart");
        }
    }

    /// Reports a reload while `reload` runs, which returns the status afterwards.
    pub fn reload(&self, reload: impl FnOnce() -> String) {
        // The manager orders events by this time, to distinguish a later reload.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => say(&[NotifyState::Reloading, now]),
            Err(_) => say(&[NotifyState::Reloading]),
        }
        self.ready(&reload());
    }

    /// The service stops, and waits for calls at most this long.
    pub fn stopping(&self, timeout: Duration) {
        let limit = microseconds(timeout + AFTER_DRAIN);
        let extend = NotifyState::ExtendTimeoutUsec(limit);
        self.status(
            "stopping: calls in progress are finished",
            &[NotifyState::Stopping, extend],
        );
    }

    /// Notifies the manager's watchdog from now on, if it has one: twice in its time, but only
    /// while all reactors make progress. It restarts a stuck service; the status reports the stuck
    /// reactor before.
    pub fn feed_watchdog(&self, control: Arc<dyn Control>) -> io::Result<Option<Repeating>> {
        let Some(limit) = sd_notify::watchdog_enabled() else {
            return Ok(None);
        };
        let manager = self.clone();
        let mut stuck = false;
        let feed = move || {
            let stalled = control.health().stalled;
            if !stalled.is_empty() {
                say(&[NotifyState::Status(&stuck_in(&stalled))]);
            } else if stuck {
                let status = manager.last_status();
                say(&[NotifyState::Status(&status), NotifyState::Watchdog]);
            } else {
                say(&[NotifyState::Watchdog]);
            }
            stuck = !stalled.is_empty();
        };
        Repeating::spawn("feeder", limit / 2, feed).map(Some)
    }

    fn status(&self, status: &str, more: &[NotifyState<'_>]) {
        // One line: text after a line break would be parsed as another message.
        let status = status.replace(['\n', '\r'], " ");
        let mut said = more.to_vec();
        said.push(NotifyState::Status(&status));
        say(&said);
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    fn last_status(&self) -> String {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.clone()
    }
}

fn stuck_in(stalled: &[StalledReactor]) -> String {
    let stalled = stalled
        .iter()
        .map(|one| format!("{} ({})", one.name, one.activity));
    let stalled: Vec<_> = stalled.collect();
    format!("stuck, watchdog not notified: {}", stalled.join(", "))
}

/// A failed notification does not stop the service.
fn say(words: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(words) {
        tracing::warn!(%error, "cannot notify the service manager ($NOTIFY_SOCKET)");
    }
}

fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Calls a function repeatedly, on a thread of its own, until this value is dropped.
pub struct Repeating {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Repeating {
    /// At once, and then at this interval.
    fn spawn(
        name: &str,
        interval: Duration,
        mut act: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let repeat = move || {
            loop {
                act();
                if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(repeat)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
