//! Blocking use of a connection: one call after the other, or whole files.

mod callbacks;
mod compound;
mod copy;
mod error;
mod mount;
mod procedures;
mod security;
mod tcp;
mod transfer;

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use millrace_mempool::{Buffer, Class, Pool};
use millrace_reactor::fabric::{Event, Provider};
use millrace_wire::xdr::Encode;

use super::call::{Call, CallError, Completion, Reply, Sink, SubmitError};
use super::connection::{Connection, RequesterState};
use super::settings::Settings;

pub use callbacks::{Callbacks, RecalledDelegation};
pub use compound::{ClientSession, OpenedFile, compound_results};
pub use copy::CopyOptions;
pub use error::Error;
pub use mount::{mount, unmount};
pub use procedures::{DirectoryEntry, DirectoryPart, ReadDone};
pub(crate) use procedures::{take_plain, take_read};
pub(crate) use tcp::call_over_tcp;
pub use transfer::Transfer;

/// Most events taken at a time.
const EVENTS: usize = 256;
/// How long the end of a session is waited for.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Shortest and longest pause before connecting again.
const RECONNECT_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A connection with a provider of its own that blocks until a call has ended.
///
/// With [`Settings::keep_calls`] it connects again when the connection is lost, and the calls
/// underway are sent again.
pub struct Session {
    provider: Box<dyn Provider>,
    pool: Pool,
    connection: Connection,
    events: Vec<Event>,
    tokens: u64,
    pause: Duration,
    retry_at: Option<Instant>,
    /// When calls may be sent on a new connection.
    settled_at: Option<Instant>,
    /// Replies, errors, and calls and RDMA Reads posted when something last happened or no reply
    /// was owed, and when that was.
    progress: (u64, u64, u64),
    progress_at: Instant,
    transfer: Option<Transfer>,
    /// What answers the server's calls, if they are served.
    callbacks: Option<Callbacks>,
}

impl Session {
    /// Connects, and waits until the connection stands and its version is known, at most
    /// [`Settings::timeout`]. A connection lost on trying version two is made again with version
    /// one, if that is offered.
    ///
    /// # Errors
    /// The provider's; [`Error::Connect`] if the server refuses, does not answer, or speaks no
    /// version that is offered.
    pub fn connect(
        mut provider: Box<dyn Provider>,
        pool: &Pool,
        address: SocketAddr,
        settings: Settings,
    ) -> Result<Self, Error> {
        let now = Instant::now();
        let patience = settings.timeout;
        let connection = Connection::connect(provider.as_mut(), pool, address, settings, now)?;
        let mut session = Self {
            provider,
            pool: pool.clone(),
            connection,
            events: Vec::with_capacity(EVENTS),
            tokens: 0,
            pause: RECONNECT_PAUSE.0,
            retry_at: None,
            settled_at: None,
            progress: (0, 0, 0),
            progress_at: now,
            transfer: None,
            callbacks: None,
        };
        while now.elapsed() < patience {
            match session.connection.state() {
                RequesterState::Connecting | RequesterState::Negotiating => {
                    session.turn(&mut |_| {});
                }
                RequesterState::Down(_) if session.connection.falls_back() => {
                    let (connection, provider) = session.parts();
                    connection.reconnect(provider, Instant::now())?;
                }
                _ => break,
            }
        }
        match session.connection.state() {
            RequesterState::Ready => Ok(session),
            state => Err(Error::Connect(state.clone())),
        }
    }

    /// The connection below.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Connection and provider, for those who want to drive them on their own.
    #[must_use]
    pub fn parts(&mut self) -> (&mut Connection, &mut dyn Provider) {
        (&mut self.connection, self.provider.as_mut())
    }

    /// The memory that calls may use.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A buffer of at least so many bytes, at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        let class = Class::for_size(bytes).ok_or(Error::Memory)?;
        self.pool.try_acquire(class).ok_or(Error::Memory)
    }

    /// One pass: takes what arrived, sends what may be sent, connects again if that is wanted.
    /// Yields the processor if there was nothing to do.
    pub fn turn(&mut self, sink: Sink<'_>) {
        let now = Instant::now();
        let provider = self.provider.as_mut();
        let mut work = provider.poll(now, &mut self.events);
        for event in self.events.drain(..) {
            self.connection.handle(provider, event, now, sink);
        }
        if self.is_settled(now) {
            work += self.connection.pump(self.provider.as_mut(), sink);
        }
        work += self.provider.flush(now);
        self.connection.expire(self.provider.as_mut(), now, sink);
        self.watch(now);
        self.keep_up(now);
        if work == 0 {
            thread::yield_now();
        }
    }

    /// Whether the connection has stood for long enough to send calls.
    fn is_settled(&mut self, now: Instant) -> bool {
        if !self.connection.is_up() {
            self.settled_at = None;
            return false;
        }
        let settle = self.connection.settings.settle;
        now >= *self.settled_at.get_or_insert(now + settle)
    }

    /// Gives a connection up that owes replies and brings none.
    fn watch(&mut self, now: Instant) {
        let counters = self.connection.counters();
        let posted = counters.sent + counters.reads;
        let progress = (counters.replies, counters.errors, posted);
        let owed = self.connection.window().in_flight() > 0 || self.connection.is_fetching();
        if !owed || progress != self.progress {
            self.progress = progress;
            self.progress_at = now;
        }
        let silence = now - self.progress_at;
        let settings = &self.connection.settings;
        if settings.keep_calls
            && silence >= settings.resend_after
            && self.connection.state() == &RequesterState::Ready
        {
            self.progress_at = now;
            self.provider.abort(self.connection.queue_pair());
        }
    }

    /// Connects again when calls wait and the pause is over.
    fn keep_up(&mut self, now: Instant) {
        match self.connection.state() {
            RequesterState::Ready => {
                self.pause = RECONNECT_PAUSE.0;
                self.retry_at = None;
            }
            RequesterState::Down(_) | RequesterState::Rejected if self.connection.pending() > 0 => {
                let due = *self.retry_at.get_or_insert(now + self.pause);
                if now >= due {
                    self.pause = (self.pause * 2).min(RECONNECT_PAUSE.1);
                    self.retry_at = None;
                    // A failure is met again at the next try, until the calls run out of time.
                    let _ = self.connection.reconnect(self.provider.as_mut(), now);
                }
            }
            _ => {}
        }
    }

    /// Makes a call and waits for its end; `read` takes what is needed out of the reply.
    /// The call's token is replaced.
    ///
    /// # Errors
    /// Those of the call, and those of `read`.
    pub fn call<A: Encode, T>(
        &mut self,
        mut call: Call<'_, A>,
        read: impl FnOnce(&Reply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.tokens += 1;
        call.token = self.tokens;
        let mut read = Some(read);
        let mut outcome = None;
        loop {
            match self.connection.submit(&call, Instant::now()) {
                Ok(_) => break,
                Err(SubmitError::Full) => self.turn(&mut |_| {}),
                Err(error) => return Err(error.into()),
            }
        }
        while outcome.is_none() {
            self.check_alive()?;
            self.turn(&mut |completion: Completion<'_>| {
                if completion.token != call.token {
                    return;
                }
                outcome = Some(match (completion.result, read.take()) {
                    (Ok(reply), Some(read)) => read(&reply),
                    (Err(error), _) => Err(error.into()),
                    (Ok(_), None) => Err(CallError::BadReply.into()),
                });
            });
        }
        outcome.unwrap_or_else(|| Err(CallError::Cancelled.into()))
    }

    /// Calls on a connection that is not restored would only time out.
    fn check_alive(&self) -> Result<(), Error> {
        match self.connection.state() {
            RequesterState::NoVersion(_) => Err(Error::Connect(self.connection.state().clone())),
            RequesterState::Down(_) | RequesterState::Rejected
                if !self.connection.keeps_calls() =>
            {
                Err(Error::Connect(self.connection.state().clone()))
            }
            _ => Ok(()),
        }
    }

    /// Ends the context of its calls, closes in order and waits for the end, at most a few seconds.
    pub fn close(mut self) {
        self.end_own_context();
        let (connection, provider) = self.parts();
        connection.close(provider);
        let start = Instant::now();
        while self.connection.state() == &RequesterState::Ready && start.elapsed() < CLOSE_WAIT {
            self.turn(&mut |_| {});
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
