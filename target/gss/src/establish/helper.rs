//! The threads that ask the mechanism and the name services.

use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Receiver;

use super::Establishment;
use super::answer::Answer;
use super::partial::PartialContexts;
use super::pending::PendingPermit;
use crate::krb5::{Protection, Side};
use crate::service::ServiceCore;
use crate::{Accepted, EndReason, Established, Failure, FailureReason, PartialContext, status};

/// Most bytes of a principal's name. Contexts and the names that are remembered keep it.
const PRINCIPAL_MAX: usize = 512;

/// Work of a helper.
pub enum Job {
    /// A token.
    Create(Box<Creation>),
    /// A look at the keytab and the map.
    Refresh,
}

/// A token, and who waits for the result.
pub struct Creation {
    pub token: Vec<u8>,
    pub partial: Option<Box<dyn PartialContext>>,
    pub client: IpAddr,
    pub begun: Instant,
    pub answer: Arc<Answer>,
    pub _permit: PendingPermit,
}

pub struct Helper {
    core: Arc<ServiceCore>,
    queue: Receiver<Job>,
    partials: Arc<PartialContexts>,
}

impl Helper {
    pub fn new(
        core: &Arc<ServiceCore>,
        queue: &Receiver<Job>,
        partials: &Arc<PartialContexts>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            queue: queue.clone(),
            partials: Arc::clone(partials),
        }
    }

    /// Until the service is dropped.
    pub fn run(self) {
        while let Ok(job) = self.queue.recv() {
            match job {
                Job::Create(creation) => self.create(*creation),
                Job::Refresh => {
                    let refresh = AssertUnwindSafe(|| self.refresh());
                    drop(panic::catch_unwind(refresh));
                }
            }
        }
    }

    fn refresh(&self) {
        let failures = &self.core.counters.keytab_failures;
        match self.core.mechanism.refresh() {
            Ok(()) => failures.reset(),
            Err(error) => {
                if failures.get() == 0 {
                    tracing::warn!("the keytab loaded before stays in use: {error}");
                }
                failures.increment();
            }
        }
        self.core.names.reload();
    }

    fn create(&self, mut creation: Creation) {
        // The deadline passed while it was queued.
        if creation.answer.is_over() {
            return;
        }
        let client = creation.client;
        let partial = creation.partial.take();
        let token = std::mem::take(&mut creation.token);
        let run = AssertUnwindSafe(|| self.establish(&token, partial, client));
        let outcome = panic::catch_unwind(run)
            .unwrap_or_else(|_| Err(other("the creation of the context panicked".to_owned())));
        let establishment = outcome.unwrap_or_else(|failure| {
            self.core.counters.failed(failure.reason).increment();
            self.core.failures.tell(client, &failure);
            Establishment::failed(failure.major, failure.minor)
        });
        let took = creation.begun.elapsed();
        self.core.counters.observe_creation(took);
        let unwanted = creation.answer.give(establishment);
        if let Some(context) = unwanted.and_then(|unwanted| unwanted.context) {
            self.core.table.end(&context, EndReason::Abandoned);
        }
    }

    fn establish(
        &self,
        token: &[u8],
        partial: Option<Box<dyn PartialContext>>,
        client: IpAddr,
    ) -> Result<Establishment, Failure> {
        let accepted = match partial {
            Some(partial) => partial.proceed(token),
            None => self.core.mechanism.accept(token),
        };
        match accepted {
            Accepted::Failed(failure) => Err(failure),
            Accepted::Complete(established) => self.complete(*established, client),
            Accepted::Continue { context, token } => {
                let now = Instant::now();
                let handle = self.partials.put(context, client, now).ok_or_else(full)?;
                Ok(Establishment {
                    handle: Some(handle),
                    major: status::CONTINUE_NEEDED,
                    minor: 0,
                    window: self.core.settings.window,
                    token,
                    context: None,
                })
            }
        }
    }

    fn complete(&self, established: Established, client: IpAddr) -> Result<Establishment, Failure> {
        let enctype = established.keys.enctype;
        if !self.core.settings.enctypes.contains(&enctype) {
            return Err(Failure::enctype(enctype.number()));
        }
        let protection = Protection::new(&established.keys, Side::Acceptor);
        let protection = protection.ok_or_else(|| Failure::enctype(enctype.number()))?;
        if established.principal.len() > PRINCIPAL_MAX {
            let text = "the client's principal has a name of more than 512 bytes";
            return Err(other(text.to_owned()));
        }
        let realms = self.core.mechanism.realms();
        let identity = self.core.names.identify(&established.principal, &realms);
        let identity = identity
            .map_err(|error| other(format!("the host's users cannot be looked up: {error}")))?;
        let (table, now) = (&self.core.table, Instant::now());
        let context = table.insert(protection, identity, established.lifetime, client, now);
        let context = context.map_err(|_| full())?;
        self.core.counters.created.increment();
        Ok(Establishment {
            handle: Some(context.handle()),
            major: status::COMPLETE,
            minor: 0,
            window: self.core.settings.window,
            token: established.token,
            context: Some(context),
        })
    }
}

fn full() -> Failure {
    Failure {
        major: status::UNAVAILABLE,
        minor: 0,
        reason: FailureReason::Unavailable,
        text: "all contexts are in use; raise gss.contexts".to_owned(),
    }
}

const fn other(text: String) -> Failure {
    Failure {
        major: status::FAILURE,
        minor: 0,
        reason: FailureReason::Other,
        text,
    }
}
