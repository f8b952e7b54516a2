//! Contexts that wait for another token of their clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{ContextHandle, PartialContext};

/// How long a context waits for a token.
const LIFETIME: Duration = Duration::from_secs(30);

/// The contexts by handle: as many as creations may wait, and a quarter of them for clients of one
/// address.
pub struct PartialContexts {
    most: usize,
    contexts: Mutex<HashMap<ContextHandle, WaitingContext>>,
}

struct WaitingContext {
    context: Box<dyn PartialContext>,
    client: IpAddr,
    until: Instant,
}

impl PartialContexts {
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            contexts: Mutex::default(),
        }
    }

    /// Keeps a context; `None` if there are too many.
    pub fn put(
        &self,
        context: Box<dyn PartialContext>,
        client: IpAddr,
        now: Instant,
    ) -> Option<ContextHandle> {
        let mut contexts = self.contexts();
        contexts.retain(|_, waiting| now < waiting.until);
        let own = contexts.values().filter(|waiting| waiting.client == client);
        if contexts.len() >= self.most || own.count() >= self.most.div_ceil(4) {
            return None;
        }
        let handle = ContextHandle::outside_the_table();
        let until = now + LIFETIME;
        let waiting = WaitingContext {
            context,
            client,
            until,
        };
        contexts.insert(handle, waiting);
        Some(handle)
    }

    /// Takes a context to go on with it.
    pub fn take(&self, handle: &ContextHandle, now: Instant) -> Option<Box<dyn PartialContext>> {
        let waiting = self.contexts().remove(handle)?;
        (now < waiting.until).then_some(waiting.context)
    }

    /// Ends those that have waited for too long.
    pub fn sweep(&self, now: Instant) {
        self.contexts().retain(|_, waiting| now < waiting.until);
    }

    fn contexts(&self) -> MutexGuard<'_, HashMap<ContextHandle, WaitingContext>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
