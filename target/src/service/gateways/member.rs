//! A gateway that serves: it follows the records of the others.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use millrace_admin::control::ControlError;

use super::folder::GatewayFolder;
use super::replies;
use super::start::JoiningGateway;
use crate::log_limit::LogLimit;
use crate::replay::SharedJournals;
use crate::service::hardening::{ThreadKind, confine_thread};
use crate::service::state_reports::StateAsker;
use crate::state::{GatewayRecord, GatewayRecords, StateHome};

/// How often the records of the others are read.
const POLL: Duration = Duration::from_millis(500);

/// How long a stop waits until no other gateway grants anything.
const STOP_WAIT: Duration = Duration::from_secs(5);
const STOP_PAUSE: Duration = Duration::from_millis(50);

/// The status of the process when another gateway has taken the place of this one.
const REPLACED_STATUS: i32 = 75;

/// This server as one of several gateways. Clones share it.
#[derive(Clone)]
pub struct GatewayMember(Arc<MemberParts>);

struct MemberParts {
    folder: GatewayFolder,
    asker: StateAsker,
    /// What it shares of its replies, if it does.
    replies: Option<SharedJournals>,
    /// Held during each step, so that they come one after the other.
    step: Mutex<()>,
    /// The thread ends with it.
    ends: Mutex<Option<Sender<()>>>,
}

/// A step failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayError {
    /// The shared folder.
    #[error("{0}")]
    Folder(#[from] io::Error),
    /// The reactor that keeps the state.
    #[error("{0}")]
    State(#[from] ControlError),
}

impl GatewayMember {
    /// Follows the others from now on, on a thread of its own.
    ///
    /// # Errors
    /// The system starts none.
    pub fn follow(
        joined: &JoiningGateway,
        asker: StateAsker,
        replies: Option<SharedJournals>,
    ) -> io::Result<Self> {
        let (ends, ended) = crossbeam_channel::bounded(1);
        let member = Self(Arc::new(MemberParts {
            folder: joined.folder.clone(),
            asker,
            replies,
            step: Mutex::default(),
            ends: Mutex::new(Some(ends)),
        }));
        let follower = member.clone();
        let thread = thread::Builder::new().name("gateways".to_owned());
        thread.spawn(move || {
            confine_thread(ThreadKind::StoreHelper);
            follower.run(&ended);
        })?;
        Ok(member)
    }

    fn run(&self, ended: &Receiver<()>) {
        let mut warnings = LogLimit::default();
        loop {
            let failed = self.follow_once().err();
            if let Some(error) = failed
                && warnings.is_due(Instant::now())
            {
                tracing::warn!(
                    %error,
                    "the records of gateways cannot be used: opens and locks are as they were"
                );
            }
            if ended.recv_timeout(POLL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    pub(super) fn folder(&self) -> &GatewayFolder {
        &self.0.folder
    }

    /// The replies that gateways share, if they do.
    pub fn replies(&self) -> Option<&SharedJournals> {
        self.0.replies.as_ref()
    }

    /// Keeps other steps waiting.
    pub(super) fn begin_step(&self) -> MutexGuard<'_, ()> {
        self.0.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut StateHome, Duration) -> T + Send + 'static,
    ) -> Result<T, ControlError> {
        self.0.asker.ask(question)
    }

    /// The records of all gateways.
    ///
    /// # Errors
    /// Those of the folder.
    pub(super) fn records(&self) -> io::Result<GatewayRecords> {
        self.folder().read()
    }

    /// Does what the records of the others ask for.
    fn follow_once(&self) -> Result<(), GatewayError> {
        let _step = self.begin_step();
        let (folder, name) = (self.folder(), self.folder().name());
        let records = self.records()?;
        let own = records.0.get(name).copied();
        let Some(own) = own.filter(|own| !own.is_replaced) else {
            end_replaced(name);
        };
        // It has to be durable who has not reclaimed, before others may grant what those had.
        let has_ended =
            |home: &mut StateHome, _| home.grace().is_none() && home.are_records_durable();
        if own.recovers && self.ask(has_ended)? {
            // Before others are granted what these clients had.
            folder.forget_taken()?;
            folder.change(|records| records.end_recovery(name))?;
        }
        let records = self.records()?;
        if records.is_recovering() {
            self.stop_granting(&own)?;
        } else if own.enforces && folder.change(|records| records.resume(name))? {
            self.ask(|home, _| home.hold_grants(false))?;
            tracing::info!("opens and locks are granted");
        }
        Ok(())
    }

    /// Grants nothing from now on, and lets the others know.
    pub(super) fn stop_granting(&self, own: &GatewayRecord) -> Result<(), GatewayError> {
        // Before the record says so.
        self.ask(|home, _| home.hold_grants(true))?;
        if !own.enforces {
            let name = self.folder().name();
            tracing::info!("clients of a gateway reclaim: no other opens and locks are granted");
            self.folder().change(|records| records.enforce(name))?;
        }
        Ok(())
    }

    /// Stops in order: clients may reclaim after the next start, or where another gateway takes the
    /// place of this one. No gateway grants anything before the sessions in the cluster end.
    pub fn stop(&self) {
        let ends = self.0.ends.lock();
        drop(ends.unwrap_or_else(PoisonError::into_inner).take());
        let _step = self.begin_step();
        if let Err(error) = self.stop_in_order() {
            tracing::warn!(%error, "clients of this gateway cannot reclaim what they have");
        }
    }

    /// Records the last replies. To be called when all calls have been answered.
    pub fn end(&self) {
        if let Some(replies) = self.replies() {
            replies::flush(replies);
        }
    }

    fn stop_in_order(&self) -> Result<(), GatewayError> {
        let (folder, name) = (self.folder(), self.folder().name());
        let has_clients = self.ask(|home, _| {
            home.hold_grants(true);
            home.has_records()
        })?;
        folder.change(|records| records.stop(name, has_clients))?;
        let begun = Instant::now();
        if !has_clients {
            return Ok(());
        }
        loop {
            let records = self.records()?;
            let granting: Vec<&str> = records.granting(name).collect();
            if granting.is_empty() {
                folder.change(|records| records.prove(name))?;
                break;
            }
            if begun.elapsed() > STOP_WAIT {
                let names = granting.join(", ");
                tracing::warn!(
                    gateways = names,
                    "these may grant what clients of this one have"
                );
                break;
            }
            thread::sleep(STOP_PAUSE);
        }
        Ok(())
    }
}

/// Ends the process at once: what its clients have is another gateway's to give.
fn end_replaced(name: &str) -> ! {
    tracing::error!(
        gateway = name,
        "another gateway has taken the place of this one, which ends and can be started anew"
    );
    // The log is written by a thread of its own.
    thread::sleep(POLL);
    std::process::exit(REPLACED_STATUS);
}
