//! Latencies of calls on exports, by what the calls did.

use std::rc::Rc;
use std::sync::Arc;

use millrace_primitives::{CoreBlock, Histogram};

use super::export_counters::ExportCall;

/// Latencies of calls on one reactor, which alone writes.
#[derive(Debug, Default)]
pub struct CallHistograms {
    histograms: [Histogram; ExportCall::ALL.len()],
}

impl CallHistograms {
    /// Time from the arrival of calls to the end of the reactor's turn that encoded their replies.
    #[must_use]
    pub fn of(&self, call: ExportCall) -> &Histogram {
        &self.histograms[call as usize]
    }
}

/// Latencies of the calls of a class of clients on one reactor, as that reactor holds them: a clone
/// writes no memory that other reactors use.
#[derive(Clone, Debug)]
#[allow(
    clippy::redundant_allocation,
    reason = "the outer count is of one reactor, so that a clone needs no atomic operation"
)]
pub struct ClassHistograms {
    shared: Rc<Arc<CoreBlock<CallHistograms>>>,
}

impl ClassHistograms {
    /// Those that other threads read.
    pub(crate) fn new(shared: Arc<CoreBlock<CallHistograms>>) -> Self {
        Self {
            shared: Rc::new(shared),
        }
    }

    /// Whether both are of one class.
    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Those of one kind of call.
    pub(crate) fn of(&self, call: ExportCall) -> &Histogram {
        self.shared.of(call)
    }
}
