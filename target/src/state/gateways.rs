//! The rules by which servers of the same files ("gateways") act as one: while clients of any of
//! them may reclaim, none grants anything else (RFC 8881 section 8.4.2.1).
//!
//! Each gateway has a record that all of them can read. Records change one after the other
//! ([`GatewayRecords`] under a lock), and a gateway changes its own, unless another one takes its
//! place. Why that is enough:
//!
//! - What a gateway has granted is locked in the file system that they share, in a session of its
//!   own. It is free for others when the session ends: at a stop, by the next start of the same
//!   gateway, or by one that takes its place. Before that, a record says that clients may reclaim
//!   ([`GatewayRecord::recovers`]), and no other gateway [grants](GatewayRecords::granting) any more.
//! - A gateway stops granting before its record says so, and grants again after it.
//! - If the session has ended otherwise, others may have been granted what clients would reclaim.
//!   Then nothing is reclaimed: the record has to say that this is excluded
//!   ([`GatewayRecord::is_proved`]), or the session has to be there still.

use std::collections::BTreeMap;

/// What is known of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayRecord {
    /// It grants no opens and locks but by reclaims.
    pub enforces: bool,
    /// Its clients may reclaim, now or after its next start.
    pub recovers: bool,
    /// What they may reclaim has not been granted to others since.
    pub is_proved: bool,
    /// Another gateway has taken its place: it must not go on.
    pub is_replaced: bool,
}

/// The records of all gateways, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayRecords(pub BTreeMap<String, GatewayRecord>);

impl GatewayRecords {
    /// Whether clients of any gateway may reclaim.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.0.values().any(|record| record.recovers)
    }

    /// The gateways but this one that may grant something at any time.
    pub fn granting<'a>(&'a self, but: &'a str) -> impl Iterator<Item = &'a str> {
        let others = self.0.iter().filter(move |(name, _)| *name != but);
        let granting = others.filter(|(_, record)| !record.enforces);
        granting.map(|(name, _)| &**name)
    }

    /// The record of a gateway, made if there is none.
    fn of(&mut self, name: &str) -> &mut GatewayRecord {
        self.0.entry(name.to_owned()).or_default()
    }

    /// A gateway starts, and grants nothing yet. If there are clients that would reclaim, nobody
    /// grants from now on.
    pub fn start(&mut self, name: &str, has_clients: bool) {
        let before = *self.of(name);
        *self.of(name) = GatewayRecord {
            enforces: true,
            recovers: has_clients,
            is_proved: has_clients && before.recovers && before.is_proved,
            is_replaced: false,
        };
    }

    /// The old session of a gateway that starts has ended. `was_kept`: it was there until then.
    /// Returns whether clients may reclaim.
    pub fn begin_recovery(&mut self, name: &str, was_kept: bool) -> bool {
        let record = self.of(name);
        record.is_proved |= record.recovers && was_kept;
        record.recovers = record.is_proved;
        record.recovers
    }

    /// A gateway grants nothing any more.
    pub fn enforce(&mut self, name: &str) {
        self.of(name).enforces = true;
    }

    /// Clients of a gateway have reclaimed.
    pub fn end_recovery(&mut self, name: &str) {
        let record = self.of(name);
        (record.recovers, record.is_proved) = (false, false);
    }

    /// Lets a gateway grant, if it may.
    pub fn resume(&mut self, name: &str) -> bool {
        let may = !self.is_recovering() && !self.of(name).is_replaced;
        if may {
            self.of(name).enforces = false;
        }
        may
    }

    /// A gateway is about to stop, and grants nothing any more.
    pub fn stop(&mut self, name: &str, has_clients: bool) {
        let record = self.of(name);
        if record.is_replaced {
            return;
        }
        record.enforces = true;
        // It may stop before its own clients have reclaimed.
        record.is_proved &= has_clients;
        record.recovers = has_clients;
    }

    /// While a gateway that stops has its session, no other one grants.
    pub fn prove(&mut self, name: &str) {
        let record = self.of(name);
        record.is_proved = record.recovers;
    }

    /// A gateway that grants nothing any more is about to take the place of another one: nobody grants
    /// from now on.
    pub fn begin_take_over(&mut self, by: &str) {
        let record = self.of(by);
        (record.enforces, record.recovers) = (true, true);
        // Its own session goes on. After a crash it is judged by that one.
        record.is_proved = false;
    }

    /// It takes that place. The other one must not go on, but may still be granting until its session
    /// ends. Returns the record of that one before; `None` if there is none.
    pub fn replace(&mut self, name: &str, by: &str) -> Option<GatewayRecord> {
        let record = self.0.get_mut(name)?;
        let before = *record;
        *record = GatewayRecord {
            recovers: false,
            is_proved: false,
            is_replaced: true,
            ..before
        };
        self.begin_take_over(by);
        Some(before)
    }

    /// The session of a gateway that is replaced has ended. Returns whether that was the session that
    /// it had when it was replaced: not if it has started again meanwhile.
    pub fn fence(&mut self, name: &str) -> bool {
        let record = self.of(name);
        record.enforces |= record.is_replaced;
        record.is_replaced
    }
}
