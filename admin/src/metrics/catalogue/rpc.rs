//! Metrics of the RPC programs and of the stores below them.

super::families! {
    /// Calls of NFS and MOUNT.
    PROGRAMS = "NFS and MOUNT";

    RPC_REQUESTS = Counter "millrace_rpc_requests_total" in "calls" [PROGRAM, PROCEDURE]
        "Calls answered by a procedure, over RDMA and TCP."
        for "Operations per second, by procedure.";
    RPC_ERRORS = Counter "millrace_rpc_errors_total" in "calls" [PROGRAM, PROCEDURE]
        "Calls answered with a status other than success, by procedure."
        for "Which procedures fail; a LOOKUP of a missing name counts.";
    NFS_ERRORS = Counter "millrace_nfs_errors_total" in "calls" [STATUS]
        "NFS calls answered with a status other than success, by that status."
        for "Why calls fail: full (`nospc`), stale handle (`stale`), not permitted (`acces`).";
    RPC_DURATION = Histogram "millrace_rpc_duration_seconds" in "seconds"
        [PROGRAM, PROCEDURE, SIZE]
        "Time from a call's arrival to the end of the turn that encoded its reply."
        for "Latency inside the server: quantiles by procedure, and for data by size.";
    RPC_DATA = Counter "millrace_rpc_data_bytes_total" in "bytes" [PROGRAM, PROCEDURE]
        "Bytes of file data read or written by NFS calls."
        for "Throughput as clients see it.";
    RPC_REJECTED = Counter "millrace_rpc_rejected_total" in "calls" [REJECTION]
        "Calls refused before a procedure was reached, or with an answer too large to send."
        for "Clients of other versions, without the right credentials, or in error.";
    REPLAY_LOOKUPS = Counter "millrace_replay_lookups_total" in "calls" [REPLAY]
        "Calls looked up in the duplicate request cache, by outcome."
        for "Replays are repetitions after broken connections.";
    REPLAY_ENTRIES = Gauge "millrace_replay_entries" in "calls" []
        "Calls in the duplicate request cache, executed or being executed."
        for "Compare with its limit of 16384.";
    REPLAY_BYTES = Gauge "millrace_replay_reply_bytes" in "bytes" []
        "Bytes of cached replies."
        for "Compare with the limit of 8 MiB.";
    REPLAY_EVICTIONS = Counter "millrace_replay_evictions_total" in "replies" [EVICTION]
        "Replies evicted from the duplicate request cache."
        for "A high rate of `full` shortens the time for which repetitions are recognized.";
    REPLAY_UNSHARED = Counter "millrace_replay_unshared_total" in "records" []
        "Changes that were executed before other gateways could read of them, and records of calls that could not be written."
        for "Growth shows a shared directory that is slower than a second or full: a gateway that takes over may execute calls twice."
        absent "servers without `gateways.shared_replies`";
}

super::families! {
    /// What exports are stored in.
    STORES = "Stores";

    STORE_DURATION = Histogram "millrace_store_duration_seconds" in "seconds" [STORE_CLASS]
        "Duration of operations of the exports' stores, sampled: one in 64 of each class and core."
        for "Time spent in the store. The first of each class is sampled; multiply counts by 64.";
}
