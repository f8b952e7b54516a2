//! Byte-range locks that the host takes as well, so that its processes and other gateways meet them.
//!
//! This room has no I/O: it orders locks of the host in [`HostLockOrder`]s, which are to be carried
//! out one after the other, and is told the outcomes. The host knows one holder for each file, which
//! has the union of all locks of NFS, for writing where anybody has one for writing. So a lock is
//! asked of the host before it is granted, and what the union loses is given back afterwards. Bytes
//! that the host is being asked about are left alone until it has answered.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::StateError;
use super::clients::ClientId;
use super::files::FileKey;
use super::home::{StateEvent, StateHome};
use super::link::{AnswerTicket, HomeAnswer};
use super::locks::{HostStep, LockHolder, LockRequest};
use super::ranges::{ByteRange, LockConflict, LockMode, UnionPart};
use super::stateid::{Revocation, Stateid};
use super::table::AssignedMap;

/// How often a range is asked for again that the host has for others.
const PAUSE_LEAST: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// Most requests for locks of a file that wait for the host's answer to another one.
const QUEUED_MAX: usize = 256;

/// Most denied requests of a client that wait for locks of the host, and most questions of it that
/// the host has not answered.
const WAITS_MAX: usize = 1024;

/// The highest byte that the host has locks for.
const HOST_LAST: u64 = i64::MAX as u64;

/// What the host is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLockOrder {
    /// The file.
    pub file: FileKey,
    /// What to do with it.
    pub action: HostLockAction,
}

/// What the host is to do with the locks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostLockAction {
    /// Lock ranges, the first ones at least, if nobody else has them. To be
    /// [answered](StateHome::host_answered).
    Acquire(u64, Vec<ByteRange>, LockMode),
    /// Find out whether somebody else has a range. To be answered.
    Test(u64, ByteRange, LockMode),
    /// Have only these locks in the ranges of the parts. None of them is new.
    Settle(Vec<UnionPart>),
    /// Have no locks.
    Close,
}

impl HostLockOrder {
    /// What the answer is to be given with, if there is to be one.
    #[must_use]
    pub fn ticket(&self) -> Option<u64> {
        match self.action {
            HostLockAction::Acquire(ticket, ..) | HostLockAction::Test(ticket, ..) => Some(ticket),
            HostLockAction::Settle(_) | HostLockAction::Close => None,
        }
    }
}

/// The host's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLockAnswer {
    /// Nobody else has the range.
    Free,
    /// Somebody else has these bytes.
    Taken(ByteRange, LockMode),
    /// It cannot say, now.
    Unavailable,
}

/// A LOCK that waits for the host.
#[derive(Clone, Debug)]
struct HostedRequest {
    client: ClientId,
    file: FileKey,
    holder: (Stateid, Option<Box<[u8]>>),
    range: ByteRange,
    mode: LockMode,
    waits: bool,
    reclaims: bool,
    asker: AnswerTicket,
    /// Whether the host had nothing of the range before.
    is_whole: bool,
}

impl HostedRequest {
    fn new(request: &LockRequest<'_>, asker: AnswerTicket) -> Self {
        Self {
            client: request.client,
            file: request.file,
            holder: match request.holder {
                LockHolder::New { open, owner } => (open, Some(owner.into())),
                LockHolder::Existing(state) => (state, None),
            },
            range: request.range,
            mode: request.mode,
            waits: request.waits,
            reclaims: request.reclaims,
            asker,
            is_whole: false,
        }
    }

    fn request(&self) -> LockRequest<'_> {
        LockRequest {
            client: self.client,
            file: self.file,
            holder: match &self.holder {
                (open, Some(owner)) => LockHolder::New { open: *open, owner },
                (state, None) => LockHolder::Existing(*state),
            },
            range: self.range,
            mode: self.mode,
            waits: self.waits,
            reclaims: self.reclaims,
        }
    }
}

/// Why the host is asked.
#[derive(Debug)]
enum HostJob {
    Lock(HostedRequest),
    Test(ClientId, FileKey, AnswerTicket),
    Wait(HostWait),
}

/// A denied request that waits for a lock of the host.
#[derive(Clone, Debug)]
struct HostWait {
    client: ClientId,
    file: FileKey,
    owner: Arc<[u8]>,
    range: ByteRange,
    mode: LockMode,
    /// When it was denied.
    since: Duration,
    next: Duration,
    pause: Duration,
}

/// A file with locks of the host.
#[derive(Debug, Default)]
struct HostedFile {
    /// Ranges that the host is asked to lock.
    pending: Vec<(u64, ByteRange, LockMode)>,
    /// Requests that overlap one of them, in their order.
    queue: VecDeque<HostedRequest>,
    /// Tests that are not answered, and denied requests that wait.
    uses: usize,
}

/// All that concerns locks of the host.
#[derive(Debug, Default)]
pub(super) struct HostLocks {
    serial: u64,
    files: AssignedMap<FileKey, HostedFile>,
    jobs: AssignedMap<u64, HostJob>,
    waits: Vec<HostWait>,
    orders: VecDeque<HostLockOrder>,
    /// Files whose locks are lost, with the change of records that has to be durable before.
    lost: VecDeque<(u64, FileKey)>,
    answers: VecDeque<(usize, HomeAnswer)>,
}

impl HostLocks {
    /// Whether the host has locks of a file, or is asked for some.
    pub fn has(&self, key: &FileKey) -> bool {
        self.files.contains_key(key)
    }

    fn order(&mut self, file: FileKey, action: HostLockAction) {
        self.orders.push_back(HostLockOrder { file, action });
    }

    fn begin(&mut self, job: HostJob) -> u64 {
        self.serial += 1;
        self.jobs.insert(self.serial, job);
        self.serial
    }

    /// Whether the host has not answered as many questions of a client as it may have: its calls are
    /// answered before, if the host takes long.
    fn asks_too_much(&self, client: ClientId) -> bool {
        let of_client = |job: &&HostJob| match job {
            HostJob::Lock(asked) => asked.client == client,
            HostJob::Test(asker, ..) => *asker == client,
            HostJob::Wait(_) => false,
        };
        self.jobs.len() >= WAITS_MAX && self.jobs.values().filter(of_client).count() >= WAITS_MAX
    }

    pub(super) fn answer<T: Send + 'static>(&mut self, asker: AnswerTicket, answer: T) {
        let late = HomeAnswer::late(asker, answer);
        self.answers.push_back((asker.reactor, late));
    }

    fn release(&mut self, file: &FileKey) {
        if let Some(file) = self.files.get_mut(file) {
            file.uses -= 1;
        }
    }
}

impl StateHome {
    /// [Locks](Self::lock) a range of a file whose locks the host takes as well. `None` if the host
    /// is asked first: the answer, a `Result<Stateid, StateError>`, then comes from
    /// [`take_host_answer`](Self::take_host_answer).
    pub fn lock_on_host(
        &mut self,
        request: &LockRequest<'_>,
        asker: AnswerTicket,
        now: Duration,
    ) -> Option<Result<Stateid, StateError>> {
        if !fits_host(&request.range) {
            return Some(Err(StateError::BadRange));
        }
        match self.lock_in_step(request, HostStep::Ask, now) {
            Ok(None) => self.ask_host_to_lock(request, asker),
            Ok(Some(state)) => Some(Ok(state)),
            Err(error) => Some(Err(error)),
        }
    }

    fn ask_host_to_lock(
        &mut self,
        request: &LockRequest<'_>,
        asker: AnswerTicket,
    ) -> Option<Result<Stateid, StateError>> {
        let (key, range, mode) = (request.file, request.range, request.mode);
        if self.host_locks.asks_too_much(request.client) {
            return Some(Err(StateError::Delay));
        }
        let mut asked = HostedRequest::new(request, asker);
        let file = self.host_locks.files.entry(key).or_default();
        let overlaps = |(_, other, other_mode): &(u64, ByteRange, LockMode)| {
            other.overlaps(&range) && mode.excludes(*other_mode)
        };
        if file.pending.iter().any(overlaps) {
            if file.queue.len() >= QUEUED_MAX {
                return Some(Err(StateError::Delay));
            }
            file.queue.push_back(asked);
            return None;
        }
        // What the host has is not made weaker before the lock is granted.
        let missing = self.missing_on_host(&key, range, mode);
        asked.is_whole = missing == [range];
        let ticket = self.host_locks.begin(HostJob::Lock(asked));
        if let Some(file) = self.host_locks.files.get_mut(&key) {
            file.pending.push((ticket, range, mode));
        }
        let action = HostLockAction::Acquire(ticket, missing, mode);
        self.host_locks.order(key, action);
        None
    }

    /// The same for [`test_lock`](Self::test_lock): the answer is a `Result<(), StateError>`.
    pub fn test_lock_on_host(
        &mut self,
        (client, owner): (ClientId, &[u8]),
        file: &FileKey,
        (range, mode): (ByteRange, LockMode),
        asker: AnswerTicket,
        now: Duration,
    ) -> Option<Result<(), StateError>> {
        if !fits_host(&range) {
            return Some(Err(StateError::BadRange));
        }
        if let Err(error) = self.test_lock(client, owner, file, range, mode, now) {
            return Some(Err(error));
        }
        if self.host_locks.asks_too_much(client) {
            return Some(Err(StateError::Delay));
        }
        self.host_locks.files.entry(*file).or_default().uses += 1;
        let ticket = self.host_locks.begin(HostJob::Test(client, *file, asker));
        let action = HostLockAction::Test(ticket, range, mode);
        self.host_locks.order(*file, action);
        None
    }

    /// Whether the host has locked a range for NFS already, at least in this mode.
    pub(super) fn host_has(&self, key: &FileKey, range: ByteRange, mode: LockMode) -> bool {
        self.host_locks.has(key) && self.missing_on_host(key, range, mode).is_empty()
    }

    /// What the host has not locked of a range, or not in this mode.
    fn missing_on_host(&self, key: &FileKey, range: ByteRange, mode: LockMode) -> Vec<ByteRange> {
        let parts = self.union_of(key, range).into_iter();
        let is_missing =
            |part: &UnionPart| part.mode != Some(LockMode::Write) && part.mode != Some(mode);
        parts.filter(is_missing).map(|part| part.range).collect()
    }

    /// The union of all locks of a file in a range.
    fn union_of(&self, key: &FileKey, range: ByteRange) -> Vec<UnionPart> {
        let file = self.files.find(key).and_then(|file| self.files.get(file));
        match file {
            Some(file) => file.ranges.union(range),
            None => vec![UnionPart { range, mode: None }],
        }
    }

    /// The locks of a file in a range as the host is to have them, if it has any of the file.
    pub(super) fn host_union(&self, key: &FileKey, range: ByteRange) -> Option<Vec<UnionPart>> {
        let file = self.host_locks.files.get(key)?;
        let mut parts = self.union_of(key, range);
        for (_, pending, _) in &file.pending {
            parts = parts
                .iter()
                .flat_map(|part| part.without(pending))
                .collect();
        }
        Some(parts)
    }

    /// Has the host follow a change of a file's locks in a range, where it had `before`.
    pub(super) fn settle_host(&mut self, key: &FileKey, range: ByteRange, before: &[UnionPart]) {
        let Some(after) = self.host_union(key, range) else {
            return;
        };
        if before != after {
            self.host_locks.order(*key, HostLockAction::Settle(after));
        }
        self.close_on_host(key);
    }

    /// Has the host forget a file of which nothing is locked or asked.
    fn close_on_host(&mut self, key: &FileKey) {
        let known = self.files.find(key).and_then(|file| self.files.get(file));
        let is_locked = known.is_some_and(|file| file.ranges.len() > 0);
        let is_idle =
            |file: &HostedFile| file.pending.is_empty() && file.queue.is_empty() && file.uses == 0;
        if !is_locked && self.host_locks.files.get(key).is_some_and(is_idle) {
            self.host_locks.files.remove(key);
            self.host_locks.order(*key, HostLockAction::Close);
        }
    }

    /// Takes the host's answer to an order.
    pub fn host_answered(&mut self, ticket: u64, answer: HostLockAnswer, now: Duration) {
        let key = match self.host_locks.jobs.remove(&ticket) {
            Some(HostJob::Lock(asked)) => {
                self.host_has_tried(ticket, &asked, answer, now);
                asked.file
            }
            Some(HostJob::Test(_, key, asker)) => {
                let answer = match answer {
                    HostLockAnswer::Free => Ok(()),
                    HostLockAnswer::Taken(range, mode) => Err(denied(range, mode)),
                    HostLockAnswer::Unavailable => Err(StateError::Delay),
                };
                self.host_locks.answer(asker, answer);
                self.host_locks.release(&key);
                key
            }
            Some(HostJob::Wait(mut wait)) => {
                let key = wait.file;
                match answer {
                    HostLockAnswer::Free => {
                        self.host_locks.release(&key);
                        self.events.push_back(StateEvent::LockAvailable {
                            client: wait.client,
                            file: key,
                            owner: wait.owner,
                        });
                    }
                    HostLockAnswer::Taken(..) | HostLockAnswer::Unavailable => {
                        wait.pause = (wait.pause * 2).min(PAUSE_MOST);
                        wait.next = now + wait.pause;
                        self.host_locks.waits.push(wait);
                    }
                }
                key
            }
            None => return,
        };
        self.close_on_host(&key);
    }

    /// The host has locked a range for a request, or not.
    fn host_has_tried(
        &mut self,
        ticket: u64,
        asked: &HostedRequest,
        answer: HostLockAnswer,
        now: Duration,
    ) {
        let request = asked.request();
        let outcome = match answer {
            HostLockAnswer::Free => match self.lock_in_step(&request, HostStep::Has, now) {
                Ok(state) => state.ok_or(StateError::Delay),
                Err(error) => Err(error),
            },
            HostLockAnswer::Unavailable => Err(StateError::Delay),
            HostLockAnswer::Taken(..) if asked.reclaims => Err(StateError::ReclaimConflict),
            HostLockAnswer::Taken(range, mode) => {
                if asked.waits {
                    self.wait_for_host(&request, now);
                }
                Err(denied(range, mode))
            }
        };
        let is_granted = outcome.is_ok();
        self.host_locks.answer(asked.asker, outcome);
        let Some(file) = self.host_locks.files.get_mut(&asked.file) else {
            return;
        };
        file.pending.retain(|(other, ..)| *other != ticket);
        let queue = std::mem::take(&mut file.queue);
        // Its bytes were left alone, and it may have been granted some for nothing.
        if !(is_granted && asked.is_whole) {
            self.settle_host(&asked.file, asked.range, &[]);
        }
        for next in queue {
            if let Some(answer) = self.lock_on_host(&next.request(), next.asker, now) {
                self.host_locks.answer(next.asker, answer);
            }
        }
    }

    fn wait_for_host(&mut self, request: &LockRequest<'_>, now: Duration) {
        let owner: Arc<[u8]> = match request.holder {
            LockHolder::New { owner, .. } => owner.into(),
            LockHolder::Existing(state) => match self.lock_owner(request.client, &state) {
                Some(owner) => owner,
                None => return,
            },
        };
        let waits = &mut self.host_locks.waits;
        let is_same = |one: &&mut HostWait| {
            one.client == request.client
                && one.file == request.file
                && *one.owner == *owner
                && (one.range, one.mode) == (request.range, request.mode)
        };
        if let Some(known) = waits.iter_mut().find(is_same) {
            known.since = now;
            return;
        }
        let own = waits.iter().filter(|one| one.client == request.client);
        if own.count() >= WAITS_MAX {
            return;
        }
        waits.push(HostWait {
            client: request.client,
            file: request.file,
            owner,
            range: request.range,
            mode: request.mode,
            since: now,
            next: now + PAUSE_LEAST,
            pause: PAUSE_LEAST,
        });
        if let Some(file) = self.host_locks.files.get_mut(&request.file) {
            file.uses += 1;
        }
    }

    /// Forgets what an owner waited for in a range that it has by now.
    pub(super) fn forget_host_wait(
        &mut self,
        client: ClientId,
        file: &FileKey,
        owner: &[u8],
        range: ByteRange,
    ) {
        let is_over = |one: &mut HostWait| {
            one.client == client
                && one.file == *file
                && *one.owner == *owner
                && one.range.overlaps(&range)
        };
        let over = self.host_locks.waits.extract_if(.., is_over).count();
        for _ in 0..over {
            self.host_locks.release(file);
        }
    }

    /// The host has lost all locks of an export, also those that clients have: their state is
    /// revoked, since others may have had these bytes by now.
    pub fn lose_host_locks(&mut self, export: u64) {
        let hosted = self.host_locks.files.keys();
        let hosted = hosted.filter(|key| key.export == export);
        let files = hosted.filter_map(|key| self.files.find(key).and_then(|at| self.files.get(at)));
        let locks = files.flat_map(|file| file.ranges.iter());
        // In order, so that the same happens in each run of a simulation.
        let states: BTreeSet<u32> = locks.map(|lock| self.basis_of(lock.state)).collect();
        let keys = self.host_locks.files.keys().copied();
        let keys: Vec<FileKey> = keys.filter(|key| key.export == export).collect();
        for (key, file) in &mut self.host_locks.files {
            file.uses += usize::from(key.export == export);
        }
        for state in states {
            self.withdraw_at_once(state);
            self.revoke_state(state, Revocation::Administrative);
        }
        let serial = self.records.newest();
        let lost = keys.into_iter().map(|key| (serial, key));
        self.host_locks.lost.extend(lost);
        self.close_lost();
    }

    /// Closes files whose locks are lost, once it is durable that their clients do not reclaim them.
    /// Those that are asked or tested are opened anew.
    fn close_lost(&mut self) {
        while let Some(&(serial, key)) = self.host_locks.lost.front() {
            if !self.records.is_durable(serial) {
                break;
            }
            self.host_locks.lost.pop_front();
            self.host_locks.release(&key);
            self.host_locks.order(key, HostLockAction::Close);
            self.close_on_host(&key);
        }
    }

    /// Asks the host again for locks that denied requests wait for. Those that were not repeated
    /// for the time of a lease are forgotten.
    pub fn ask_host_again(&mut self, now: Duration) {
        if self.next_host_question() > now {
            return;
        }
        let waits = std::mem::take(&mut self.host_locks.waits);
        for wait in waits {
            if now > wait.since + self.config.lease || self.clients.find(wait.client).is_none() {
                let file = wait.file;
                self.host_locks.release(&file);
                self.close_on_host(&file);
            } else if wait.next <= now {
                let (file, range, mode) = (wait.file, wait.range, wait.mode);
                let ticket = self.host_locks.begin(HostJob::Wait(wait));
                let action = HostLockAction::Test(ticket, range, mode);
                self.host_locks.order(file, action);
            } else {
                self.host_locks.waits.push(wait);
            }
        }
    }

    /// When the host is asked again.
    #[must_use]
    pub fn next_host_question(&self) -> Duration {
        let next = self.host_locks.waits.iter().map(|one| one.next);
        next.min().unwrap_or(Duration::MAX)
    }

    /// Whether there are orders for the host.
    #[must_use]
    pub fn has_host_orders(&self) -> bool {
        let lost = self.host_locks.lost.front();
        let is_due = lost.is_some_and(|(serial, _)| self.records.is_durable(*serial));
        is_due || !self.host_locks.orders.is_empty()
    }

    /// The next order for the host.
    pub fn take_host_order(&mut self) -> Option<HostLockOrder> {
        self.close_lost();
        self.host_locks.orders.pop_front()
    }

    /// The next answer that the host was asked for, and the reactor that waits for it.
    pub fn take_host_answer(&mut self) -> Option<(usize, HomeAnswer)> {
        self.host_locks.answers.pop_front()
    }
}

/// Whether the host can lock a range. One without end is cut.
fn fits_host(range: &ByteRange) -> bool {
    let has_end = range.length() != u64::MAX;
    range.offset() <= HOST_LAST && (!has_end || range.offset() + (range.length() - 1) <= HOST_LAST)
}

/// A lock of somebody else on the host.
fn denied(range: ByteRange, mode: LockMode) -> StateError {
    StateError::Denied(Box::new(LockConflict {
        range,
        mode,
        client: ClientId(0),
        owner: Arc::from(&b"host"[..]),
    }))
}
