//! Metrics of the protocol between RPC and RDMA.

super::families! {
    /// The protocol between RPC and RDMA.
    RPC_OVER_RDMA = "RPC-over-RDMA";

    RPCRDMA_CONNECTIONS = Gauge "millrace_rpcrdma_connections" in "connections" [CORE, VERSION]
        "Connections by the RPC-over-RDMA version of their latest call."
        for "Use of version one.";
    RPCRDMA_MESSAGES = Counter "millrace_rpcrdma_messages_total" in "messages" [DIRECTION, MESSAGE]
        "RPC-over-RDMA messages."
        for "Long calls and replies cost an extra round trip: a larger `rpcrdma.inline` avoids them.";
    RPCRDMA_ERRORS = Counter "millrace_rpcrdma_errors_total" in "messages" [ERROR]
        "RPC-over-RDMA messages answered with an error, by its code, or dropped."
        for "Clients that violate the protocol, or offer too little memory.";
    RPCRDMA_INVALIDATIONS = Counter "millrace_rpcrdma_invalidations_total" in "replies" []
        "Replies that invalidated a key of the client."
        for "Each saves the client an invalidation of its own.";
    EXPOSURES = Gauge "millrace_exposures" in "replies" [CORE]
        "Read-chunk replies that are held until RDMA_DONE."
        for "Exposed memory that clients can read now.";
    EXPOSED_BYTES = Gauge "millrace_exposed_bytes" in "bytes" [CORE]
        "Bytes held for read-chunk replies."
        for "Compare with `flow.max_exposed_bytes`.";
    EXPOSURES_OPENED = Counter "millrace_exposures_opened_total" in "replies" [CORE]
        "Read-chunk replies."
        for "Use of classic mode (`rpcrdma.read_chunk_replies`).";
    EXPOSURES_REFUSED = Counter "millrace_exposures_refused_total" in "replies" [CORE]
        "Replies answered with an error because a limit of read-chunk replies was reached."
        for "Limits of `flow` that are too low for these clients.";
    EXPOSURES_EXPIRED = Counter "millrace_exposures_expired_total" in "replies" [CORE]
        "Exposures that ended without RDMA_DONE."
        for "Clients that are gone, broken or hostile: `flow.done_window` passed.";
    RDMA_DONES = Counter "millrace_rdma_dones_total" in "messages" [CORE, DONE]
        "RDMA_DONE messages: awaited, or stray ones without effect."
        for "Stray ones are errors of clients.";
}
