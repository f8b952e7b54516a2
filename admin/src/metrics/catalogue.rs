//! Every metric there is: name, kind, labels and meaning.
//!
//! Values of labels: `core` is the core's number, `provider` is `iwarp`, `verbs` or `tcp`,
//! `class` is a buffer class, `program` and `procedure` are names such as `nfs` and `READ`.

use super::{Family, Kind};

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $help)]
            pub static $constant: Family = Family {
                name: $name,
                kind: Kind::$kind,
                help: $help,
                labels: &[$($label),*],
            };
        )*

        /// All of them.
        pub static ALL: &[&Family] = &[$(&$constant),*];
    };
}

families! {
    REACTOR_TURNS = Counter "millrace_reactor_turns_total" ["core"]
        "Turns of the loop.";
    REACTOR_BUSY = Counter "millrace_reactor_busy_seconds_total" ["core"]
        "Time of turns that found work.";
    REACTOR_IDLE = Counter "millrace_reactor_idle_seconds_total" ["core"]
        "Time of turns that found no work, and of sleep.";
    REACTOR_LONGEST_TURN = Gauge "millrace_reactor_longest_turn_seconds" ["core"]
        "The longest turn so far.";
    REACTOR_LAST_TURN = Gauge "millrace_reactor_last_turn_age_seconds" ["core"]
        "Time since the loop last began a turn.";
    REACTOR_STALLED = Gauge "millrace_reactor_stalled" ["core"]
        "1 when the watchdog sees no turns, else 0.";
    REACTOR_WORK = Counter "millrace_reactor_work_total" ["core", "source"]
        "Pieces of work by the source that had them.";
    REACTOR_MESSAGES = Counter "millrace_reactor_messages_total" ["core"]
        "Messages from other threads.";
    REACTOR_SLEEPS = Counter "millrace_reactor_sleeps_total" ["core"]
        "Times the loop slept for want of work.";
    REACTOR_TASKS = Gauge "millrace_reactor_tasks" ["core"]
        "Tasks that have not ended.";
    REACTOR_TASK_PANICS = Counter "millrace_reactor_task_panics_total" ["core"]
        "Tasks that panicked and ended their connection.";

    POOL_MEMORY = Gauge "millrace_pool_memory_bytes" ["core", "pages"]
        "Buffer memory by page size.";
    POOL_BUFFERS = Gauge "millrace_pool_buffers" ["core", "class"]
        "Buffers there are.";
    POOL_BUFFERS_IN_USE = Gauge "millrace_pool_buffers_in_use" ["core", "class"]
        "Buffers handed out.";
    POOL_BUFFERS_HIGH_WATER = Gauge "millrace_pool_buffers_high_water" ["core", "class"]
        "The most buffers handed out at once so far.";
    POOL_WAITERS = Gauge "millrace_pool_waiters" ["core", "class"]
        "Requests that wait for a buffer.";
    POOL_WAITS = Counter "millrace_pool_waits_total" ["core", "class"]
        "Requests that had to wait for a buffer.";

    SHORTAGE_WAITING = Gauge "millrace_shortage_waiting" ["core", "resource"]
        "Requests that wait for a send queue slot, read depth, an exposure or the store.";
    SHORTAGE_WAITS = Counter "millrace_shortage_waits_total" ["core", "resource"]
        "Requests that had to wait for a send queue slot, read depth, an exposure or the store.";

    CONNECTIONS = Gauge "millrace_connections" ["core", "provider"]
        "Connections open.";
    CONNECTIONS_ACCEPTED = Counter "millrace_connections_accepted_total" ["provider"]
        "Connections accepted.";
    CONNECTIONS_REFUSED = Counter "millrace_connections_refused_total" ["provider", "reason"]
        "Connections refused before they carried a request.";
    CONNECTIONS_CLOSED = Counter "millrace_connections_closed_total" ["provider", "reason"]
        "Connections ended, by who or what ended them.";
    CREDITS_GRANTED = Gauge "millrace_credits_granted" ["core"]
        "Credits granted, over all connections.";
    CREDITS_IN_USE = Gauge "millrace_credits_in_use" ["core"]
        "Credits whose requests are not answered yet.";
    CREDITS_REQUESTED = Gauge "millrace_credits_requested" ["core"]
        "Credits that clients wish for, over all connections.";
    CREDIT_CUTS = Counter "millrace_credit_cuts_total" ["core", "cause"]
        "Times a grant was lowered, by the shortage that caused it.";
    CREDIT_OVERRUNS = Counter "millrace_credit_overruns_total" ["provider"]
        "Requests beyond a connection's grant.";

    REPLIES_WITHHELD = Gauge "millrace_replies_withheld" ["core"]
        "Replies held back because exposures hold all of a connection's credits.";
    REPLY_WITHHOLDS = Counter "millrace_reply_withholds_total" ["core"]
        "Times a reply was held back because exposures held all of a connection's credits.";
    THROTTLED = Counter "millrace_throttled_seconds_total" ["core", "cause"]
        "Time that calls and replies had to wait, by cause, summed over calls.";
    CLIENTS = Gauge "millrace_clients" ["core"]
        "Clients (addresses) with RDMA connections.";

    RPCRDMA_CONNECTIONS = Gauge "millrace_rpcrdma_connections" ["core", "version"]
        "Connections by the RPC-over-RDMA version of their latest call.";
    RPCRDMA_MESSAGES = Counter "millrace_rpcrdma_messages_total" ["direction", "type"]
        "RPC-over-RDMA messages.";
    RPCRDMA_ERRORS = Counter "millrace_rpcrdma_errors_total" ["error"]
        "RPC-over-RDMA messages that were answered with an error, by its code, or dropped.";
    RDMA_OPERATIONS = Counter "millrace_rdma_operations_total" ["provider", "operation"]
        "RDMA work completed, by operation.";
    RDMA_BYTES = Counter "millrace_rdma_bytes_total" ["provider", "operation"]
        "Bytes moved by RDMA, by operation.";
    RDMA_FAILURES = Counter "millrace_rdma_failures_total" ["provider", "status"]
        "RDMA work that completed in error, by status.";
    FABRIC_FRAMES = Counter "millrace_fabric_frames_total" ["provider", "direction"]
        "Frames of the software provider (FPDUs).";
    FABRIC_BYTES = Counter "millrace_fabric_bytes_total" ["provider", "direction"]
        "Bytes on the network, headers and all.";
    FABRIC_DIRECT_BYTES = Counter "millrace_fabric_direct_bytes_total" ["provider"]
        "Received bytes that the kernel put straight into registered memory.";
    FABRIC_SYSTEM_CALLS = Counter "millrace_fabric_system_calls_total" ["provider", "call"]
        "System calls to receive, to send, and to ask which sockets are ready.";
    FABRIC_CRC_ERRORS = Counter "millrace_fabric_crc_errors_total" ["provider"]
        "Frames with a wrong check value; each ended its connection.";
    FABRIC_TERMINATES = Counter "millrace_fabric_terminates_total" ["provider", "direction"]
        "Terminate messages, each of which ended a connection in error.";
    EXPOSURES = Gauge "millrace_exposures" ["core"]
        "Read-chunk replies that are held until RDMA_DONE.";
    EXPOSURES_OPENED = Counter "millrace_exposures_opened_total" ["core"]
        "Read-chunk replies.";
    EXPOSURES_REFUSED = Counter "millrace_exposures_refused_total" ["core"]
        "Replies answered with an error because a bound forbade one more read-chunk reply.";
    EXPOSED_BYTES = Gauge "millrace_exposed_bytes" ["core"]
        "Bytes held for read-chunk replies.";
    RDMA_DONES = Counter "millrace_rdma_dones_total" ["core", "outcome"]
        "RDMA_DONE messages: awaited, or stray ones that changed nothing.";
    EXPOSURES_EXPIRED = Counter "millrace_exposures_expired_total" ["core"]
        "Exposures that ended without RDMA_DONE.";

    RPC_REQUESTS = Counter "millrace_rpc_requests_total" ["program", "procedure"]
        "Requests answered.";
    RPC_ERRORS = Counter "millrace_rpc_errors_total" ["program", "procedure", "status"]
        "Requests answered with a status other than success.";
    RPC_REJECTED = Counter "millrace_rpc_rejected_total" ["reason"]
        "Calls refused before a procedure was reached.";
    RPC_IN_FLIGHT = Gauge "millrace_rpc_in_flight" ["core"]
        "Requests that are not answered yet.";
    RPC_DURATION = Histogram "millrace_rpc_duration_seconds" ["program", "procedure"]
        "Time from a request's arrival to the end of the turn that encoded its reply.";
    RPC_DATA = Counter "millrace_rpc_data_bytes_total" ["program", "procedure"]
        "Bytes of file data read or written.";
    RPC_DUPLICATES = Counter "millrace_rpc_duplicates_total" ["outcome"]
        "Repeated calls, by what the duplicate request cache did.";

    STORE_CAPACITY = Gauge "millrace_store_capacity_bytes" ["export"]
        "Bytes an export can hold.";
    STORE_USED = Gauge "millrace_store_used_bytes" ["export"]
        "Bytes an export holds.";
    STORE_FILES = Gauge "millrace_store_files" ["export"]
        "Files and folders of an export.";

    BUILD_INFO = Gauge "millrace_build_info" ["version"]
        "Always 1; the label says what runs.";
    PROCESS_CPU = Counter "millrace_process_cpu_seconds_total" []
        "Processor time of the process, user and system.";
    PROCESS_MEMORY = Gauge "millrace_process_resident_memory_bytes" []
        "Resident memory of the process, without huge pages.";
    PROCESS_HUGETLB = Gauge "millrace_process_hugetlb_memory_bytes" []
        "Huge pages of the process.";
    PROCESS_START = Gauge "millrace_process_start_time_seconds" []
        "When the process started, in seconds since 1970.";

    // CONFIG
    CONFIG_GENERATION = Gauge "millrace_config_generation" []
        "The configuration's generation; the one the server started with is 1.";
    CONFIG_CHANGES = Counter "millrace_config_changes_total" ["outcome"]
        "Changes of the configuration that were asked for, by what became of them.";
    CONFIG_RELOADS = Counter "millrace_config_reloads_total" ["outcome"]
        "Reloads of the configuration file, ok or failed.";
    CONFIG_LAST_RELOAD = Gauge "millrace_config_last_reload_successful" []
        "1 when the last reload of the configuration file went well, else 0.";
    CONFIG_LAST_RELOAD_SUCCESS = Gauge "millrace_config_last_reload_success_timestamp_seconds" []
        "When the configuration file was last read well, in seconds since 1970.";
    CONFIG_RESTART_REQUIRED = Gauge "millrace_config_restart_required" []
        "Keys of the configuration that wait for a restart of the server.";
}
