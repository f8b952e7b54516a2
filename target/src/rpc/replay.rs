//! The duplicate request cache: it keeps non-idempotent calls from being executed twice.
//!
//! A client whose connection broke sends its open calls again, with the same XIDs, on a new
//! connection from another port (RFC 5666 section 8 leaves recognising them to the responder). So a
//! call is known by the client's address without its port, its XID, program, version and procedure,
//! and a checksum of its credential and its arguments. The cache keeps the RPC reply message
//! itself, which any transport can send again.
//!
//! A repetition that arrives while the first execution still runs waits for its reply: the
//! connection of the first one is most likely dead, and no reply would cost the client its
//! retransmission timeout.
//!
//! For exports that outlive the process the cache does so too, in a journal in the state directory
//! ([`ReplayCache::open`]): the next process repeats the replies of executed calls. A call that was
//! in progress when a process ended may have been executed or not, and so may one whose task
//! panicked. Its repetition is marked as such ([`Ticket::again`]), and each procedure checks the
//! state of its objects before it does anything twice. Servers of the same files that act as one
//! read each other's journals ([`ReplayCache::open_shared`]): one that takes the place of another
//! answers repeated calls as the next process of that one would.
//!
//! The cache is shared by all reactors. Its locks are held briefly, and never for a READ or WRITE,
//! which need no such protection.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use millrace_primitives::{CoreBlock, Counter, Gauge};
use siphasher::sip::SipHasher24;

use crate::access::CallIdentity;

mod carried;
mod journal;
mod layout;
mod left;
mod map;
mod moment;
mod opened;
mod repeated_elsewhere;
mod shared;
mod shared_slots;
#[cfg(test)]
mod tests;
mod writer;

pub use journal::FILE as JOURNAL_FILE;
pub use layout::{Fault, REPLY_MAX};
pub use left::Left;
pub use moment::Moment;
pub use opened::OpenedCache;
pub use shared::{SharedJournals, TakenCalls};
pub use shared_slots::WrittenSlots;
pub use writer::{JournalPlace, Writer};

use carried::CarriedCalls;

/// Parts of the cache with a lock of their own.
const SHARDS: usize = 16;

/// How much of the arguments the checksum covers. The longest arguments that can be executed are
/// those of a SYMLINK: a handle, a name and a text of 4096 bytes. Longer ones are always refused.
/// The data of a WRITE are never covered, as its replies are not kept.
const CHECKED_BYTES: usize = 16 << 10;

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

/// The properties that identify a call.
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
    /// Of checksums in keys, which have to be the same for the next process.
    checksums: SipHasher24,
    /// The remaining calls that were begun and abandoned.
    open: OpenCalls,
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

/// Counters of the cache, and its size.
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
    entries: HashMap<CallKey, ReplayEntry>,
    /// Finished entries, oldest first.
    order: VecDeque<(CallKey, Instant)>,
    bytes: usize,
}

/// How many calls were forgotten.
#[derive(Clone, Copy, Debug, Default)]
struct Forgotten {
    all: u64,
    /// Of these, calls that an earlier process had begun.
    begun: u64,
}

#[derive(Debug)]
enum ReplayEntry {
    Running(RunningCall),
    Done(Arc<[u8]>),
    /// The execution of the call was begun and abandoned: an earlier process ended, or the task
    /// panicked.
    Begun(Begun),
}

/// A call that is being executed.
#[derive(Debug, Default)]
struct RunningCall {
    /// Its repetitions that wait.
    waiters: Vec<Waker>,
    /// Whether another call has used the names of a call that was begun before.
    contested: bool,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    again: InterruptedCall,
    /// Whether another call has used the names that it changes.
    contested: bool,
}

/// A call that an earlier process began to execute, or a task of this one that panicked. It may have
/// been executed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptedCall {
    /// When it was first begun.
    pub began: Moment,
    /// When this process began to serve, or the task ended.
    pub restarted: Moment,
    /// Whether no other call of this server has used the names that it changes since it began. If
    /// so, their state was changed by this call or from outside of this server.
    pub alone: bool,
    /// Whether other servers may have used them since `restarted`, if objects have changed since
    /// then. Until then, they count like this server.
    pub is_shared: bool,
}

/// Calls that were begun and abandoned, until their repetitions have been executed.
#[derive(Debug, Default)]
struct OpenCalls {
    /// The number of calls. While it is zero, the names are not looked up.
    count: AtomicUsize,
    /// By the names that they change.
    names: Mutex<HashMap<u64, Vec<CallKey>>>,
    /// The records of earlier processes about them, and since when they are here.
    carried: Mutex<Vec<(Instant, CarriedCalls)>>,
}

impl ReplayCache {
    /// An empty cache.
    #[must_use]
    pub fn new(limits: ReplayLimits) -> Self {
        let hasher = RandomState::new();
        let key = [hasher.hash_one(0), hasher.hash_one(1)];
        Self::with(limits, SipHasher24::new_with_keys(key[0], key[1]))
    }

    fn with(limits: ReplayLimits, checksums: SipHasher24) -> Self {
        Self {
            inner: Arc::new(Inner {
                limits,
                hasher: RandomState::new(),
                checksums,
                open: OpenCalls::default(),
                shards: Default::default(),
                counters: Default::default(),
            }),
        }
    }

    /// The hash that identifies a name in a directory in the journal.
    #[must_use]
    pub fn target(&self, directory: &[u8], name: &[u8]) -> u64 {
        journal::target(&self.inner.checksums, directory, name)
    }

    /// Reports that a call is about to use these names. From then on, the state of the names no
    /// longer shows whether an interrupted call of an earlier process was executed.
    pub fn contest(&self, key: &CallKey, targets: [u64; 2]) {
        if self.inner.open.count.load(Relaxed) > 0 {
            self.inner.contest(key, targets);
        }
    }

    /// The key of a call; `arguments` are the bytes behind its RPC header, and the data from
    /// chunks. The key covers all of a credential that decides the permissions of the call, but not
    /// its stamp and machine name: a client may choose new ones when it sends the call again. A
    /// principal may repeat a call under a new context, with another service.
    #[must_use]
    pub fn key(
        &self,
        address: IpAddr,
        xid: u32,
        program: (u32, u32, u32),
        identity: &CallIdentity<'_>,
        arguments: [&[u8]; 2],
    ) -> CallKey {
        let mut checksum = self.inner.checksums;
        // Each part begins with its length, so that no bytes pass for those of another part.
        match identity.caller {
            _ if !identity.principal.is_empty() => {
                checksum.write_u32(u32::MAX);
                checksum.write_usize(identity.principal.len());
                checksum.write(identity.principal);
            }
            Some(caller) => {
                checksum.write_u32(1 + caller.groups.len() as u32);
                checksum.write_u32(caller.uid);
                checksum.write_u32(caller.gid);
                for group in &caller.groups {
                    checksum.write_u32(*group);
                }
            }
            None => checksum.write_u32(0),
        }
        for part in arguments {
            checksum.write_usize(part.len());
            checksum.write(&part[..part.len().min(CHECKED_BYTES)]);
        }
        CallKey {
            address,
            xid,
            program,
            length: arguments.iter().map(|part| part.len()).sum(),
            checksum: checksum.finish(),
        }
    }

    /// Looks a call up, and makes it known if it is new. Waits while the same call is being
    /// executed elsewhere.
    pub async fn enter(&self, key: CallKey, now: Instant) -> Entered {
        poll_fn(|context| {
            let (mut shard, counters) = self.inner.shard(&key);
            let expired = shard.expire(now, self.inner.limits.age);
            if expired.all > 0 {
                counters.evicted_age.add(expired.all);
                self.inner.open.less(expired.begun);
                shard.tell(counters);
            }
            match shard.entries.get_mut(&key) {
                Some(ReplayEntry::Done(reply)) => {
                    counters.replayed.increment();
                    Poll::Ready(Entered::Replay(reply.clone()))
                }
                Some(ReplayEntry::Running(RunningCall { waiters, .. })) => {
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
                Some(&mut ReplayEntry::Begun(begun)) => {
                    let running = RunningCall {
                        contested: begun.contested,
                        ..RunningCall::default()
                    };
                    shard.entries.insert(key, ReplayEntry::Running(running));
                    shard.order.retain(|(other, _)| *other != key);
                    let inner = self.inner.clone();
                    Poll::Ready(Entered::Execute(Ticket {
                        inner,
                        key: Some(key),
                        begun: Some(begun),
                        started: None,
                    }))
                }
                None => {
                    let running = ReplayEntry::Running(RunningCall::default());
                    shard.entries.insert(key, running);
                    counters.new.increment();
                    shard.tell(counters);
                    let inner = self.inner.clone();
                    Poll::Ready(Entered::Execute(Ticket {
                        inner,
                        key: Some(key),
                        begun: None,
                        started: None,
                    }))
                }
            }
        })
        .await
    }

    /// Its counters and size, without a lock.
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

/// The right to execute a call. Dropped without [`Ticket::finish`], the call was not executed, and
/// a repetition may be; after [`Ticket::begin`] it is unknown whether it was.
#[derive(Debug)]
pub struct Ticket {
    inner: Arc<Inner>,
    key: Option<CallKey>,
    begun: Option<Begun>,
    /// When its execution began, if it has.
    started: Option<Moment>,
}

impl Ticket {
    /// The known facts about the call if its execution was begun before and abandoned.
    #[must_use]
    pub fn again(&self) -> Option<InterruptedCall> {
        self.begun.map(|begun| InterruptedCall {
            alone: !begun.contested,
            ..begun.again
        })
    }

    /// The call's key; `None` when it is done.
    #[must_use]
    pub fn key(&self) -> Option<&CallKey> {
        self.key.as_ref()
    }

    /// The call is about to be executed. Returns when it was first begun.
    pub fn begin(&mut self) -> Moment {
        let first = self.begun.map(|begun| begun.again.began);
        *self.started.insert(first.unwrap_or_else(Moment::now))
    }

    /// The call was not executed, although it was begun.
    pub fn void(mut self) {
        self.started = None;
    }

    /// Remembers the reply of the executed call.
    pub fn finish(mut self, reply: &[u8], now: Instant) {
        let Some(key) = self.key.take() else { return };
        if self.begun.is_some() {
            self.inner.open.less(1);
            self.inner.open.settle(&key);
        }
        let (mut shard, counters) = self.inner.shard(&key);
        let done = shard.finish(key, reply.into(), now);
        let forgotten = shard.trim(self.inner.limits);
        counters.evicted_full.add(forgotten.all);
        self.inner.open.less(forgotten.begun);
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
            let is_contested = match &running {
                Some(ReplayEntry::Running(running)) => running.contested,
                _ => true,
            };
            // As little is known of it as before, but for what others did meanwhile.
            let before = self.begun.map(|begun| Begun {
                contested: is_contested,
                ..begun
            });
            // What others did was not recorded.
            let abandoned = self.started.map(|began| Begun {
                again: InterruptedCall {
                    began,
                    restarted: Moment::now(),
                    alone: false,
                    is_shared: false,
                },
                contested: true,
            });
            if let Some(begun) = before.or(abandoned) {
                if before.is_none() {
                    self.inner.open.count.fetch_add(1, Relaxed);
                }
                shard.order.push_back((key, Instant::now()));
                shard.entries.insert(key, ReplayEntry::Begun(begun));
            }
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

    #[cold]
    fn contest(&self, key: &CallKey, targets: [u64; 2]) {
        let names = lock(&self.open.names);
        let named = targets.iter().filter_map(|target| names.get(target));
        for other in named.flatten().filter(|other| *other != key) {
            self.contest_call(other);
        }
    }

    /// Another call has used the names of this one.
    fn contest_call(&self, call: &CallKey) {
        match self.shard(call).0.entries.get_mut(call) {
            Some(ReplayEntry::Begun(begun)) => begun.contested = true,
            Some(ReplayEntry::Running(running)) => running.contested = true,
            Some(ReplayEntry::Done(_)) | None => {}
        }
    }
}

impl OpenCalls {
    /// So many have been repeated, or forgotten.
    fn less(&self, number: u64) {
        self.count.fetch_sub(number as usize, Relaxed);
    }

    /// The outcome of a call is known and recorded elsewhere.
    fn settle(&self, key: &CallKey) {
        for (_, carried) in &mut *lock(&self.carried) {
            carried.settle(key);
        }
    }
}

impl Shard {
    /// Remembers a reply. Returns the previous entry of the call.
    fn finish(&mut self, key: CallKey, reply: Arc<[u8]>, now: Instant) -> Option<ReplayEntry> {
        self.bytes += reply.len();
        self.order.push_back((key, now));
        self.entries.insert(key, ReplayEntry::Done(reply))
    }

    /// Makes room. Says how much was forgotten.
    fn trim(&mut self, limits: ReplayLimits) -> Forgotten {
        let mut forgotten = Forgotten::default();
        while self.order.len() > (limits.entries / SHARDS).max(1)
            || (self.bytes > limits.bytes / SHARDS && self.order.len() > 1)
        {
            self.forget_oldest(&mut forgotten);
        }
        forgotten
    }

    /// Removes expired entries. Returns how much was removed.
    fn expire(&mut self, now: Instant, age: Duration) -> Forgotten {
        let mut forgotten = Forgotten::default();
        while let Some((_, done)) = self.order.front()
            && now.saturating_duration_since(*done) > age
        {
            self.forget_oldest(&mut forgotten);
        }
        forgotten
    }

    /// Publishes its size to other threads.
    fn tell(&self, counters: &ReplayCounters) {
        counters.entries.set(self.entries.len() as u64);
        counters.bytes.set(self.bytes as u64);
    }

    fn forget_oldest(&mut self, forgotten: &mut Forgotten) {
        forgotten.all += 1;
        let oldest = self.order.pop_front();
        match oldest.and_then(|(key, _)| self.entries.remove(&key)) {
            Some(ReplayEntry::Done(reply)) => self.bytes -= reply.len(),
            Some(ReplayEntry::Begun(_)) => forgotten.begun += 1,
            Some(ReplayEntry::Running(_)) | None => {}
        }
    }
}

/// Every change under a lock is complete before anything can panic, so a poisoned lock is sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(entry: Option<ReplayEntry>) {
    if let Some(ReplayEntry::Running(running)) = entry {
        running.waiters.into_iter().for_each(Waker::wake);
    }
}
