//! What NFS version 4 counts beside what all programs count: operations, where the calls of all
//! programs are COMPOUNDs only.

use millrace_primitives::Counter;
use millrace_wire::nfs4::{OP_ILLEGAL, OperationNumber, OperationStatus};

use crate::store_times::StoreTimes;

/// Numbers of operations that are counted one by one; those above are undefined.
const OPERATIONS: usize = 80;

/// All statuses but that of success.
const STATUSES: usize = OperationStatus::ALL.len() - 1;

/// What NFS version 4 has done on one reactor.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Nfs4Counters {
    /// Answered operations.
    pub operations: OperationCounters,
    /// Requests that were answered from the reply cache of a session.
    pub replays: Counter,
    /// How long operations of stores take.
    pub store: StoreTimes,
}

/// Answered operations, and failures by operation and by status.
#[derive(Debug)]
pub struct OperationCounters {
    answered: [Counter; OPERATIONS],
    failed: [Counter; OPERATIONS],
    /// Undefined ones.
    illegal: Counter,
    statuses: [Counter; STATUSES],
}

impl Default for OperationCounters {
    fn default() -> Self {
        Self {
            answered: [const { Counter::new() }; OPERATIONS],
            failed: [const { Counter::new() }; OPERATIONS],
            illegal: Counter::new(),
            statuses: [const { Counter::new() }; STATUSES],
        }
    }
}

impl OperationCounters {
    /// Counts an operation that was answered so.
    #[inline]
    pub fn count(&self, number: u32, status: OperationStatus) {
        match self.answered.get(number as usize) {
            Some(answered) => answered.increment(),
            None => self.illegal.increment(),
        }
        if status != OperationStatus::Ok {
            self.count_failure(number, status);
        }
    }

    #[cold]
    fn count_failure(&self, number: u32, status: OperationStatus) {
        if let Some(failed) = self.failed.get(number as usize) {
            failed.increment();
        }
        let failures = &OperationStatus::ALL[1..];
        if let Ok(index) = failures.binary_search_by_key(&status.number(), |one| one.number()) {
            self.statuses[index].increment();
        }
    }

    /// Each served operation: its name, how often it was answered, and how often with a failure.
    /// Then the same of all others together.
    pub fn operations(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let index = |known: &OperationNumber| known.number() as usize;
        let served = OperationNumber::SERVED.iter().map(move |known| {
            let (answered, failed) = (&self.answered[index(known)], &self.failed[index(known)]);
            (known.name(), answered.get(), failed.get())
        });
        let unserved = OperationNumber::UNSERVED.iter();
        let unserved: u64 = unserved.map(|known| self.failed[index(known)].get()).sum();
        let others = unserved + self.illegal.get();
        served.chain([(OTHERS, others, others)])
    }

    /// Failures by status.
    pub fn statuses(&self) -> impl Iterator<Item = (OperationStatus, u64)> {
        let failures = OperationStatus::ALL[1..].iter().copied();
        failures.zip(self.statuses.iter().map(Counter::get))
    }
}

/// The name of all operations that are not served.
const OTHERS: &str = "OTHER";

// Undefined operations are answered with this number.
const _: () = assert!(OP_ILLEGAL as usize >= OPERATIONS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_and_failure_is_counted_once() {
        let counters = OperationCounters::default();
        for served in OperationNumber::SERVED {
            counters.count(served.number(), OperationStatus::Ok);
        }
        counters.count(OperationNumber::Lookup.number(), OperationStatus::NoEntry);
        counters.count(
            OperationNumber::Layoutget.number(),
            OperationStatus::NotSupported,
        );
        counters.count(OP_ILLEGAL, OperationStatus::IllegalOperation);
        for (name, answered, failed) in counters.operations() {
            let expected = match name {
                "LOOKUP" => (2, 1),
                OTHERS => (2, 2),
                _ => (1, 0),
            };
            assert_eq!((answered, failed), expected, "{name}");
        }
        let failures: Vec<_> = counters
            .statuses()
            .filter(|(_, count)| *count > 0)
            .collect();
        let expected = [
            OperationStatus::NoEntry,
            OperationStatus::NotSupported,
            OperationStatus::IllegalOperation,
        ];
        assert_eq!(failures, expected.map(|status| (status, 1)));
    }
}
