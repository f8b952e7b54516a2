//! Metrics of providers: work requests, and what carries them.

super::families! {
    /// Work requests, and what carries them.
    FABRIC = "Fabric";

    RDMA_POSTED = Counter "millrace_rdma_posted_total" in "work requests" [PROVIDER, OPERATION]
        "Work requests posted, by operation."
        for "The difference to completed ones is in flight, or was flushed.";
    RDMA_OPERATIONS = Counter "millrace_rdma_operations_total" in "work requests"
        [PROVIDER, OPERATION]
        "Work requests completed with success, by operation."
        for "Work requests for each NFS call.";
    RDMA_BYTES = Counter "millrace_rdma_bytes_total" in "bytes" [PROVIDER, OPERATION]
        "Bytes moved by completed work requests, by operation."
        for "Throughput by direction: writes go to clients (READ), reads come from them (WRITE).";
    RDMA_FAILURES = Counter "millrace_rdma_failures_total" in "work requests" [PROVIDER, FAILURE]
        "Work requests that completed in error, by status."
        for "`flushed` occurs when connections break; all others are errors of clients.";
    FABRIC_FRAMES = Counter "millrace_fabric_frames_total" in "frames" [PROVIDER, DIRECTION]
        "Frames of software iWARP (FPDUs)."
        for "Divided by requests: frames for each call."
        absent "servers without `provider: iwarp`";
    FABRIC_BYTES = Counter "millrace_fabric_bytes_total" in "bytes" [PROVIDER, DIRECTION]
        "Bytes of software iWARP on the network, including headers."
        for "Network load; divided by the RDMA bytes, the overhead."
        absent "servers without `provider: iwarp`";
    FABRIC_DIRECT_BYTES = Counter "millrace_fabric_direct_bytes_total" in "bytes" [PROVIDER]
        "Received bytes that the kernel placed directly in registered memory."
        for "The share of received data that saves a copy."
        absent "servers without `provider: iwarp`";
    FABRIC_SYSTEM_CALLS = Counter "millrace_fabric_system_calls_total" in "calls" [PROVIDER, CALL]
        "System calls to receive, to send (one flush of one queue pair each), and to poll sockets for readiness."
        for "Divided by requests: the batching of turns."
        absent "servers without `provider: iwarp`";
    FABRIC_CRC_ERRORS = Counter "millrace_fabric_crc_errors_total" in "frames" [PROVIDER]
        "Frames with a wrong check value; each ended its connection."
        for "Damage on the network."
        absent "servers without `provider: iwarp`";
    FABRIC_TERMINATES = Counter "millrace_fabric_terminates_total" in "messages"
        [PROVIDER, DIRECTION]
        "Terminate messages, each of which ended a connection in error."
        for "Protocol errors of peers (out), or errors that peers report (in)."
        absent "servers without `provider: iwarp`";
    FABRIC_INDICATIONS = Counter "millrace_fabric_unexpected_indications_total" in "connections"
        [PROVIDER]
        "Connections whose ready-to-receive message was not of the negotiated kind."
        for "Peers that do not keep to the negotiated kind."
        absent "servers without `provider: iwarp`";
}
