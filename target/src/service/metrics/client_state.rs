//! Metrics of the state of NFS version 4's clients.

use std::sync::Arc;
use std::time::Duration;

use millrace_admin::metrics::{Families, catalogue};
use millrace_primitives::Gauge;

use crate::service::client_records::RecordCounters;
use crate::state::StateFigures;

/// How much state there is, as the reactor that keeps it has said last.
#[derive(Debug, Default)]
pub struct StateGauges {
    clients: Gauge,
    silent_clients: Gauge,
    sessions: Gauge,
    opens: Gauge,
    lock_states: Gauge,
    delegations: Gauge,
    revoked: Gauge,
    grace_clients: Gauge,
    grace_left: Gauge,
    grants_held: Gauge,
    /// What has become of records.
    pub records: Arc<RecordCounters>,
}

impl StateGauges {
    /// Whether the grace period lasted when the figures were published.
    pub fn is_in_grace(&self) -> bool {
        self.grace_clients.get() > 0
    }

    /// Whether grants were held for another gateway when the figures were published.
    pub fn are_grants_held(&self) -> bool {
        self.grants_held.get() > 0
    }

    /// Publishes figures; for the reactor that keeps the state.
    pub fn set(&self, figures: &StateFigures) {
        for (gauge, value) in [
            (&self.clients, figures.clients),
            (&self.silent_clients, figures.silent_clients),
            (&self.sessions, figures.sessions),
            (&self.opens, figures.opens),
            (&self.lock_states, figures.lock_states),
            (&self.delegations, figures.delegations),
            (&self.revoked, figures.revoked),
            (&self.grace_clients, figures.grace_clients),
            (&self.grants_held, usize::from(figures.holds_grants)),
        ] {
            gauge.set(value as u64);
        }
        let left = u64::try_from(figures.grace_left.as_nanos());
        self.grace_left.set(left.unwrap_or(u64::MAX));
    }
}

/// The families of the state of clients.
pub fn client_state(out: &mut Families, gauges: &StateGauges) {
    let records = &gauges.records;
    for (family, gauge) in [
        (&catalogue::NFS4_CLIENTS, &gauges.clients),
        (&catalogue::NFS4_CLIENTS_SILENT, &gauges.silent_clients),
        (&catalogue::NFS4_SESSIONS, &gauges.sessions),
        (&catalogue::NFS4_OPENS, &gauges.opens),
        (&catalogue::NFS4_LOCK_STATES, &gauges.lock_states),
        (&catalogue::NFS4_DELEGATIONS, &gauges.delegations),
        (&catalogue::NFS4_REVOKED, &gauges.revoked),
        (&catalogue::NFS4_GRACE_CLIENTS, &gauges.grace_clients),
        (&catalogue::NFS4_GRANTS_HELD, &gauges.grants_held),
        (&catalogue::NFS4_RECORD_GROUPS, &records.groups),
        (&catalogue::NFS4_RECORD_FAILURES, &records.failures),
        (&catalogue::NFS4_RECORDS_DAMAGED, &records.damaged),
    ] {
        out.number(family, &[], gauge.get());
    }
    let left = Duration::from_nanos(gauges.grace_left.get());
    out.seconds(&catalogue::NFS4_GRACE_SECONDS, &[], left);
}
