//! Metrics of providers: work requests, and what carries them.

super::families! {
    /// Work requests, and what carries them.
    FABRIC = "Fabric";

    RDMA_POSTED = Counter "millrace_rdma_posted_total" in "work requests" [PROVIDER, OPERATION]
        "Work requests posted, by operation."
        for "Against the completed ones: what is under way, or was flushed.";
    RDMA_OPERATIONS = Counter "millrace_rdma_operations_total" in "work requests"
        [PROVIDER, OPERATION]
        "Work requests completed with success, by operation."
        for "What the fabric does for each NFS call.";
    RDMA_BYTES = Counter "millrace_rdma_bytes_total" in "bytes" [PROVIDER, OPERATION]
        "Bytes moved by completed work requests, by operation."
        for "Throughput by direction: writes go to clients (READ), reads come from them (WRITE).";
    RDMA_FAILURES = Counter "millrace_rdma_failures_total" in "work requests" [PROVIDER, FAILURE]
        "Work requests that completed in error, by status."
        for "`flushed` comes with every connection that breaks; all others are clients in error.";
    FABRIC_FRAMES = Counter "millrace_fabric_frames_total" in "frames" [PROVIDER, DIRECTION]
        "Frames of software iWARP (FPDUs)."
        for "Divided by requests: frames that a call costs."
        absent "only servers with `provider: iwarp` have it";
    FABRIC_BYTES = Counter "millrace_fabric_bytes_total" in "bytes" [PROVIDER, DIRECTION]
        "Bytes of software iWARP on the network, headers and all."
        for "Load of the network, and by the RDMA bytes the overhead."
        absent "only servers with `provider: iwarp` have it";
    FABRIC_DIRECT_BYTES = Counter "millrace_fabric_direct_bytes_total" in "bytes" [PROVIDER]
        "Received bytes that the kernel put straight into registered memory."
        for "The share of received data that saves a copy."
        absent "only servers with `provider: iwarp` have it";
    FABRIC_SYSTEM_CALLS = Counter "millrace_fabric_system_calls_total" in "calls" [PROVIDER, CALL]
        "System calls to receive, to send (one flush of one queue pair each), and to ask which sockets are ready."
        for "Divided by requests: how well turns batch."
        absent "only servers with `provider: iwarp` have it";
    FABRIC_CRC_ERRORS = Counter "millrace_fabric_crc_errors_total" in "frames" [PROVIDER]
        "Frames with a wrong check value; each ended its connection."
        for "Damage on the network."
        absent "only servers with `provider: iwarp` have it";
    FABRIC_TERMINATES = Counter "millrace_fabric_terminates_total" in "messages"
        [PROVIDER, DIRECTION]
        "Terminate messages, each of which ended a connection in error."
        for "Peers that broke a rule (out), or think that this server did (in)."
        absent "only servers with `provider: iwarp` have it";
    FABRIC_INDICATIONS = Counter "millrace_fabric_unexpected_indications_total" in "connections"
        [PROVIDER]
        "Connections whose first message proved the peer ready, but was not of an agreed kind."
        for "Peers that negotiate one thing and do another."
        absent "only servers with `provider: iwarp` have it";
}
