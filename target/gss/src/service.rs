//! The service as the RPC layer and the admin plane see it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_primitives::CoreBlock;

use crate::context::ContextRef;
use crate::establish::{Establisher, Establishment};
use crate::failure_log::FailureLog;
use crate::krb5::{Protection, Side};
use crate::names::UserNames;
use crate::table::{ContextTable, HandleError, TableFull};
use crate::{
    CallCounters, ContextHandle, ContextKeys, Directory, Enctype, EndReason, GssCounters, Identity,
    Mechanism, Settings, SystemDirectory,
};

/// All contexts of the process and their establishment. Clones share everything.
#[derive(Clone)]
pub struct GssService {
    core: Arc<ServiceCore>,
    establisher: Establisher,
}

/// What helper threads share with the service.
pub struct ServiceCore {
    pub settings: Settings,
    pub mechanism: Box<dyn Mechanism>,
    pub table: ContextTable,
    pub names: UserNames,
    pub counters: Arc<GssCounters>,
    pub failures: FailureLog,
    calls: Mutex<Vec<Arc<CoreBlock<CallCounters>>>>,
}

/// A context, for operators.
#[derive(Clone, Debug)]
pub struct ContextSummary {
    /// Who made it.
    pub identity: Identity,
    /// From where.
    pub client: IpAddr,
    /// Its encryption type.
    pub enctype: Enctype,
    /// Time since it was last used.
    pub idle: Duration,
    /// Time until it expires.
    pub remaining: Duration,
}

impl GssService {
    /// Starts helper threads. The host's database of users is asked for users.
    #[must_use]
    pub fn new(settings: Settings, mechanism: impl Mechanism) -> Self {
        Self::with_directory(settings, mechanism, SystemDirectory)
    }

    /// As [`Self::new`], with another database of users.
    #[must_use]
    pub fn with_directory(
        settings: Settings,
        mechanism: impl Mechanism,
        directory: impl Directory,
    ) -> Self {
        let counters = Arc::new(GssCounters::default());
        let core = Arc::new(ServiceCore {
            table: ContextTable::new(&settings, Arc::clone(&counters)),
            names: UserNames::new(&settings, Box::new(directory), Arc::clone(&counters)),
            mechanism: Box::new(mechanism),
            settings,
            counters,
            failures: FailureLog::default(),
            calls: Mutex::default(),
        });
        let establisher = Establisher::start(&core);
        Self { core, establisher }
    }

    /// Takes one token of INIT (`existing` is none) or CONTINUE_INIT. Waits for a helper, at most 4
    /// seconds; on any executor.
    pub async fn establish(
        &self,
        token: Vec<u8>,
        existing: Option<ContextHandle>,
        client: IpAddr,
    ) -> Establishment {
        self.establisher.establish(token, existing, client).await
    }

    /// The context of a handle as the client sent it. No lock, no allocation.
    ///
    /// # Errors
    ///
    /// The handle is unknown or the context has expired.
    pub fn context(&self, handle: &[u8], now: Instant) -> Result<ContextRef, HandleError> {
        self.core.table.find(handle, now)
    }

    /// How long the context of a handle can still be used; `None` if it cannot. This is no use of
    /// it. No lock, no allocation.
    #[must_use]
    pub fn remaining(&self, handle: &[u8], now: Instant) -> Option<Duration> {
        self.core.table.remaining(handle, now)
    }

    /// Ends a context for its client. Uses of it go on with their keys. No lock.
    pub fn destroy(&self, context: &ContextRef) {
        self.core.table.end(context, EndReason::Destroyed);
    }

    /// Puts a context with these keys into the table.
    ///
    /// # Errors
    ///
    /// The table is full.
    ///
    /// # Panics
    ///
    /// If the key has not the length of its encryption type.
    pub fn insert(
        &self,
        keys: &ContextKeys,
        identity: Identity,
        lifetime: Duration,
        client: IpAddr,
    ) -> Result<ContextHandle, TableFull> {
        let protection = Protection::new(keys, Side::Acceptor).expect("a key of the right length");
        let now = Instant::now();
        let table = &self.core.table;
        let context = table.insert(protection, identity, lifetime, client, now)?;
        Ok(context.handle())
    }

    /// Counters of contexts and their creation.
    #[must_use]
    pub fn counters(&self) -> Arc<GssCounters> {
        Arc::clone(&self.core.counters)
    }

    /// Counters for the calls of one more reactor; [`Self::all_call_counters`] has them all.
    #[must_use]
    pub fn call_counters(&self) -> Arc<CoreBlock<CallCounters>> {
        let block = Arc::<CoreBlock<CallCounters>>::default();
        let calls = self.core.calls.lock();
        let mut calls = calls.unwrap_or_else(PoisonError::into_inner);
        calls.push(Arc::clone(&block));
        block
    }

    /// Counters of calls of all reactors.
    #[must_use]
    pub fn all_call_counters(&self) -> Vec<Arc<CoreBlock<CallCounters>>> {
        let calls = self.core.calls.lock();
        calls.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The contexts.
    #[must_use]
    pub fn list(&self) -> Vec<ContextSummary> {
        let now = Instant::now();
        let contexts = self.core.table.contexts();
        contexts
            .map(|context| ContextSummary {
                identity: context.identity.clone(),
                client: context.client,
                enctype: context.protection.enctype(),
                idle: context.idle(now),
                remaining: context.expires.saturating_duration_since(now),
            })
            .collect()
    }

    /// Ends the contexts of a principal, or all; returns how many. Cached users are forgotten.
    #[must_use]
    pub fn flush(&self, principal: Option<&str>) -> usize {
        self.core.names.forget(principal);
        let table = &self.core.table;
        let contexts = table.contexts().filter(|context| {
            principal.is_none_or(|principal| *context.identity.principal == *principal)
        });
        contexts
            .filter(|context| table.end(&ContextRef(Arc::clone(context)), EndReason::Flushed))
            .count()
    }

    /// Has a helper look at the keytab and the map now, instead of within 10 seconds.
    pub fn reload(&self) {
        self.establisher.reload();
    }

    /// Time since the keytab was taken up.
    #[must_use]
    pub fn keytab_age(&self) -> Duration {
        self.core.mechanism.keytab_age()
    }
}
