//! Which files may have delegations, for all reactors to read without asking the home.

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use siphasher::sip::SipHasher13;

use super::StateError;
use super::clients::ClientId;
use super::delegations::FileUse;
use super::files::FileKey;
use super::link::HomeLink;

/// Counters that files share by their hash.
const COUNTERS: usize = 1 << 12;

/// Counts of delegations. The home writes them, reactors read them: if nothing is counted for a
/// file, it has no delegation.
#[derive(Debug)]
pub struct DelegationGuards {
    all: AtomicU32,
    /// Whether opens and delegations that deny access may still be reclaimed: nobody else uses any
    /// file then.
    awaits_denials: AtomicBool,
    counters: Box<[AtomicU32]>,
}

impl Default for DelegationGuards {
    fn default() -> Self {
        Self {
            all: AtomicU32::new(0),
            awaits_denials: AtomicBool::new(false),
            counters: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl DelegationGuards {
    fn counter(&self, file: &FileKey) -> Option<&AtomicU32> {
        let mut hasher = SipHasher13::new();
        file.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % COUNTERS as u64).ok()?;
        self.counters.get(index)
    }

    /// Counts a delegation of a file, or no longer.
    pub(super) fn count(&self, file: &FileKey, is_added: bool) {
        for counter in self.counter(file).into_iter().chain([&self.all]) {
            match is_added {
                true => counter.fetch_add(1, Ordering::Release),
                false => counter.fetch_sub(1, Ordering::Release),
            };
        }
    }

    /// Sets whether opens that deny access may still be reclaimed.
    pub(super) fn await_denials(&self, awaits: bool) {
        self.awaits_denials.store(awaits, Ordering::Release);
    }

    fn awaits_denials(&self) -> bool {
        self.awaits_denials.load(Ordering::Acquire)
    }

    /// How many delegations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.load(Ordering::Acquire) as usize
    }

    /// Whether no file has a delegation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.load(Ordering::Acquire) == 0
    }

    /// Whether a file may have a delegation.
    #[must_use]
    pub fn may_have(&self, file: &FileKey) -> bool {
        let counted = |counter: &AtomicU32| counter.load(Ordering::Acquire) > 0;
        !self.is_empty() && self.counter(file).is_some_and(counted)
    }
}

/// What a reactor asks before it uses a file that others may have delegations of. Clones share
/// everything.
#[derive(Clone, Debug)]
pub struct DelegationGate {
    link: Rc<HomeLink>,
    guards: Arc<DelegationGuards>,
}

impl DelegationGate {
    /// The gate of a reactor.
    #[must_use]
    pub fn new(link: Rc<HomeLink>, guards: Arc<DelegationGuards>) -> Self {
        Self { link, guards }
    }

    /// Whether any file may be used.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.guards.is_empty() && !self.guards.awaits_denials()
    }

    /// Whether a file may have a delegation.
    #[must_use]
    pub fn may_have(&self, file: &FileKey) -> bool {
        self.guards.may_have(file)
    }

    /// Makes sure that no other client has a delegation that conflicts with the use of a file. It
    /// is ready at once unless there may be one; `client` is `None` for other protocols.
    ///
    /// # Errors
    /// [`StateError::Delay`] while one is recalled, [`StateError::Grace`] while opens that deny
    /// access may still be reclaimed.
    pub async fn check(
        &self,
        client: Option<ClientId>,
        file: &FileKey,
        file_use: FileUse,
    ) -> Result<(), StateError> {
        if !self.guards.may_have(file) && !self.guards.awaits_denials() {
            return Ok(());
        }
        let file = *file;
        let checked = self.link.ask(Some(file), move |home, now| {
            home.check_use(client, &file, file_use, now)
        });
        checked.await.unwrap_or(Err(StateError::Delay))
    }
}
