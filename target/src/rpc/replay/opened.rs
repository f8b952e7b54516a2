//! The cache as earlier processes left it.

use std::env;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siphasher::sip::SipHasher24;

use super::carried::CarriedCalls;
use super::journal::{self, Journal};
use super::left::Recorded;
use super::moment::{Moment, Timeline};
use super::writer::Writer;
use super::{Begun, CallKey, InterruptedCall, ReplayCache, ReplayEntry, ReplayLimits, lock};

/// A cache, and what its reactors write the journal with: one each, none without a journal.
#[derive(Debug)]
pub struct OpenedCache {
    /// The cache.
    pub cache: ReplayCache,
    /// For each reactor one.
    pub writers: Vec<Writer>,
}

impl OpenedCache {
    /// An empty cache without a journal.
    #[must_use]
    pub fn in_memory(limits: ReplayLimits) -> Self {
        Self {
            cache: ReplayCache::new(limits),
            writers: Vec::new(),
        }
    }
}

impl ReplayCache {
    /// The cache that the previous process left in a state directory, and the journal for the next
    /// one. If the journal is not available, the cache stays in memory, and a warning gives the
    /// reason.
    ///
    /// The caller has to ensure that no other process uses the directory.
    #[must_use]
    pub fn open(limits: ReplayLimits, state: &Path, reactors: usize) -> OpenedCache {
        let runtime = env::var_os("RUNTIME_DIRECTORY");
        let directory = journal::place(state, runtime.as_deref());
        match Journal::open(&directory, reactors, limits) {
            Ok(journal) => {
                if !journal::in_memory(&directory) {
                    tracing::info!(
                        directory = %directory.display(),
                        "the journal of replies is on a disk, which may block a reactor while it \
                         is busy; use a RUNTIME_DIRECTORY in memory"
                    );
                }
                Self::load(limits, journal, false)
            }
            Err(error) => {
                tracing::warn!(
                    directory = %directory.display(),
                    "there is no journal of replies: {error}; calls repeated after a restart are \
                     executed again"
                );
                OpenedCache::in_memory(limits)
            }
        }
    }

    pub(super) fn load(limits: ReplayLimits, journal: Journal, is_shared: bool) -> OpenedCache {
        let cache = Self::with(limits, SipHasher24::new_with_key(&journal.key));
        let (done, begun) = (journal.left.done(), journal.left.begun());
        cache.take_in(journal.left.calls, journal.timeline, is_shared);
        cache.carry(journal.carried);
        if done + begun > 0 {
            tracing::info!(
                done,
                begun,
                "executed and begun calls of the previous process are known"
            );
        }
        OpenedCache {
            cache,
            writers: journal.writers,
        }
    }

    /// Takes in calls that earlier processes have recorded, unless they are known.
    pub(super) fn take_in(&self, calls: Vec<Recorded>, timeline: Timeline, is_shared: bool) {
        let (inner, now) = (&self.inner, Instant::now());
        let restarted = Moment::now();
        for call in calls {
            let key = call.begin.key;
            // In the order of those who contest calls.
            let mut names = lock(&inner.open.names);
            let (mut shard, counters) = inner.shard(&key);
            if shard.entries.contains_key(&key) {
                continue;
            }
            match call.done {
                Some((_, reply)) => {
                    shard.finish(key, reply.into(), now);
                }
                None => {
                    let again = InterruptedCall {
                        began: Moment {
                            boot: timeline.boot(call.begin.began),
                            wall: call.begin.wall,
                        },
                        restarted,
                        alone: false,
                        is_shared,
                    };
                    let contested = call.begin.contested;
                    shard
                        .entries
                        .insert(key, ReplayEntry::Begun(Begun { again, contested }));
                    shard.order.push_back((key, now));
                    inner.open.count.fetch_add(1, Relaxed);
                    for target in call.begin.targets.into_iter().filter(|target| *target != 0) {
                        names.entry(target).or_default().push(key);
                    }
                }
            }
            let forgotten = shard.trim(inner.limits);
            counters.evicted_full.add(forgotten.all);
            inner.open.less(forgotten.begun);
            shard.tell(counters);
        }
    }

    /// The records of calls that were taken in now. Those of calls that are too old are dropped.
    pub(super) fn carry(&self, carried: Option<CarriedCalls>) {
        let (age, mut all) = (self.inner.limits.age, lock(&self.inner.open.carried));
        all.retain(|(since, _)| since.elapsed() <= age);
        all.extend(carried.map(|carried| (Instant::now(), carried)));
    }

    /// Others have used the names of these calls.
    pub(super) fn contest_calls<'a>(&self, calls: impl Iterator<Item = &'a CallKey>) {
        let _names = lock(&self.inner.open.names);
        calls.for_each(|call| self.inner.contest_call(call));
    }

    pub(super) fn limits(&self) -> ReplayLimits {
        self.inner.limits
    }
}
