//! Counters of a volume's data operations.
//!
//! Each reactor has its own; readers add them up.

use millrace_primitives::{Counter, Gauge};

/// A volume's figures, summed over all reactors. All but the last four only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeFigures {
    /// Direct reads.
    pub reads_direct: u64,
    /// Reads served entirely from the page cache.
    pub reads_cached: u64,
    /// Other reads, through the page cache.
    pub reads_buffered: u64,
    /// Bytes returned by reads.
    pub read_bytes: u64,
    /// Direct writes.
    pub writes_direct: u64,
    /// Writes into the page cache.
    pub writes_buffered: u64,
    /// Bytes accepted by writes.
    pub written_bytes: u64,
    /// Syncs of files requested from the kernel.
    pub syncs: u64,
    /// Commits that succeeded; concurrent ones share a sync.
    pub commits: u64,
    /// Writes that had to wait for a sync because too many bytes were not durable.
    pub forced_syncs: u64,
    /// Syncs and synchronous writes that failed, so that written data may be lost.
    pub write_back_errors: u64,
    /// Changes of the write verifier since the start.
    pub verifier_changes: u64,
    /// Operations that were refused with a delay because the volume made no progress.
    pub delays: u64,
    /// Bytes written and not known to be durable, now.
    pub dirty_bytes: u64,
    /// Data operations in progress, now.
    pub operations: u64,
    /// Data operations that wait for others to complete, now.
    pub waiting_operations: u64,
    /// Objects that reactors keep open, now.
    pub open_objects: u64,
}

/// One reactor's counters, written by that reactor only.
#[derive(Default)]
#[repr(align(128))] // No other's cache lines.
pub(in crate::posix) struct Counters {
    pub reads_direct: Counter,
    pub reads_cached: Counter,
    pub reads_buffered: Counter,
    pub read_bytes: Counter,
    pub writes_direct: Counter,
    pub writes_buffered: Counter,
    pub written_bytes: Counter,
    pub syncs: Counter,
    pub commits: Counter,
    pub forced_syncs: Counter,
    pub delays: Counter,
    pub operations: Gauge,
    pub waiting_operations: Gauge,
    /// Set by `objects`.
    pub open_objects: Gauge,
}

impl Counters {
    pub fn add_to(&self, sum: &mut VolumeFigures) {
        sum.reads_direct += self.reads_direct.get();
        sum.reads_cached += self.reads_cached.get();
        sum.reads_buffered += self.reads_buffered.get();
        sum.read_bytes += self.read_bytes.get();
        sum.writes_direct += self.writes_direct.get();
        sum.writes_buffered += self.writes_buffered.get();
        sum.written_bytes += self.written_bytes.get();
        sum.syncs += self.syncs.get();
        sum.commits += self.commits.get();
        sum.forced_syncs += self.forced_syncs.get();
        sum.delays += self.delays.get();
        sum.operations += self.operations.get();
        sum.waiting_operations += self.waiting_operations.get();
        sum.open_objects += self.open_objects.get();
    }
}
