//! What becomes of requests for locks, and whether it may.

use std::collections::VecDeque;

use super::client::{PendingLock, current, own_file};
use super::gateway::GatewayRun;
use super::judge::{BelievedLock, LockParty};
use super::world::GatewayWorld;
use crate::state::{ByteRange, FileKey, LockMode, StateError, Stateid};

impl GatewayWorld {
    /// Hands answers of a home to clients.
    pub fn answer(&mut self, at: GatewayRun) {
        let mut answers = VecDeque::new();
        if let Some(home) = self.home_at(at) {
            answers.extend(std::iter::from_fn(|| home.take_host_answer()));
        }
        for (index, answer) in answers {
            let pending = self.clients[index].pending.take();
            if let Some(pending) = pending.filter(|pending| pending.at == at) {
                self.learn(index, pending, &answer.into_value());
            }
        }
    }

    /// A client learns what became of its request.
    pub fn learn(
        &mut self,
        index: usize,
        asked: PendingLock,
        outcome: &Result<Stateid, StateError>,
    ) {
        let PendingLock {
            at,
            mount,
            file,
            range,
            mode,
            reclaims,
        } = asked;
        match outcome {
            Ok(stateid) => self.granted(index, &asked, *stateid),
            Err(StateError::NoGrace | StateError::ReclaimConflict) if reclaims.is_some() => {
                self.figures.lost += 1;
                if *outcome == Err(StateError::ReclaimConflict) {
                    self.figures.conflicts += 1;
                    self.judge_reclaim(
                        LockParty {
                            client: index,
                            mount,
                        },
                        &asked,
                    );
                }
                if let Some(open) = self.clients[index].open_of(mount, &file) {
                    open.locks
                        .retain(|lock| (lock.range, lock.mode) != (range, mode));
                }
            }
            Err(StateError::BadSession) => self.leave(index, at),
            Err(StateError::BadStateid | StateError::OldStateid) => {
                let client = &mut self.clients[index];
                self.figures.revoked +=
                    client.forget(|open| open.at == at && open.mount == mount && open.file == file);
            }
            Err(StateError::Denied(_)) => self.figures.denied += 1,
            Err(_) => {}
        }
    }

    fn granted(&mut self, index: usize, asked: &PendingLock, stateid: Stateid) {
        let PendingLock {
            at,
            mount,
            file,
            range,
            mode,
            reclaims,
        } = *asked;
        let party = LockParty {
            client: index,
            mount,
        };
        let session = self.gateways[at.gateway].session;
        if session.is_some_and(|session| self.files.has_session(session)) {
            self.judge(party, asked);
        }
        let grant = match reclaims {
            Some(grant) => grant,
            None => self.log.note(party, &file, &range, mode),
        };
        match reclaims {
            Some(_) => self.figures.reclaims += 1,
            None => self.figures.grants += 1,
        }
        if self.is_quiet && file == own_file(index) {
            let client = &mut self.clients[index];
            self.served += usize::from(!std::mem::replace(&mut client.is_served, true));
        }
        if let Some(open) = self.clients[index].open_of(mount, &file) {
            open.lock = Some(current(stateid));
            open.locks.retain(|lock| lock.range != range);
            open.locks.push(BelievedLock {
                range,
                mode,
                grant,
                is_here: true,
            });
        }
    }

    /// Whether a grant that a client can use is one that must never be.
    fn judge(&mut self, party: LockParty, asked: &PendingLock) {
        let PendingLock {
            file, range, mode, ..
        } = *asked;
        for other in self.log.others(party, &file, &range, mode).into_keys() {
            if let Some(lock) = self.rightly_has(other, &file, &range, mode) {
                self.violation = Some(format!(
                    "{party:?} gets what {other:?} has: {asked:?}, {lock:?}"
                ));
            }
        }
        self.judge_reclaim(party, asked);
    }

    /// Whether a party may reclaim what others were granted in between. It gets that, or it is
    /// refused as they still have it; in order, it would have been told that it may not reclaim.
    fn judge_reclaim(&mut self, party: LockParty, asked: &PendingLock) {
        let PendingLock {
            file,
            range,
            mode,
            reclaims,
            ..
        } = *asked;
        for (other, last) in self.log.others(party, &file, &range, mode) {
            if reclaims.is_some_and(|grant| last > grant) {
                self.violation = Some(format!(
                    "{party:?} reclaims what {other:?} was granted in between: {asked:?}"
                ));
            }
        }
    }

    /// A lock that a party believes that it has, and can use, which excludes another one.
    fn rightly_has(
        &self,
        party: LockParty,
        file: &FileKey,
        range: &ByteRange,
        mode: LockMode,
    ) -> Option<BelievedLock> {
        let client = &self.clients[party.client];
        let mut opens = client.opens.iter();
        let open = opens.find(|open| open.mount == party.mount && open.file == *file)?;
        let excludes = |lock: &&BelievedLock| {
            lock.is_here && lock.range.overlaps(range) && lock.mode.excludes(mode)
        };
        let lock = open.locks.iter().find(excludes)?;
        let gateway = &self.gateways[open.at.gateway];
        let home = gateway
            .home
            .as_ref()
            .filter(|_| gateway.run == open.at.run)?;
        let session = gateway
            .session
            .filter(|session| self.files.has_session(*session));
        let link = client.links.iter().find(|link| link.at == open.at)?;
        let is_in_force = home.test_stateids(link.known.id, &[open.lock?])[0].is_ok();
        (session.is_some() && is_in_force).then_some(*lock)
    }
}
