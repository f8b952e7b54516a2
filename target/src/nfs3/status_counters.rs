//! What only NFS version 3 counts.

use millrace_primitives::Counter;
use millrace_wire::nfs3::Status;

use crate::store_times::StoreTimes;

/// What NFS version 3 has done on one reactor, beside what all programs count.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Nfs3Counters {
    /// Failures of calls by status.
    pub statuses: StatusCounters,
    /// How long operations of stores take.
    pub store: StoreTimes,
}

/// Failures of NFS calls by status.
#[derive(Debug)]
pub struct StatusCounters([Counter; STATUSES]);

/// All statuses but that of success.
const STATUSES: usize = Status::ALL.len() - 1;

impl Default for StatusCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::new()))
    }
}

impl StatusCounters {
    /// Counts a failure.
    pub fn count(&self, status: Status) {
        let failures = Status::ALL[1..].iter();
        for (_, counter) in failures.zip(&self.0).filter(|(known, _)| **known == status) {
            counter.increment();
        }
    }

    /// Failures by status.
    pub fn iter(&self) -> impl Iterator<Item = (Status, u64)> {
        let failures = Status::ALL[1..].iter().copied();
        failures.zip(self.0.iter().map(Counter::get))
    }
}
