//! How much state there is.

use std::time::Duration;

use super::home::StateHome;

/// How much state there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateFigures {
    /// Clients, confirmed or not.
    pub clients: usize,
    /// Clients with leases that have expired.
    pub silent_clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Opens in force.
    pub opens: usize,
    /// Lock owners with locks of a file, or that had some under an open that lasts.
    pub lock_states: usize,
    /// Delegations in force.
    pub delegations: usize,
    /// Revoked state of which clients have not taken note.
    pub revoked: usize,
    /// Clients that the grace period waits for.
    pub grace_clients: usize,
    /// How long the grace period lasts at most, if it is not prolonged.
    pub grace_left: Duration,
    /// Whether grants are held because clients of some gateway may reclaim.
    pub holds_grants: bool,
}

impl StateHome {
    /// How much state there is.
    #[must_use]
    pub fn figures(&self, now: Duration) -> StateFigures {
        let silent = self.clients.maybe_silent(now);
        let silent = silent.filter(|index| self.is_expired(*index, now));
        let (opens, lock_states) = (self.opens.len(), self.lock_states.len());
        let delegations = self.delegation_guards.len();
        let grace = self.grace();
        StateFigures {
            clients: self.clients.len(),
            silent_clients: silent.count(),
            sessions: self.config.sessions as usize - self.free_sessions.len(),
            opens,
            lock_states,
            delegations,
            revoked: self.states.len() - opens - lock_states - delegations,
            grace_clients: grace.map_or(0, |grace| grace.waits_for),
            grace_left: grace.map_or(Duration::ZERO, |grace| grace.ends.saturating_sub(now)),
            holds_grants: self.grace.is_elsewhere(),
        }
    }
}
