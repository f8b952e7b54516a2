//! The duplicate request cache: a call that must not be executed twice is not.
//!
//! A client whose connection broke sends its open calls again, with the same XIDs, on a new
//! connection from another port (RFC 5666 section 8 leaves recognising them to the responder). So
//! a call is known by the client's address without its port, its XID, program, version and
//! procedure, and a checksum of its arguments. What is kept is the RPC reply message itself, which
//! any transport can send again.
//!
//! A repetition that arrives while the first execution still runs waits for its reply: the
//! connection that the first one came by is most likely dead, and silence would cost the client
//! its retransmission timeout.
//!
//! The cache is shared by all reactors. Its locks are held for a few lines only and never on
//! the way of a READ or WRITE, which need no such protection.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use millrace_admin::metrics::{CoreBlock, Counter, Gauge};

/// Parts of the cache with a lock of their own.
const SHARDS: usize = 16;

/// How much of the arguments is summed up.
const CHECKED_BYTES: usize = 256;

/// Most repetitions of one call that wait for its first execution.
const WAITERS_MAX: usize = 8;

/// Bounds of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    /// Most calls remembered.
    pub entries: usize,
    /// Most bytes of their replies.
    pub bytes: usize,
    /// How long a call is remembered. A client that restarts may begin with the same XIDs.
    pub age: Duration,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self {
            entries: 16_384,
            bytes: 8 << 20,
            age: Duration::from_secs(120),
        }
    }
}

/// What tells one call from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    address: IpAddr,
    xid: u32,
    program: (u32, u32, u32),
    length: usize,
    checksum: u64,
}

/// What to do with a call.
#[derive(Debug)]
pub enum Entered {
    /// Execute it, then [`Ticket::finish`].
    Execute(Ticket),
    /// It was executed; this is its reply.
    Replay(Arc<[u8]>),
    /// Too many repetitions wait already: drop this one.
    Crowded,
}

/// The cache. Clones share it.
#[derive(Clone, Debug)]
pub struct ReplayCache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limits: ReplayLimits,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    counters: [CoreBlock<ReplayCounters>; SHARDS],
}

/// What one part of the cache has done. Written under its lock only, read without.
#[derive(Debug, Default)]
struct ReplayCounters {
    new: Counter,
    replayed: Counter,
    dropped: Counter,
    evicted_full: Counter,
    evicted_age: Counter,
    entries: Gauge,
    bytes: Gauge,
}

/// What the cache has done, and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayTotals {
    /// Calls that were not known, and could be executed.
    pub new: u64,
    /// Calls answered with a remembered reply.
    pub replayed: u64,
    /// Calls dropped because too many of their repetitions waited.
    pub dropped: u64,
    /// Replies forgotten to make room.
    pub evicted_full: u64,
    /// Replies forgotten for their age.
    pub evicted_age: u64,
    /// Calls known, executed or being executed.
    pub entries: u64,
    /// Bytes of their replies.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<CallKey, Entry>,
    /// Finished entries, oldest first.
    order: VecDeque<(CallKey, Instant)>,
    bytes: usize,
}

#[derive(Debug)]
enum Entry {
    Running(Vec<Waker>),
    Done(Arc<[u8]>),
}

impl ReplayCache {
    /// An empty cache.
    #[must_use]
    pub fn new(limits: ReplayLimits) -> Self {
        let shards = Default::default();
        Self {
            inner: Arc::new(Inner {
                limits,
                hasher: RandomState::new(),
                shards,
                counters: Default::default(),
            }),
        }
    }

    /// The key of a call; `arguments` is what follows its RPC header.
    #[must_use]
    pub fn key(
        &self,
        address: IpAddr,
        xid: u32,
        program: (u32, u32, u32),
        arguments: &[u8],
    ) -> CallKey {
        let start = &arguments[..arguments.len().min(CHECKED_BYTES)];
        let checksum = self.inner.hasher.hash_one(start);
        CallKey {
            address,
            xid,
            program,
            length: arguments.len(),
            checksum,
        }
    }

    /// Looks a call up, and makes it known if it is new. Waits while the same call is being
    /// executed elsewhere.
    pub async fn enter(&self, key: CallKey, now: Instant) -> Entered {
        poll_fn(|context| {
            let (mut shard, counters) = self.inner.shard(&key);
            let expired = shard.expire(now, self.inner.limits.age);
            if expired > 0 {
                counters.evicted_age.add(expired);
                shard.tell(counters);
            }
            match shard.entries.get_mut(&key) {
                Some(Entry::Done(reply)) => {
                    counters.replayed.increment();
                    Poll::Ready(Entered::Replay(reply.clone()))
                }
                Some(Entry::Running(waiters)) => {
                    if !waiters
                        .iter()
                        .any(|waiter| waiter.will_wake(context.waker()))
                    {
                        if waiters.len() == WAITERS_MAX {
                            counters.dropped.increment();
                            return Poll::Ready(Entered::Crowded);
                        }
                        waiters.push(context.waker().clone());
                    }
                    Poll::Pending
                }
                None => {
                    shard.entries.insert(key, Entry::Running(Vec::new()));
                    counters.new.increment();
                    shard.tell(counters);
                    let inner = self.inner.clone();
                    Poll::Ready(Entered::Execute(Ticket {
                        inner,
                        key: Some(key),
                    }))
                }
            }
        })
        .await
    }

    /// What it has done and holds, without a lock.
    #[must_use]
    pub fn totals(&self) -> ReplayTotals {
        let mut totals = ReplayTotals::default();
        for counters in &self.inner.counters {
            totals.new += counters.new.get();
            totals.replayed += counters.replayed.get();
            totals.dropped += counters.dropped.get();
            totals.evicted_full += counters.evicted_full.get();
            totals.evicted_age += counters.evicted_age.get();
            totals.entries += counters.entries.get();
            totals.bytes += counters.bytes.get();
        }
        totals
    }

    /// Calls remembered, and bytes of their replies.
    #[must_use]
    pub fn usage(&self) -> (usize, usize) {
        self.inner
            .shards
            .iter()
            .fold((0, 0), |(entries, bytes), shard| {
                let shard = lock(shard);
                (entries + shard.entries.len(), bytes + shard.bytes)
            })
    }
}

/// The right to execute a call. Dropped without [`Ticket::finish`], the call was not executed and
/// a repetition may be.
#[derive(Debug)]
pub struct Ticket {
    inner: Arc<Inner>,
    key: Option<CallKey>,
}

impl Ticket {
    /// Remembers the reply of the executed call.
    pub fn finish(mut self, reply: &[u8], now: Instant) {
        let Some(key) = self.key.take() else { return };
        let limits = self.inner.limits;
        let (mut shard, counters) = self.inner.shard(&key);
        let done = shard.entries.insert(key, Entry::Done(reply.into()));
        shard.order.push_back((key, now));
        shard.bytes += reply.len();
        while shard.order.len() > (limits.entries / SHARDS).max(1)
            || (shard.bytes > limits.bytes / SHARDS && shard.order.len() > 1)
        {
            shard.forget_oldest();
            counters.evicted_full.increment();
        }
        shard.tell(counters);
        drop(shard);
        wake(done);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let (mut shard, counters) = self.inner.shard(&key);
            let running = shard.entries.remove(&key);
            shard.tell(counters);
            drop(shard);
            wake(running);
        }
    }
}

impl Inner {
    fn shard(&self, key: &CallKey) -> (MutexGuard<'_, Shard>, &ReplayCounters) {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        (lock(&self.shards[index]), &self.counters[index])
    }
}

impl Shard {
    /// Says how many replies were too old.
    fn expire(&mut self, now: Instant, age: Duration) -> u64 {
        let mut expired = 0;
        while let Some((_, done)) = self.order.front()
            && now.saturating_duration_since(*done) > age
        {
            self.forget_oldest();
            expired += 1;
        }
        expired
    }

    /// Tells other threads what it holds.
    fn tell(&self, counters: &ReplayCounters) {
        counters.entries.set(self.entries.len() as u64);
        counters.bytes.set(self.bytes as u64);
    }

    fn forget_oldest(&mut self) {
        if let Some((key, _)) = self.order.pop_front()
            && let Some(Entry::Done(reply)) = self.entries.remove(&key)
        {
            self.bytes -= reply.len();
        }
    }
}

/// Every change under a lock is complete before anything can panic, so a poisoned lock is sound.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(entry: Option<Entry>) {
    if let Some(Entry::Running(waiters)) = entry {
        waiters.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    const PROGRAM: (u32, u32, u32) = (100_003, 3, 12);

    fn cache(entries: usize, bytes: usize) -> ReplayCache {
        ReplayCache::new(ReplayLimits {
            entries,
            bytes,
            age: Duration::from_secs(120),
        })
    }

    fn enter(cache: &ReplayCache, key: CallKey, now: Instant) -> Poll<Entered> {
        pin!(cache.enter(key, now)).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn execute(cache: &ReplayCache, key: CallKey, now: Instant) -> Ticket {
        match enter(cache, key, now) {
            Poll::Ready(Entered::Execute(ticket)) => ticket,
            other => panic!("expected to execute, got {other:?}"),
        }
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn rr1_hdr_25_known_by_peer_xid_program_procedure_and_checksum() {
        let (cache, now) = (cache(1000, 100_000), Instant::now());
        let key = cache.key(address(1), 7, PROGRAM, b"name");
        execute(&cache, key, now).finish(b"reply", now);
        match enter(&cache, key, now) {
            Poll::Ready(Entered::Replay(reply)) => assert_eq!(&*reply, b"reply"),
            other => panic!("expected a replay, got {other:?}"),
        }
        for other in [
            cache.key(address(2), 7, PROGRAM, b"name"),
            cache.key(address(1), 8, PROGRAM, b"name"),
            cache.key(address(1), 7, (100_003, 3, 13), b"name"),
            cache.key(address(1), 7, PROGRAM, b"other"),
        ] {
            drop(execute(&cache, other, now));
        }
    }

    #[test]
    fn rr1_hdr_25_repetition_waits_for_the_running_call() {
        let (cache, now) = (cache(1000, 100_000), Instant::now());
        let key = cache.key(address(1), 7, PROGRAM, b"name");
        let ticket = execute(&cache, key, now);
        let mut context = Context::from_waker(Waker::noop());
        let mut repetition = pin!(cache.enter(key, now));
        assert!(repetition.as_mut().poll(&mut context).is_pending());
        ticket.finish(b"reply", now);
        match repetition.as_mut().poll(&mut context) {
            Poll::Ready(Entered::Replay(reply)) => assert_eq!(&*reply, b"reply"),
            other => panic!("expected a replay, got {other:?}"),
        }
    }

    #[test]
    fn abandoned_call_may_be_executed() {
        let (cache, now) = (cache(1000, 100_000), Instant::now());
        let key = cache.key(address(1), 7, PROGRAM, b"name");
        drop(execute(&cache, key, now));
        assert_eq!(cache.usage(), (0, 0));
        assert_eq!((cache.totals().entries, cache.totals().new), (0, 1));
        drop(execute(&cache, key, now));
    }

    #[test]
    fn bounded_in_entries_bytes_and_age() {
        let (cache, now) = (cache(32, 16 * 1000), Instant::now());
        for xid in 0..10_000 {
            let key = cache.key(address(1), xid, PROGRAM, b"");
            execute(&cache, key, now).finish(&[0; 100], now);
        }
        assert!(cache.usage().0 <= 32);
        for xid in 0..10_000 {
            let key = cache.key(address(2), xid, PROGRAM, b"");
            execute(&cache, key, now).finish(&[0; 900], now);
        }
        assert!(cache.usage().1 <= 16 * 1000);
        let key = cache.key(address(2), 9_999, PROGRAM, b"");
        assert!(matches!(
            enter(&cache, key, now),
            Poll::Ready(Entered::Replay(_))
        ));
        let totals = cache.totals();
        assert_eq!((totals.entries, totals.bytes), {
            let (entries, bytes) = cache.usage();
            (entries as u64, bytes as u64)
        });
        assert_eq!(totals.evicted_full, 20_000 - totals.entries);
        assert_eq!(
            (totals.new, totals.replayed, totals.evicted_age),
            (20_000, 1, 0)
        );
        drop(execute(&cache, key, now + Duration::from_secs(121)));
        assert!(cache.totals().evicted_age > 0);
    }
}
