//! Queries to the server, on a thread of its own.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin::client::{Answer, Client, Session};
use millrace_admin::status::{Clients, Connections, Exports, Operations, ReactorList, Version};
use serde::de::DeserializeOwned;

use super::sample::Sample;
use super::state::{View, Wish};
use crate::failure::Failure;
use crate::table::plain;
use crate::wait::{Ready, state_of};

/// The result of one query; an error is one line of text.
pub type Look = Result<Sample, String>;

/// The querying thread.
pub struct Fetcher {
    wishes: Sender<Wish>,
    looks: Receiver<Look>,
}

impl Fetcher {
    /// Queries now, and then as requested.
    ///
    /// # Errors
    ///
    /// Threads or descriptors are exhausted.
    pub fn start(client: Client, wish: Wish) -> Result<Self, Failure> {
        let (wishes, wished) = mpsc::channel();
        let (sender, looks) = mpsc::channel();
        let session = Session::new(client)?;
        thread::Builder::new()
            .name("millrace-top".to_owned())
            .spawn(move || ask(session, wish, &wished, &sender))?;
        Ok(Self { wishes, looks })
    }

    /// Changes the request.
    pub fn wish(&self, wish: Wish) {
        // An ended thread is reported by `answer`.
        let _ = self.wishes.send(wish);
    }

    /// The next result, if there is one.
    ///
    /// # Errors
    ///
    /// The thread has ended.
    pub fn answer(&self) -> Result<Option<Look>, Failure> {
        match self.looks.try_recv() {
            Ok(look) => Ok(Some(look)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err(Failure::no("the thread that queries the server has ended"))
            }
        }
    }
}

fn ask(mut session: Session, mut wish: Wish, wishes: &Receiver<Wish>, looks: &Sender<Look>) {
    let start = Instant::now();
    loop {
        let next = Instant::now() + wish.interval;
        if !wish.paused && looks.send(look(&mut session, wish, start)).is_err() {
            return;
        }
        // A new request for another view is served at once.
        loop {
            match wishes.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(new) => {
                    let soon = new.view != wish.view || new.paused != wish.paused;
                    wish = new;
                    if soon {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn look(session: &mut Session, wish: Wish, start: Instant) -> Look {
    let ready = session.get("/readyz").map_err(|error| error.to_string())?;
    let version: Version = value(session, "/api/v1/version")?;
    let ready: Ready = state_of(&ready).ok_or_else(|| refused(&ready))?;
    let reactors: ReactorList = value(session, "/api/v1/reactors")?;
    let clients: Clients = value(session, "/api/v1/clients")?;
    let connections = match wish.view {
        View::Connections => {
            let list: Connections = value(session, "/api/v1/connections")?;
            Some(list.connections)
        }
        _ => None,
    };
    let exports = match wish.view {
        View::Exports => {
            let list: Exports = value(session, "/api/v1/exports")?;
            Some(list.exports)
        }
        _ => None,
    };
    // Last, and right before the time is taken: the rates at the top are computed from these.
    let operations: Operations = value(session, "/api/v1/operations")?;
    Ok(Sample {
        at: Instant::now().saturating_duration_since(start),
        program: format!("{} {}", plain(&version.name), plain(&version.version)),
        readiness: ready.readiness,
        reactors: reactors.reactors,
        clients: clients.clients,
        operations: operations.operations,
        connections,
        exports,
    })
}

fn value<T: DeserializeOwned>(session: &mut Session, path: &str) -> Result<T, String> {
    let answer = session.get(path).map_err(|error| error.to_string())?;
    if !answer.is_success() {
        return Err(refused(&answer));
    }
    let wrong = |error| format!("{path}: the answer is not understood: {error}");
    answer.value().map_err(wrong)
}

fn refused(answer: &Answer) -> String {
    let status = answer.status;
    match answer.problem() {
        Some(problem) => format!("the server answers {status}: {}", plain(&problem.detail)),
        None => format!("the server answers {status}"),
    }
}

/// The shortest interval between two queries.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest interval between two queries.
pub const INTERVAL_MAX: Duration = Duration::from_secs(60);
