//! Questions to holders of delegations for writing about size and change of their files (RFC 8881
//! section 10.4.3).

use std::collections::VecDeque;
use std::time::Duration;

use super::StateError;
use super::callbacks::{CallbackAnswer, CallbackSubject};
use super::clients::ClientId;
use super::files::FileKey;
use super::home::StateHome;
use super::link::AnswerTicket;
use super::stateid::{StateRecord, Stateid};

/// How long a holder has to answer. Then its delegation is recalled.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Most requests that wait for one answer.
const ASKERS_MAX: usize = 256;

/// What the holder of a delegation for writing says about its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderAttributes {
    /// Its number of the state of the file.
    pub change: u64,
    /// The size.
    pub size: u64,
}

/// The size of a file that its holder has changed; `None` if what the file has is valid.
pub type ChangedSize = Result<Option<u64>, StateError>;

/// A question that is not answered yet.
#[derive(Debug)]
struct HolderQuery {
    state: u32,
    stateid: Stateid,
    /// When it is given up.
    ends: Duration,
    askers: Vec<AnswerTicket>,
}

/// All questions to holders.
#[derive(Debug, Default)]
pub(super) struct HolderQueries {
    pending: Vec<HolderQuery>,
    answers: VecDeque<(AnswerTicket, ChangedSize)>,
}

impl StateHome {
    /// Asks whoever else may change a file under a delegation for its size. An answer that is not
    /// known at once comes from [`take_holder_answer`](Self::take_holder_answer). It is
    /// [`StateError::Delay`] while the delegation is recalled.
    pub fn ask_holder(
        &mut self,
        client: Option<ClientId>,
        file: &FileKey,
        asker: AnswerTicket,
        now: Duration,
    ) -> Option<ChangedSize> {
        match self.find_holder(client, file, now) {
            Ok(None) => Some(Ok(None)),
            Ok(Some(state)) => self.query_holder(state, file, asker, now).err().map(Err),
            Err(error) => Some(Err(error)),
        }
    }

    /// The delegation for writing that another client has.
    fn find_holder(
        &mut self,
        client: Option<ClientId>,
        file: &FileKey,
        now: Duration,
    ) -> Result<Option<u32>, StateError> {
        let own = client.and_then(|client| self.clients.find(client));
        let known = self.files.find(file).and_then(|file| self.files.get(file));
        let writes = |state: &u32| {
            let record = self.states.get(*state);
            record
                .and_then(StateRecord::delegation)
                .is_some_and(|one| one.writes)
        };
        let held = known.and_then(|file| file.delegations.iter().copied().find(writes));
        let Some((state, record)) = held.and_then(|state| Some((state, self.states.get(state)?)))
        else {
            return Ok(None);
        };
        let holder = record.client_index;
        if Some(holder) == own {
            return Ok(None);
        }
        if self.is_expired(holder, now) {
            self.revoke_expired(&[state], now)?;
            return Ok(None);
        }
        if record.delegation().is_some_and(|one| one.recall.is_some()) {
            return Err(StateError::Delay);
        }
        if !self.can_call(holder) {
            self.recall(state, false, now);
            return Err(StateError::Delay);
        }
        Ok(Some(state))
    }

    fn query_holder(
        &mut self,
        state: u32,
        file: &FileKey,
        asker: AnswerTicket,
        now: Duration,
    ) -> Result<(), StateError> {
        let stateid = self.states.stateid(state);
        let pending = &mut self.holder_queries.pending;
        if let Some(query) = pending.iter_mut().find(|one| one.stateid == stateid) {
            if query.askers.len() >= ASKERS_MAX {
                return Err(StateError::Delay);
            }
            query.askers.push(asker);
            return Ok(());
        }
        let record = self.states.get(state).ok_or(StateError::Delay)?;
        let (client, ends) = (record.client, now + ANSWER_TIME);
        let subject = CallbackSubject::GetAttributes {
            file: *file,
            stateid,
        };
        if !self.call_client(client, subject, (now, ends)) {
            return Err(StateError::Delay);
        }
        self.holder_queries.pending.push(HolderQuery {
            state,
            stateid,
            ends,
            askers: vec![asker],
        });
        Ok(())
    }

    /// Takes the answer of a holder.
    pub(super) fn holder_answered(
        &mut self,
        stateid: &Stateid,
        answer: CallbackAnswer,
        now: Duration,
    ) {
        let pending = &self.holder_queries.pending;
        let Some(at) = pending.iter().position(|one| one.stateid == *stateid) else {
            return;
        };
        let query = self.holder_queries.pending.remove(at);
        // Its index may be that of other state by now.
        let is_same = |_: &&StateRecord| self.states.stateid(query.state) == query.stateid;
        let record = self.states.get(query.state).filter(is_same);
        let delegation = record.and_then(StateRecord::delegation);
        let answer = match (answer, delegation) {
            (CallbackAnswer::Attributes(found), Some(delegation)) => {
                Ok((Some(found.change) != delegation.change).then_some(found.size))
            }
            // It was returned meanwhile.
            (_, None) => Ok(None),
            (_, Some(_)) => {
                self.recall(query.state, false, now);
                Err(StateError::Delay)
            }
        };
        let answers = &mut self.holder_queries.answers;
        let askers = query.askers.into_iter();
        answers.extend(askers.map(|asker| (asker, answer.clone())));
    }

    /// Gives up questions that were not answered in time.
    pub(super) fn end_holder_queries(&mut self, now: Duration) {
        let pending = self.holder_queries.pending.iter();
        let over = pending.filter(|one| now >= one.ends);
        let over: Vec<Stateid> = over.map(|one| one.stateid).collect();
        for stateid in over {
            self.holder_answered(&stateid, CallbackAnswer::Failed, now);
        }
    }

    /// When a question is given up.
    pub(super) fn next_holder_query_end(&self) -> Duration {
        let ends = self.holder_queries.pending.iter().map(|one| one.ends);
        ends.min().unwrap_or(Duration::MAX)
    }

    /// The next answer, for who has asked.
    pub fn take_holder_answer(&mut self) -> Option<(AnswerTicket, ChangedSize)> {
        self.holder_queries.answers.pop_front()
    }

    /// The change number that the holder of a delegation for writing begins with.
    pub fn note_delegated_change(&mut self, client: ClientId, stateid: &Stateid, change: u64) {
        let Ok(state) = self.find_state(client, None, stateid) else {
            return;
        };
        let record = self.states.get_mut(state);
        if let Some(delegation) = record.and_then(StateRecord::delegation_mut) {
            delegation.change = Some(change);
        }
    }
}
