//! State that goes in steps: one client may have so much of it that all others would wait.
//!
//! Until it is gone it is in nobody's way. Whoever wants some of it gets that at once, as its client
//! counts as expired.

use std::collections::BTreeSet;
use std::time::Duration;

use super::StateError;
use super::clients::ClientId;
use super::home::StateHome;
use super::stateid::{Revocation, StateDetail};

/// Locked ranges of a file that make the release of some of them as much work as another piece of
/// state.
const RANGES_PER_PIECE: usize = 256;

/// State that goes.
#[derive(Debug)]
pub(super) enum StateSweep {
    /// A client is gone. Its index is in use until its state is gone, too.
    Departed {
        /// The client.
        index: u32,
        /// What it had. Some of it may be gone by now, and its place used by others.
        states: BTreeSet<u32>,
    },
    /// All that a client has is looked at.
    Present {
        /// The client.
        client: ClientId,
        /// Where to go on.
        next: u32,
        /// What becomes of it.
        action: SweepAction,
    },
}

/// What becomes of the state of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum SweepAction {
    /// It is revoked, unless it was granted after this.
    Revoke(Duration),
    /// Delegations with leases are recalled, at this time.
    RecallLeased(Duration),
}

impl StateHome {
    /// Begins with state that goes, at once if not much has gone in this turn.
    pub(super) fn begin_sweep(&mut self, sweep: StateSweep) {
        match self.sweep(sweep) {
            // It makes room.
            Some(left @ StateSweep::Departed { .. }) => self.sweeps.push_front(left),
            Some(left @ StateSweep::Present { .. }) => self.sweeps.push_back(left),
            None => {}
        }
    }

    /// Begins with an action on all state of a client.
    pub(super) fn sweep_client(&mut self, client: ClientId, action: SweepAction) {
        self.begin_sweep(StateSweep::Present {
            client,
            next: 0,
            action,
        });
    }

    /// The error of a request that a limit refuses: to try again, if state that counts is about to go.
    pub(super) fn no_room(&self) -> StateError {
        match self.has_sweeps() {
            true => StateError::Delay,
            false => StateError::NoSpc,
        }
    }

    /// Goes on with state that goes in steps. Returns how many pieces it has looked at, a bounded
    /// number. To be called in each turn.
    pub fn sweep_states(&mut self) -> usize {
        self.swept = 0;
        while self.may_sweep()
            && let Some(sweep) = self.sweeps.pop_front()
        {
            match self.sweep(sweep) {
                Some(left) => self.sweeps.push_front(left),
                // An end is work, too.
                None => self.swept += 1,
            }
        }
        self.swept
    }

    fn may_sweep(&self) -> bool {
        self.swept < self.config.states_per_step
    }

    /// Does what may be done in this turn. Returns what is left.
    fn sweep(&mut self, sweep: StateSweep) -> Option<StateSweep> {
        match sweep {
            StateSweep::Departed { index, states } => self.sweep_departed(index, states),
            StateSweep::Present {
                client,
                next,
                action,
            } => self.sweep_present(client, next, action),
        }
    }

    /// Whether state goes in steps.
    #[must_use]
    pub fn has_sweeps(&self) -> bool {
        !self.sweeps.is_empty()
    }

    /// Revokes all state of the clients with expired leases that have some states, as others asked
    /// for those. Linux gives up all of its locks when it sees that any state was revoked, and
    /// unlocks none of them: others would wait for the rest. What others asked for is revoked at
    /// once.
    ///
    /// # Errors
    /// [`StateError::Unrecorded`] until their records are gone.
    pub(super) fn revoke_expired(
        &mut self,
        wanted: &[u32],
        now: Duration,
    ) -> Result<(), StateError> {
        self.withdraw_records(wanted)?;
        let mut holders = BTreeSet::new();
        for &state in wanted {
            let Some(holder) = self.states.get(state).map(|record| record.client_index) else {
                continue;
            };
            if self.clients.get(holder).is_none() {
                self.remove_state(state);
                continue;
            }
            holders.insert(holder);
            self.void_state(self.basis_of(state), Revocation::LeaseExpired);
        }
        for holder in holders {
            self.tell_of_revocation(holder);
            if let Some(client) = self.clients.get_mut(holder)
                && !std::mem::replace(&mut client.is_swept, true)
            {
                let client = client.id;
                self.sweep_client(client, SweepAction::Revoke(now));
            }
        }
        Ok(())
    }

    /// Removes state of a client that is gone.
    fn sweep_departed(&mut self, index: u32, mut states: BTreeSet<u32>) -> Option<StateSweep> {
        while self.may_sweep()
            && let Some(state) = states.pop_first()
        {
            self.swept += self.sweep_cost(state);
            let record = self.states.get(state);
            if record.is_some_and(|record| record.client_index == index) {
                self.free_locks_of(state);
                self.remove_state(state);
            }
        }
        if !states.is_empty() {
            return Some(StateSweep::Departed { index, states });
        }
        self.clients.free_index(index);
        None
    }

    /// Looks at state of a client.
    fn sweep_present(
        &mut self,
        client: ClientId,
        mut next: u32,
        action: SweepAction,
    ) -> Option<StateSweep> {
        let index = self.clients.find(client)?;
        let (mut is_over, mut has_revoked) = (false, false);
        while self.may_sweep() {
            let known = self.clients.get(index)?;
            let Some(state) = known.states.range(next..).next().copied() else {
                is_over = true;
                break;
            };
            next = state + 1;
            self.swept += self.sweep_cost(state);
            let Some(record) = self.states.get(state) else {
                continue;
            };
            match action {
                SweepAction::Revoke(until) if record.since <= until => {
                    has_revoked = true;
                    self.void_state(self.basis_of(state), Revocation::LeaseExpired);
                }
                SweepAction::RecallLeased(now)
                    if record.delegation().is_some_and(|one| one.lease.is_some()) =>
                {
                    self.recall(state, false, now);
                }
                _ => {}
            }
        }
        if has_revoked {
            self.tell_of_revocation(index);
        }
        if !is_over {
            return Some(StateSweep::Present {
                client,
                next,
                action,
            });
        }
        if let SweepAction::Revoke(_) = action
            && let Some(known) = self.clients.get_mut(index)
        {
            known.is_swept = false;
        }
        None
    }

    /// The work that the end of a piece of state is.
    fn sweep_cost(&self, state: u32) -> usize {
        let Some(record) = self.states.get(state) else {
            return 1;
        };
        let file = self.files.get(record.file);
        let ranges = file.map_or(0, |file| file.ranges.len()) / RANGES_PER_PIECE;
        match &record.detail {
            StateDetail::Open(open) => 1 + open.locks.len() + ranges,
            StateDetail::Lock(_) => 1 + ranges,
            StateDetail::Delegation(_) | StateDetail::Revoked(_) => 1,
        }
    }
}
