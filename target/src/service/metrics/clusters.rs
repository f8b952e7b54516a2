//! Metrics of exports in CephFS.

use millrace_admin::metrics::{Families, catalogue};
use millrace_store::ceph::volume::CephVolume;

/// Counters and gauges of a store in a cluster.
pub fn cluster(out: &mut Families, path: &str, volume: &CephVolume) {
    let (figures, load) = (volume.figures(), volume.load());
    out.number(&catalogue::STORE_READS, &[path, "cluster"], figures.reads);
    out.number(&catalogue::STORE_WRITES, &[path, "cluster"], figures.writes);
    let labels = &[path];
    for (family, number) in [
        (&catalogue::STORE_SYNCS, figures.syncs),
        (&catalogue::STORE_COMMITS, figures.commits),
        (&catalogue::STORE_NAME_SYNCS, figures.name_syncs),
        (&catalogue::STORE_WRITE_BACK_ERRORS, figures.sync_errors),
        (&catalogue::STORE_VERIFIER_CHANGES, figures.verifier_changes),
        (&catalogue::STORE_DELAYS, figures.delays),
        (&catalogue::STORE_OPEN, figures.open_files),
        (&catalogue::STORE_HELPERS, load.threads as u64),
        (&catalogue::STORE_LOST_SESSIONS, figures.lost_sessions),
        (&catalogue::STORE_MOUNTED, u64::from(figures.is_mounted)),
    ] {
        out.number(family, labels, number);
    }
    for (state, jobs) in [("running", load.running), ("queued", load.queued)] {
        let labels = &[path, state];
        out.number(&catalogue::STORE_HELPER_JOBS, labels, jobs as u64);
    }
    out.seconds(&catalogue::STORE_STUCK, labels, load.stuck);
}
