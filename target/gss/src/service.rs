//! The service as the RPC layer and the admin plane see it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_primitives::CoreBlock;

use crate::{
    CallCounters, ContextHandle, ContextKeys, ContextRef, Directory, Enctype, Establishment,
    GssCounters, HandleError, Identity, Mechanism, Settings, TableFull,
};

/// All contexts of the process and their establishment. Clones share everything.
#[derive(Clone)]
pub struct GssService;

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
        todo!()
    }

    /// As [`Self::new`], with another database of users.
    #[must_use]
    pub fn with_directory(
        settings: Settings,
        mechanism: impl Mechanism,
        directory: impl Directory,
    ) -> Self {
        todo!()
    }

    /// Takes one token of INIT (`existing` is none) or CONTINUE_INIT. Waits for a helper, at most 4
    /// seconds; on any executor.
    pub async fn establish(
        &self,
        token: Vec<u8>,
        existing: Option<ContextHandle>,
        client: IpAddr,
    ) -> Establishment {
        todo!()
    }

    /// The context of a handle as the client sent it. No lock, no allocation.
    ///
    /// # Errors
    ///
    /// The handle is unknown or the context has expired.
    pub fn context(&self, handle: &[u8], now: Instant) -> Result<ContextRef, HandleError> {
        todo!()
    }

    /// Ends a context for its client. Uses of it go on with their keys.
    pub fn destroy(&self, context: &ContextRef) {
        todo!()
    }

    /// Puts a context with these keys into the table.
    ///
    /// # Errors
    ///
    /// The table is full. Keys of a wrong length find it full, too.
    pub fn insert(
        &self,
        keys: &ContextKeys,
        identity: Identity,
        lifetime: Duration,
        client: IpAddr,
    ) -> Result<ContextHandle, TableFull> {
        todo!()
    }

    /// Counters of contexts and their creation.
    #[must_use]
    pub fn counters(&self) -> Arc<GssCounters> {
        todo!()
    }

    /// Counters for the calls of one more reactor; [`Self::all_call_counters`] has them all.
    #[must_use]
    pub fn call_counters(&self) -> Arc<CoreBlock<CallCounters>> {
        todo!()
    }

    /// Counters of calls of all reactors.
    #[must_use]
    pub fn all_call_counters(&self) -> Vec<Arc<CoreBlock<CallCounters>>> {
        todo!()
    }

    /// The contexts.
    #[must_use]
    pub fn list(&self) -> Vec<ContextSummary> {
        todo!()
    }

    /// Ends the contexts of a principal, or all; returns how many. Cached users are forgotten.
    pub fn flush(&self, principal: Option<&str>) -> usize {
        todo!()
    }

    /// Looks at the keytab and the map now, instead of within 10 seconds.
    pub fn reload(&self) {
        todo!()
    }

    /// Time since the keytab was taken up.
    #[must_use]
    pub fn keytab_age(&self) -> Duration {
        todo!()
    }
}
