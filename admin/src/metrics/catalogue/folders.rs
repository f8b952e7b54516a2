//! Metrics of exports of kind posix and ceph.

super::families! {
    /// Exports that are folders of the host, or in CephFS.
    FOLDERS = "Folders";

    STORE_READS = Counter "millrace_store_reads_total" in "reads" [EXPORT, READ_WAY]
        "Reads of file data, by way."
        for "Whether `direct` suits the load: `cached` found all data in the page cache, `buffered` read through it, `direct` bypassed it."
        absent "servers with exports in memory only";
    STORE_WRITES = Counter "millrace_store_writes_total" in "writes" [EXPORT, WRITE_WAY]
        "Writes of file data, by way."
        for "Whether `direct` suits the load."
        absent "servers with exports in memory only";
    STORE_SYNCS = Counter "millrace_store_syncs_total" in "syncs" [EXPORT]
        "Syncs of file data requested from the kernel."
        for "Compare with commits: concurrent ones share a sync."
        absent "servers with exports in memory only";
    STORE_COMMITS = Counter "millrace_store_commits_total" in "commits" [EXPORT]
        "COMMITs that succeeded."
        for "How often clients request that data is made durable."
        absent "servers with exports in memory only";
    STORE_NAME_SYNCS = Counter "millrace_store_name_syncs_total" in "syncs" [EXPORT]
        "Times that names or attributes were made durable."
        for "Device load of `sync: strict`."
        absent "servers with exports in memory only";
    STORE_FORCED_SYNCS = Counter "millrace_store_forced_syncs_total" in "syncs" [EXPORT]
        "Writes that waited for a sync because `limits.dirty` was reached."
        for "The device is slower than clients write."
        absent "servers with exports in memory only";
    STORE_WRITE_BACK_ERRORS = Counter "millrace_store_write_back_errors_total" in "errors" [EXPORT]
        "Syncs and synchronous writes that failed."
        for "Alert: the device loses data. Clients see a new write verifier."
        absent "servers with exports in memory only";
    STORE_VERIFIER_CHANGES = Counter "millrace_store_verifier_changes_total" in "changes" [EXPORT]
        "Changes of the write verifier since the start."
        for "After each, clients write uncommitted data again."
        absent "servers with exports in memory only";
    STORE_DELAYS = Counter "millrace_store_delays_total" in "operations" [EXPORT]
        "Data operations answered with JUKEBOX because no operation completed."
        for "The file system hangs."
        absent "servers with exports in memory only";
    STORE_DIRTY = Gauge "millrace_store_dirty_bytes" in "bytes" [EXPORT]
        "Bytes written and not known to be durable."
        for "Data that clients write again after a crash of the host."
        absent "servers with exports in memory only";
    STORE_DIRTY_LIMIT = Gauge "millrace_store_dirty_limit_bytes" in "bytes" [EXPORT]
        "The limit of bytes that are not durable: `limits.dirty`."
        for "Compare with the bytes not durable."
        absent "servers with exports in memory only";
    STORE_OPERATIONS = Gauge "millrace_store_operations" in "operations" [EXPORT]
        "Reads, writes and syncs of data in progress."
        for "Concurrency at the device."
        absent "servers with exports in memory only";
    STORE_WAITING = Gauge "millrace_store_operations_waiting" in "operations" [EXPORT]
        "Data operations that wait for others to complete."
        for "The limit `limits.operations` is reached."
        absent "servers with exports in memory only";
    STORE_OPEN = Gauge "millrace_store_open_objects" in "objects" [EXPORT]
        "Objects that reactors keep open."
        for "Compare with `limits.open_files` of each reactor, and LimitNOFILE."
        absent "servers with exports in memory only";
    STORE_HELPERS = Gauge "millrace_store_helper_threads" in "threads" [EXPORT]
        "Threads for names and attributes."
        for "Started on demand, up to `limits.threads`."
        absent "servers with exports in memory only";
    STORE_HELPER_JOBS = Gauge "millrace_store_helper_jobs" in "jobs" [EXPORT, JOB_STATE]
        "Jobs of the threads for names and attributes."
        for "A persistent queue needs more threads, or a faster device."
        absent "servers with exports in memory only";
    STORE_ACTS_AS_SERVER = Gauge "millrace_store_acts_as_server" in "" [EXPORT]
        "1 if all operations are done as the server's own user, 0 if they are done as their callers."
        for "Alert: the server lacks CAP_SETUID or CAP_SETGID, and `identity: server` accepts that."
        absent "servers with exports in memory only";
    STORE_MOUNTED = Gauge "millrace_store_mounted" in "" [EXPORT]
        "1 while there is a session with the Ceph cluster, 0 while it is being restored."
        for "Alert: clients get JUKEBOX until the file system is mounted again."
        absent "servers without exports of kind ceph";
    STORE_LOST_SESSIONS = Counter "millrace_store_lost_sessions_total" in "sessions" [EXPORT]
        "Sessions that were ended by the Ceph cluster."
        for "Alert: the session timed out, or an operator evicted it. Clients write uncommitted data again."
        absent "servers without exports of kind ceph";
    STORE_STUCK = Gauge "millrace_store_stuck_seconds" in "seconds" [EXPORT]
        "Time since the last job ended, while jobs are running."
        for "Alert: the file system hangs."
        absent "servers with exports in memory only";
}
