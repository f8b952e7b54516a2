//! Metrics of the protocol between RPC and RDMA.

super::families! {
    /// The protocol between RPC and RDMA.
    RPC_OVER_RDMA = "RPC-over-RDMA";

    RPCRDMA_CONNECTIONS = Gauge "millrace_rpcrdma_connections" in "connections" [CORE, VERSION]
        "Connections by the RPC-over-RDMA version of their latest call."
        for "Who still speaks version one.";
    RPCRDMA_MESSAGES = Counter "millrace_rpcrdma_messages_total" in "messages" [DIRECTION, MESSAGE]
        "RPC-over-RDMA messages."
        for "Long calls and replies cost an extra trip: a larger `rpcrdma.inline` avoids them.";
    RPCRDMA_ERRORS = Counter "millrace_rpcrdma_errors_total" in "messages" [ERROR]
        "RPC-over-RDMA messages that were answered with an error, by its code, or dropped."
        for "Clients that break the protocol, or offer too little room.";
    RPCRDMA_INVALIDATIONS = Counter "millrace_rpcrdma_invalidations_total" in "replies" []
        "Replies that invalidated a key of the client's."
        for "Whether clients are spared an invalidation of their own for each call.";
    EXPOSURES = Gauge "millrace_exposures" in "replies" [CORE]
        "Read-chunk replies that are held until RDMA_DONE."
        for "Memory that clients may reach at this moment.";
    EXPOSED_BYTES = Gauge "millrace_exposed_bytes" in "bytes" [CORE]
        "Bytes held for read-chunk replies."
        for "Against `flow.max_exposed_bytes`.";
    EXPOSURES_OPENED = Counter "millrace_exposures_opened_total" in "replies" [CORE]
        "Read-chunk replies."
        for "How much the classic mode is used.";
    EXPOSURES_REFUSED = Counter "millrace_exposures_refused_total" in "replies" [CORE]
        "Replies answered with an error because a bound forbade one more read-chunk reply."
        for "Bounds of `flow` that are too tight for these clients.";
    EXPOSURES_EXPIRED = Counter "millrace_exposures_expired_total" in "replies" [CORE]
        "Exposures that ended without RDMA_DONE."
        for "Clients that are gone, broken or hostile: `flow.done_window` passed.";
    RDMA_DONES = Counter "millrace_rdma_dones_total" in "messages" [CORE, DONE]
        "RDMA_DONE messages: awaited, or stray ones that changed nothing."
        for "Stray ones are clients in error.";
}
