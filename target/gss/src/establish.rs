//! The establishment of contexts: a bounded queue to helper threads, and a thread that keeps the
//! deadlines of those who wait.

mod answer;
mod helper;
mod keeper;
mod partial;
mod pending;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::service::ServiceCore;
use crate::{ContextHandle, ContextRef, FailureReason, status};
use answer::{Answer, Waiting};
use helper::{Creation, Helper, Job};
use keeper::{Keeper, KeeperMessage};
use partial::PartialContexts;
use pending::PendingLimits;

/// How long a client waits for a helper. Linux's gssd waits 5 seconds.
const DEADLINE: Duration = Duration::from_secs(4);

/// How long the end of the service waits for its threads; name services may hang for longer.
const END: Duration = Duration::from_secs(2);

/// The result of a token, as the reply to INIT or `CONTINUE_INIT` carries it.
pub struct Establishment {
    /// The context's handle; none if the major status is an error.
    pub handle: Option<ContextHandle>,
    /// Major status, see [`crate::status`].
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
    /// Size of the sequence window.
    pub window: u32,
    /// For the client; may be empty.
    pub token: Vec<u8>,
    /// The completed context, which makes the reply's verifier.
    pub context: Option<ContextRef>,
}

impl Establishment {
    /// RFC 2203 5.2.3.1: a failure has neither handle nor token.
    const fn failed(major: u32, minor: u32) -> Self {
        Self {
            handle: None,
            major,
            minor,
            window: 0,
            token: Vec::new(),
            context: None,
        }
    }
}

/// The way to the helper threads. They end when the last clone is dropped.
#[derive(Clone)]
pub struct Establisher {
    core: Arc<ServiceCore>,
    jobs: Sender<Job>,
    keeper: Sender<KeeperMessage>,
    pending: Arc<PendingLimits>,
    partials: Arc<PartialContexts>,
    /// Dropped last: the threads end once the channels above are closed.
    _threads: Arc<RunningThreads>,
}

/// The threads. Its drop waits until they have ended: a process that exits while one of them calls
/// the Kerberos library aborts, since the library has released its locks by then.
struct RunningThreads {
    /// Closed once all threads have dropped their ends.
    ended: Receiver<Infallible>,
}

impl Drop for RunningThreads {
    fn drop(&mut self) {
        let _ = self.ended.recv_timeout(END);
    }
}

impl Establisher {
    /// Starts the threads.
    pub fn start(core: &Arc<ServiceCore>) -> Self {
        let settings = &core.settings;
        let pending = PendingLimits::new(settings.pending, Arc::clone(&core.counters));
        let partials = Arc::new(PartialContexts::new(settings.pending));
        // Beside the creations, one look at the keytab.
        let (jobs, queue) = bounded(settings.pending.max(1) + 1);
        let (keeper, messages) = unbounded();
        let (running, ended) = bounded(0);
        for number in 0..settings.helpers.max(1) {
            let helper = Helper::new(core, &queue, &partials);
            spawn(format!("gss-helper-{number}"), &running, || helper.run());
        }
        let thread = Keeper::new(core, messages, &jobs, &partials);
        spawn("gss-keeper".to_owned(), &running, || thread.run());
        Self {
            core: Arc::clone(core),
            jobs,
            keeper,
            pending: Arc::new(pending),
            partials,
            _threads: Arc::new(RunningThreads { ended }),
        }
    }

    /// Takes one token; see [`crate::GssService::establish`].
    pub async fn establish(
        &self,
        token: Vec<u8>,
        existing: Option<ContextHandle>,
        client: IpAddr,
    ) -> Establishment {
        let begun = Instant::now();
        let Some(permit) = self.pending.take(client) else {
            return self.refuse(FailureReason::Unavailable);
        };
        let partial = match existing {
            None => None,
            Some(handle) => match self.partials.take(&handle, begun) {
                None => return self.refuse(FailureReason::NoContext),
                known => known,
            },
        };
        let answer = Arc::new(Answer::default());
        let watched = KeeperMessage::Watch(begun + DEADLINE, Arc::downgrade(&answer));
        let job = Job::Create(Box::new(Creation {
            token,
            partial,
            client,
            begun,
            answer: Arc::clone(&answer),
            permit,
        }));
        if self.keeper.send(watched).is_err() || self.jobs.try_send(job).is_err() {
            return self.refuse(FailureReason::Unavailable);
        }
        Waiting::new(answer, Arc::clone(&self.core)).await
    }

    /// Has a helper look at the keytab and the map now.
    pub fn reload(&self) {
        // If it does not fit, one waits already or helpers are busy; the keeper tries again.
        drop(self.jobs.try_send(Job::Refresh));
    }

    fn refuse(&self, reason: FailureReason) -> Establishment {
        self.core.counters.failed(reason).increment();
        let major = match reason {
            FailureReason::NoContext => status::NO_CONTEXT,
            _ => status::UNAVAILABLE,
        };
        Establishment::failed(major, 0)
    }
}

fn spawn(name: String, running: &Sender<Infallible>, run: impl FnOnce() + Send + 'static) {
    let running = running.clone();
    let thread = thread::Builder::new().name(name).spawn(move || {
        run();
        drop(running);
    });
    // As std::thread::spawn does; this is at start only.
    drop(thread.expect("the system can start a thread"));
}
