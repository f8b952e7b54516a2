//! Delegations are given back when memory is short (RFC 8881 section 20.6).

use std::collections::HashMap;
use std::time::Duration;

use super::callbacks::CallbackSubject;
use super::clients::ClientId;
use super::home::StateHome;

/// State is short when less than this part of it is free.
const SHORT_PART: usize = 8;
/// Delegations recalled one by one in each second, once clients have not followed.
const RECALLED_AT_ONCE: usize = 16;

/// A request to all clients to return delegations.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReliefRequest {
    began: Duration,
    /// Delegations that were wanted to remain.
    wanted: usize,
}

impl StateHome {
    fn is_short_of_states(&self) -> bool {
        let most = self.config.states;
        most - self.states.len().min(most) < most / SHORT_PART
    }

    /// Asks clients to return half of their delegations if memory is short, and recalls the oldest
    /// ones if they have not done so within a lease. To be called about once a second.
    pub fn relieve(&mut self, now: Duration) {
        let is_short = self.slot_shares.is_short() || self.is_short_of_states();
        if !is_short || self.delegated.is_empty() {
            self.relief = None;
            return;
        }
        let lease = self.config.lease;
        match self.relief {
            None => self.ask_for_relief(now),
            Some(asked) if now < asked.began + lease => {}
            Some(asked) if self.delegated.len() <= asked.wanted => self.ask_for_relief(now),
            Some(_) => {
                let oldest = self.delegated.values().copied();
                let is_held = |state: &u32| {
                    let delegation = self.states.get(*state).and_then(|one| one.delegation());
                    delegation.is_some_and(|one| one.recall.is_none())
                };
                let oldest: Vec<u32> = oldest.filter(is_held).take(RECALLED_AT_ONCE).collect();
                for state in oldest {
                    self.recall(state, false, now);
                }
            }
        }
    }

    fn ask_for_relief(&mut self, now: Duration) {
        let mut held: HashMap<ClientId, u32> = HashMap::new();
        for state in self.delegated.values() {
            if let Some(record) = self.states.get(*state) {
                *held.entry(record.client).or_default() += 1;
            }
        }
        self.relief = Some(ReliefRequest {
            began: now,
            wanted: self.delegated.len() / 2,
        });
        let deadline = now + self.config.lease;
        for (client, count) in held {
            let subject = CallbackSubject::RecallAny { keep: count / 2 };
            self.call_client(client, subject, (now, deadline));
        }
    }
}
