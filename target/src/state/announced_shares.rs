//! What opens of shared files access and deny, as other gateways are told (RFC 8881 section 9.7).
//!
//! This room has no I/O: it orders announcements in [`ShareOrder`]s, which are to be carried out one
//! after the other for each file, and is told the outcomes. An announcement is first made, and then
//! compared with those of others, so that at least one of two that conflict is refused. An open is
//! granted once what it accesses and denies is announced, and what no open needs is withdrawn.

use std::collections::VecDeque;
use std::time::Duration;

use super::StateError;
use super::clients::ClientId;
use super::files::FileKey;
use super::home::{SharedDenials, StateHome};
use super::link::AnswerTicket;
use super::share::ShareMode;
use super::table::AssignedMap;

/// How long an announcement stays for an OPEN that does not come back for it.
const USE_TIME: Duration = Duration::from_secs(10);

/// Most OPENs of a file that wait for the announcement of another one.
const QUEUED_MAX: usize = 256;

/// Most announcements of a client that are not answered: its calls are answered before, if the
/// shared folder takes long.
const ASKED_MAX: usize = 1024;

/// What other gateways are to be told next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareOrder {
    /// The file.
    pub file: FileKey,
    /// What of it.
    pub action: ShareAction,
}

/// An announcement, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareAction {
    /// Announce more.
    Announce {
        /// What the [answer](StateHome::share_announced) is to be given with.
        ticket: u64,
        /// The access that is announced.
        access: ShareMode,
        /// What is denied to others.
        deny: ShareMode,
        /// Whether it conflicts with what others have announced. If not, that does not matter.
        compares: bool,
    },
    /// Withdraw all but this.
    Keep {
        /// The access that stays announced.
        access: ShareMode,
        /// What stays denied to others.
        deny: ShareMode,
    },
}

/// How an announcement has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareAnswer {
    /// It was made, and nobody has announced what conflicts.
    Free,
    /// Another gateway has.
    Conflict,
    /// The shared folder cannot be used now.
    Unavailable,
}

/// An OPEN that waits.
#[derive(Clone, Copy, Debug)]
struct WaitingOpen {
    client: ClientId,
    access: ShareMode,
    deny: ShareMode,
    reclaims: bool,
    asker: AnswerTicket,
}

/// A file of which something is announced.
#[derive(Debug, Default)]
struct AnnouncedFile {
    access: ShareMode,
    deny: ShareMode,
    /// The OPEN whose announcement is being made.
    pending: Option<(u64, WaitingOpen)>,
    /// OPENs that come after it, in their order.
    queue: VecDeque<WaitingOpen>,
    /// Announcements that no open has used yet, by the ends of their times.
    unused: VecDeque<Duration>,
}

impl AnnouncedFile {
    fn includes(&self, access: ShareMode, deny: ShareMode) -> bool {
        self.access.includes(access) && self.deny.includes(deny)
    }

    fn is_idle(&self) -> bool {
        self.pending.is_none() && self.queue.is_empty() && self.unused.is_empty()
    }
}

/// All that is announced.
#[derive(Debug, Default)]
pub(super) struct AnnouncedShares {
    serial: u64,
    files: AssignedMap<FileKey, AnnouncedFile>,
    /// Files by the tickets of their announcements.
    pending: AssignedMap<u64, FileKey>,
    /// When announcements may be withdrawn, unless opens have used them.
    unused: VecDeque<(Duration, FileKey)>,
    /// Files of which less may be needed.
    changed: Vec<FileKey>,
    orders: VecDeque<ShareOrder>,
}

impl AnnouncedShares {
    /// Whether anything of a file is announced, or about to be.
    pub fn has(&self, key: &FileKey) -> bool {
        self.files.contains_key(key)
    }

    /// Less of a file may be needed from now on.
    pub fn note_change(&mut self, key: &FileKey) {
        if self.has(key) {
            self.changed.push(*key);
        }
    }

    /// An open of a file was granted.
    pub fn note_use(&mut self, key: &FileKey) {
        if let Some(file) = self.files.get_mut(key) {
            file.unused.pop_front();
            self.changed.push(*key);
        }
    }

    fn asks_too_much(&self, client: ClientId) -> bool {
        let waiting = |file: &AnnouncedFile| {
            let pending = file.pending.iter().map(|(_, open)| open);
            let all = pending.chain(&file.queue);
            all.filter(|open| open.client == client).count()
        };
        self.pending.len() >= ASKED_MAX
            && self.files.values().map(waiting).sum::<usize>() >= ASKED_MAX
    }

    fn order(&mut self, file: FileKey, action: ShareAction) {
        self.orders.push_back(ShareOrder { file, action });
    }

    /// Begins with the announcement of the next OPEN. Returns those that need none any more.
    fn begin_next(&mut self, key: FileKey, now: Duration) -> Vec<WaitingOpen> {
        let mut done = Vec::new();
        let Some(file) = self.files.get_mut(&key) else {
            return done;
        };
        while file.pending.is_none()
            && let Some(open) = file.queue.pop_front()
        {
            if file.includes(open.access, open.deny) {
                file.unused.push_back(now + USE_TIME);
                self.unused.push_back((now + USE_TIME, key));
                done.push(open);
                continue;
            }
            self.serial += 1;
            let ticket = self.serial;
            file.pending = Some((ticket, open));
            self.pending.insert(ticket, key);
            let action = ShareAction::Announce {
                ticket,
                access: open.access.without(file.access),
                deny: open.deny.without(file.deny),
                compares: !open.reclaims,
            };
            self.orders.push_back(ShareOrder { file: key, action });
        }
        done
    }
}

impl StateHome {
    /// Whether an open of a shared file may be granted, as far as it is announced.
    pub(super) fn check_announced(
        &self,
        key: &FileKey,
        (access, deny): (ShareMode, ShareMode),
        reclaims: bool,
    ) -> Result<(), StateError> {
        match self.config.shared_denials {
            SharedDenials::Unannounced => Ok(()),
            SharedDenials::Refused if deny.is_none() => Ok(()),
            SharedDenials::Refused if reclaims => Err(StateError::ReclaimBad),
            SharedDenials::Refused => Err(StateError::ShareDenied),
            SharedDenials::Announced => {
                let file = self.announced_shares.files.get(key);
                let is_announced = file.is_some_and(|file| file.includes(access, deny));
                is_announced.then_some(()).ok_or(StateError::Unannounced)
            }
        }
    }

    /// Announces what an OPEN of a shared file accesses and denies, unless that is announced already.
    /// Then the file may be [opened](Self::open_under). Without an answer, the asker gets a
    /// `Result<(), StateError>` later.
    ///
    /// # Errors
    /// [`StateError::ShareDenied`], and [`StateError::Delay`] if the shared folder cannot be used or
    /// too many others wait.
    pub fn announce_share(
        &mut self,
        client: ClientId,
        key: FileKey,
        (access, deny): (ShareMode, ShareMode),
        reclaims: bool,
        asker: AnswerTicket,
        now: Duration,
    ) -> Option<Result<(), StateError>> {
        let shares = &mut self.announced_shares;
        let too_much = shares.asks_too_much(client);
        let file = shares.files.entry(key).or_default();
        let is_next = file.pending.is_none() && file.queue.is_empty();
        if is_next && file.includes(access, deny) {
            file.unused.push_back(now + USE_TIME);
            shares.unused.push_back((now + USE_TIME, key));
            return Some(Ok(()));
        }
        if too_much || file.queue.len() >= QUEUED_MAX {
            shares.changed.push(key);
            return Some(Err(StateError::Delay));
        }
        file.queue.push_back(WaitingOpen {
            client,
            access,
            deny,
            reclaims,
            asker,
        });
        shares.begin_next(key, now);
        None
    }

    /// Takes the answer to an announcement.
    pub fn share_announced(&mut self, ticket: u64, answer: ShareAnswer, now: Duration) {
        let shares = &mut self.announced_shares;
        let Some(key) = shares.pending.remove(&ticket) else {
            return;
        };
        let Some(file) = shares.files.get_mut(&key) else {
            return;
        };
        let Some((_, open)) = file.pending.take() else {
            return;
        };
        let outcome = match answer {
            ShareAnswer::Free => {
                file.access = file.access.union(open.access);
                file.deny = file.deny.union(open.deny);
                file.unused.push_back(now + USE_TIME);
                shares.unused.push_back((now + USE_TIME, key));
                Ok(())
            }
            ShareAnswer::Conflict => Err(StateError::ShareDenied),
            ShareAnswer::Unavailable => Err(StateError::Delay),
        };
        if outcome.is_err() {
            let (access, deny) = (file.access, file.deny);
            shares.order(key, ShareAction::Keep { access, deny });
        }
        let done = shares.begin_next(key, now);
        shares.changed.push(key);
        self.host_locks.answer(open.asker, outcome);
        for open in done {
            self.host_locks.answer(open.asker, Ok::<(), StateError>(()));
        }
    }

    /// An OPEN that was announced is refused all the same: its announcement is not needed any more.
    pub fn forgo_announcement(&mut self, key: &FileKey) {
        self.announced_shares.note_use(key);
    }

    /// Withdraws announcements that no open has come back for. To be called from time to time.
    pub fn end_announcements(&mut self, now: Duration) {
        let shares = &mut self.announced_shares;
        while let Some((_, key)) = shares.unused.pop_front_if(|(end, _)| *end <= now) {
            if let Some(file) = shares.files.get_mut(&key)
                && file.unused.pop_front_if(|end| *end <= now).is_some()
            {
                shares.changed.push(key);
            }
        }
    }

    /// Whether other gateways are to be told something.
    #[must_use]
    pub fn has_share_orders(&self) -> bool {
        let shares = &self.announced_shares;
        !shares.orders.is_empty() || !shares.changed.is_empty()
    }

    /// Whether anything is announced, or about to be.
    #[cfg(test)]
    pub(super) fn has_announcements(&self) -> bool {
        !self.announced_shares.files.is_empty()
    }

    /// What other gateways are to be told next.
    pub fn take_share_order(&mut self) -> Option<ShareOrder> {
        while let Some(key) = self.announced_shares.changed.pop() {
            self.withdraw_share(key);
        }
        self.announced_shares.orders.pop_front()
    }

    /// Withdraws what no open of a file needs.
    fn withdraw_share(&mut self, key: FileKey) {
        let known = self.files.find(&key).and_then(|file| self.files.get(file));
        let shares = known.map(|file| file.shares).unwrap_or_default();
        let (access, deny) = (shares.access(), shares.deny());
        let all = &mut self.announced_shares;
        let Some(file) = all.files.get_mut(&key).filter(|file| file.is_idle()) else {
            return;
        };
        let is_less = (file.access, file.deny) != (access, deny);
        (file.access, file.deny) = (access, deny);
        if access.is_none() && deny.is_none() {
            all.files.remove(&key);
        }
        if is_less {
            all.order(key, ShareAction::Keep { access, deny });
        }
    }
}
