//! What calls have done with each export.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_primitives::{CoreBlock, Counter, Histogram, HistogramSnapshot};
use millrace_store::Store;

use super::call_histograms::{CallHistograms, ClassHistograms};
use super::exports::{Export, ExportId, Exports};
use crate::latency::{LatencyBatch, TurnEnd};

/// What a call did on an export, for its latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportCall {
    /// It read file data.
    Read,
    /// It wrote file data.
    Write,
    /// Neither.
    Other,
}

impl ExportCall {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// What a call did that moved so many bytes of file data.
    const fn of(read: u32, written: u32) -> Self {
        match (read, written) {
            (0, 0) => Self::Other,
            (_, 0) => Self::Read,
            _ => Self::Write,
        }
    }

    /// The word for it in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// What calls have done with one export on one reactor, which alone writes.
#[derive(Debug, Default)]
pub struct ExportCounters {
    /// NFS calls on its objects.
    pub requests: Counter,
    /// Of these, with a status other than success.
    pub errors: Counter,
    /// Bytes of file data read.
    pub bytes_read: Counter,
    /// Bytes of file data written.
    pub bytes_written: Counter,
    latencies: CallHistograms,
}

impl ExportCounters {
    /// Time from the arrival of calls to the end of the reactor's turn that encoded their replies.
    #[must_use]
    pub fn latency(&self, call: ExportCall) -> &Histogram {
        self.latencies.of(call)
    }

    /// Counts a call, but for its latency.
    fn record(&self, success: bool, read: u32, written: u32) {
        self.requests.increment();
        if !success {
            self.errors.increment();
        }
        self.bytes_read.add(u64::from(read));
        self.bytes_written.add(u64::from(written));
    }
}

/// What calls have done with one export on all reactors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportTotals {
    /// NFS calls on its objects.
    pub requests: u64,
    /// Of these, with a status other than success.
    pub errors: u64,
    /// Bytes of file data read.
    pub bytes_read: u64,
    /// Bytes of file data written.
    pub bytes_written: u64,
}

impl ExportTotals {
    /// Adds the counters of one reactor.
    pub fn add(&mut self, counters: &ExportCounters) {
        // Errors first, so that they are never more than the calls.
        self.errors += counters.errors.get();
        self.requests += counters.requests.get();
        self.bytes_read += counters.bytes_read.get();
        self.bytes_written += counters.bytes_written.get();
    }
}

/// Most exports of which the counts are kept after they are no longer served.
const GONE_MAX: usize = 1024;

/// What calls have done with each export on one reactor. Counts outlive changes of the table, so
/// that they only grow. Clones share them; other threads read.
#[derive(Clone, Debug, Default)]
pub struct ExportsCounters {
    inner: Arc<Mutex<HashMap<ExportId, Arc<CoreBlock<ExportCounters>>>>>,
}

impl ExportsCounters {
    /// The counts of an export; all zero if it was never served here.
    #[must_use]
    pub fn get(&self, export: ExportId) -> Arc<CoreBlock<ExportCounters>> {
        self.lock().get(&export).map(Arc::clone).unwrap_or_default()
    }

    /// The latency of such calls on all exports.
    #[must_use]
    pub fn latency(&self, call: ExportCall) -> HistogramSnapshot {
        let mut sum = HistogramSnapshot::default();
        for counters in self.lock().values() {
            sum.merge(&counters.latency(call).snapshot());
        }
        sum
    }

    /// Lets the exports of a table be counted from here on.
    pub(crate) fn count<S: Store>(&self, exports: &Exports<S>) {
        let mut known = self.lock();
        if known.len() > GONE_MAX {
            known.retain(|id, _| exports.by_id(*id).is_some());
        }
        for export in exports.iter() {
            let counters = known.entry(export.id).or_default();
            export.counters.get_or_init(|| Arc::clone(counters));
        }
    }

    /// Held for a few lines when the table changes, and by scrapes.
    fn lock(&self) -> MutexGuard<'_, HashMap<ExportId, Arc<CoreBlock<ExportCounters>>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls on exports that were answered in this turn and are not timed yet.
#[derive(Debug, Default)]
pub(super) struct AnsweredExportCalls {
    batch: LatencyBatch<AnsweredKind>,
}

/// Whose latency a call is: that of an export and that of a class of clients.
type AnsweredKind = (Arc<CoreBlock<ExportCounters>>, ClassHistograms, ExportCall);

impl AnsweredExportCalls {
    /// Counts a call on an export, of a client of a class, that moved so many bytes of file data.
    pub fn count<S>(
        &self,
        export: &Export<S>,
        class: &ClassHistograms,
        success: bool,
        (read, written): (u32, u32),
        arrived: Instant,
    ) {
        let Some(counters) = export.counters.get() else {
            return;
        };
        counters.record(success, read, written);
        let call = ExportCall::of(read, written);
        let is_same = |(other, other_class, noted): &AnsweredKind| {
            Arc::ptr_eq(other, counters) && other_class.is(class) && *noted == call
        };
        let whose = || (Arc::clone(counters), class.clone(), call);
        self.batch.note_if_new(is_same, whose, arrived, observe);
    }

    /// Times the calls of the turn that ends.
    pub fn settle(&self, end: &TurnEnd) {
        self.batch.settle(end, observe);
    }
}

fn observe((counters, class, call): &AnsweredKind, took: Duration, calls: u64) {
    let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    counters.latency(*call).observe_equal(nanoseconds, calls);
    class.of(*call).observe_equal(nanoseconds, calls);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Security;
    use crate::exports::{Rules, Squash};

    #[test]
    fn calls_of_one_turn_are_timed_by_export_by_class_and_by_what_they_did() {
        let rules = ["/a", "/b"].map(|path| Rules {
            path: path.to_owned(),
            clients: Vec::new(),
            security: [Security::Sys].into(),
            read_only: false,
            squash: Squash::None,
            anonymous_uid: 0,
            anonymous_gid: 0,
        });
        let table = Exports::new(rules.map(|rules| (rules, ()))).unwrap();
        let [one, other] = ["/a", "/b"].map(|path| table.by_path(path).unwrap().0);
        for export in table.iter() {
            export.counters.set(Arc::default()).unwrap();
        }
        let answered = AnsweredExportCalls::default();
        let arrived = Instant::now();
        let classes = [(); 2].map(|()| Arc::<CoreBlock<CallHistograms>>::default());
        let [first, second] = classes
            .each_ref()
            .map(|class| ClassHistograms::new(Arc::clone(class)));
        for (export, class, moved) in [
            (one, &first, (0, 0)),
            (one, &second, (0, 0)),
            (one, &second, (1, 0)),
            (other, &second, (1, 0)),
            (other, &first, (0, 1)),
        ] {
            answered.count(export, class, true, moved, arrived);
        }
        answered.settle(&TurnEnd::new(Instant::now));
        let counts = [one, other].map(|export| {
            let counters = export.counters.get().unwrap();
            ExportCall::ALL.map(|call| counters.latency(call).snapshot().count())
        });
        assert_eq!(counts, [[1, 0, 2], [1, 1, 0]]);
        let counts =
            classes.map(|class| ExportCall::ALL.map(|call| class.of(call).snapshot().count()));
        assert_eq!(counts, [[0, 1, 1], [2, 0, 1]]);
    }
}
