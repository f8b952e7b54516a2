//! Metrics of exports of folders.

use millrace_admin::metrics::{Families, catalogue};
use millrace_store::posix::identity::privileged;
use millrace_store::posix::volume::Volume;

/// Counters and gauges of a folder's store.
pub fn folder(out: &mut Families, path: &str, volume: &Volume) {
    let figures = volume.figures();
    for (way, reads) in [
        ("direct", figures.reads_direct),
        ("cached", figures.reads_cached),
        ("buffered", figures.reads_buffered),
    ] {
        out.number(&catalogue::STORE_READS, &[path, way], reads);
    }
    for (way, writes) in [
        ("direct", figures.writes_direct),
        ("buffered", figures.writes_buffered),
    ] {
        out.number(&catalogue::STORE_WRITES, &[path, way], writes);
    }
    let load = volume.helpers().load();
    let limit = volume.config().limits.dirty;
    let labels = &[path];
    for (family, number) in [
        (&catalogue::STORE_SYNCS, figures.syncs),
        (&catalogue::STORE_COMMITS, figures.commits),
        (&catalogue::STORE_NAME_SYNCS, volume.name_syncs()),
        (&catalogue::STORE_FORCED_SYNCS, figures.forced_syncs),
        (
            &catalogue::STORE_WRITE_BACK_ERRORS,
            figures.write_back_errors,
        ),
        (&catalogue::STORE_VERIFIER_CHANGES, figures.verifier_changes),
        (&catalogue::STORE_DELAYS, figures.delays),
        (&catalogue::STORE_DIRTY, figures.dirty_bytes),
        (&catalogue::STORE_DIRTY_LIMIT, limit),
        (&catalogue::STORE_OPERATIONS, figures.operations),
        (&catalogue::STORE_WAITING, figures.waiting_operations),
        (&catalogue::STORE_OPEN, figures.open_objects),
        (&catalogue::STORE_HELPERS, load.threads as u64),
        (&catalogue::STORE_ACTS_AS_SERVER, u64::from(!privileged())),
    ] {
        out.number(family, labels, number);
    }
    for (state, jobs) in [("running", load.running), ("queued", load.queued)] {
        let labels = &[path, state];
        out.number(&catalogue::STORE_HELPER_JOBS, labels, jobs as u64);
    }
    out.seconds(&catalogue::STORE_STUCK, labels, load.stuck);
}
