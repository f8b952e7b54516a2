//! Metrics of exports of kind posix: folders of the host.

super::families! {
    /// Exports that are folders of the host.
    FOLDERS = "Folders";

    STORE_READS = Counter "millrace_store_reads_total" in "reads" [EXPORT, READ_WAY]
        "Reads of file data, by how they went."
        for "Whether `direct` suits the load: `cached` found all in the page cache, `buffered` went through it, `direct` past it."
        absent "exports in memory alone";
    STORE_WRITES = Counter "millrace_store_writes_total" in "writes" [EXPORT, WRITE_WAY]
        "Writes of file data, by how they went."
        for "Whether `direct` suits the load."
        absent "exports in memory alone";
    STORE_SYNCS = Counter "millrace_store_syncs_total" in "syncs" [EXPORT]
        "Syncs of file data that the kernel was asked for."
        for "Against commits: several that wait at one time share a sync."
        absent "exports in memory alone";
    STORE_COMMITS = Counter "millrace_store_commits_total" in "commits" [EXPORT]
        "COMMITs that succeeded."
        for "How often clients want data durable."
        absent "exports in memory alone";
    STORE_NAME_SYNCS = Counter "millrace_store_name_syncs_total" in "syncs" [EXPORT]
        "Times that names or attributes were made durable."
        for "What `sync: strict` asks of the device."
        absent "exports in memory alone";
    STORE_FORCED_SYNCS = Counter "millrace_store_forced_syncs_total" in "syncs" [EXPORT]
        "Writes that waited for a sync as too much was not durable."
        for "The device takes less than clients write; see `limits.dirty`."
        absent "exports in memory alone";
    STORE_WRITE_BACK_ERRORS = Counter "millrace_store_write_back_errors_total" in "errors" [EXPORT]
        "Syncs and synchronous writes that failed."
        for "To be alerted: the device loses data. Clients are told by a new write verifier."
        absent "exports in memory alone";
    STORE_VERIFIER_CHANGES = Counter "millrace_store_verifier_changes_total" in "changes" [EXPORT]
        "Changes of the write verifier since the start."
        for "Each has clients write again what they had not committed."
        absent "exports in memory alone";
    STORE_DELAYS = Counter "millrace_store_delays_total" in "operations" [EXPORT]
        "Operations of data that clients were asked to repeat later, as nothing ended."
        for "The file system hangs."
        absent "exports in memory alone";
    STORE_DIRTY = Gauge "millrace_store_dirty_bytes" in "bytes" [EXPORT]
        "Bytes written and not known to be durable."
        for "What a crash of the host would have clients write again."
        absent "exports in memory alone";
    STORE_DIRTY_LIMIT = Gauge "millrace_store_dirty_limit_bytes" in "bytes" [EXPORT]
        "The most such bytes: `limits.dirty`."
        for "Against those that there are."
        absent "exports in memory alone";
    STORE_OPERATIONS = Gauge "millrace_store_operations" in "operations" [EXPORT]
        "Reads, writes and syncs of data under way."
        for "Concurrency at the device."
        absent "exports in memory alone";
    STORE_WAITING = Gauge "millrace_store_operations_waiting" in "operations" [EXPORT]
        "Operations of data that wait for others to end."
        for "At the bound `limits.operations`."
        absent "exports in memory alone";
    STORE_OPEN = Gauge "millrace_store_open_objects" in "objects" [EXPORT]
        "Objects that reactors keep open."
        for "Against `limits.open_files` of each reactor, and LimitNOFILE."
        absent "exports in memory alone";
    STORE_HELPERS = Gauge "millrace_store_helper_threads" in "threads" [EXPORT]
        "Threads for names and attributes."
        for "They come as they are needed, up to `limits.threads`."
        absent "exports in memory alone";
    STORE_HELPER_JOBS = Gauge "millrace_store_helper_jobs" in "jobs" [EXPORT, JOB_STATE]
        "Jobs of these threads."
        for "A queue that stays asks for more threads, or a faster device."
        absent "exports in memory alone";
    STORE_ACTS_AS_SERVER = Gauge "millrace_store_acts_as_server" in "" [EXPORT]
        "1 where all callers act as the server's own user, 0 where they act as themselves."
        for "To be alerted: the server lacks CAP_SETUID or CAP_SETGID, and `identity: server` accepts that."
        absent "exports in memory alone";
    STORE_STUCK = Gauge "millrace_store_stuck_seconds" in "seconds" [EXPORT]
        "Time that no job has ended although some run."
        for "To be alerted: the file system hangs."
        absent "exports in memory alone";
}
