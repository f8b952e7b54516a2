//! The panels of the dashboard. `$instance` is the selected servers, `$__rate_interval` an interval
//! with several scrapes.

/// One panel.
pub(super) struct Panel {
    pub title: &'static str,
    /// Shown on request: what to look for.
    pub description: &'static str,
    /// In Grafana's notation.
    pub unit: &'static str,
    pub form: PanelForm,
    /// Queries and the legends of their lines.
    pub queries: &'static [(&'static str, &'static str)],
}

/// The form of a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PanelForm {
    /// The latest number, a quarter of a row wide.
    Number,
    /// Lines over time.
    Lines,
    /// Stacked areas over time.
    Stack,
}

macro_rules! panel {
    ($form:ident $title:literal $unit:literal $description:literal
     $($query:literal => $legend:literal),+ $(,)?) => {
        Panel {
            title: $title,
            description: $description,
            unit: $unit,
            form: PanelForm::$form,
            queries: &[$(($query, $legend)),+],
        }
    };
}

/// The rows of the dashboard.
pub(super) static ROWS: &[(&str, &[Panel])] = &[
    (
        "Overview",
        &[
            panel!(Number "Ready" "bool_yes_no" "Whether the servers take connections and calls."
                r#"millrace_ready{instance=~"$instance"}"# => "{{instance}}"),
            panel!(Number "Uptime" "s" "Time since the process started."
                r#"time() - millrace_process_start_time_seconds{instance=~"$instance"}"# => "{{instance}}"),
            panel!(Number "Connections" "short" "Open connections, RDMA and TCP."
                r#"sum(millrace_connections{instance=~"$instance"})"# => "connections"),
            panel!(Number "Version" "string" "What runs."
                r#"millrace_build_info{instance=~"$instance"}"# => "{{version}} ({{profile}})"),
            panel!(Lines "Throughput" "Bps" "File data that NFS calls read and wrote."
                r#"sum by (procedure) (rate(millrace_rpc_data_bytes_total{instance=~"$instance"}[$__rate_interval]))"# => "{{procedure}}"),
            panel!(Stack "Operations" "ops" "Calls answered each second, by procedure."
                r#"sum by (program, procedure) (rate(millrace_rpc_requests_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "{{program}} {{procedure}}"),
        ],
    ),
    (
        "Latency",
        &[
            panel!(Lines "Median by procedure" "s" "Median time inside the server."
                r#"histogram_quantile(0.5, sum by (le, procedure) (rate(millrace_rpc_duration_seconds_bucket{instance=~"$instance",program="nfs"}[$__rate_interval])))"# => "{{procedure}}"),
            panel!(Lines "99th percentile by procedure" "s" "p99 of the time inside the server."
                r#"histogram_quantile(0.99, sum by (le, procedure) (rate(millrace_rpc_duration_seconds_bucket{instance=~"$instance",program="nfs"}[$__rate_interval])))"# => "{{procedure}}"),
            panel!(Lines "99th percentile of READ and WRITE by size" "s" "Large transfers take \
                longer; small ones should not."
                r#"histogram_quantile(0.99, sum by (le, procedure, size) (rate(millrace_rpc_duration_seconds_bucket{instance=~"$instance",procedure=~"read|write",size!="none"}[$__rate_interval])))"# => "{{procedure}} {{size}}"),
            panel!(Lines "99th percentile of the store" "s" "Operations of the exports' stores, of a sample of one in 64."
                r#"histogram_quantile(0.99, sum by (le, class) (rate(millrace_store_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))"# => "{{class}}"),
        ],
    ),
    (
        "Reactors",
        &[
            panel!(Lines "Busy" "percentunit" "Share of each core that finds work. Above 90 % the core is full."
                r#"rate(millrace_reactor_busy_seconds_total{instance=~"$instance"}[$__rate_interval])"# => "{{instance}} core {{core}}"),
            panel!(Lines "Queues" "short" "Calls in service, calls that wait for a task, messages in the mailbox."
                r#"sum by (core) (millrace_reactor_tasks{instance=~"$instance"})"# => "in service, core {{core}}",
                r#"sum by (core) (millrace_reactor_backlog{instance=~"$instance"})"# => "waiting, core {{core}}",
                r#"sum by (core) (millrace_reactor_mailbox_messages{instance=~"$instance"})"# => "messages, core {{core}}"),
            panel!(Lines "Stalls" "s" "Time since the last turn; it grows while a reactor is stuck."
                r#"millrace_reactor_last_turn_age_seconds{instance=~"$instance"}"# => "{{instance}} core {{core}}",
                r#"millrace_reactor_stalled{instance=~"$instance"} > 0"# => "stalled: {{instance}} core {{core}}"),
            panel!(Lines "Connections by core" "short" "How evenly they are distributed over the \
                cores."
                r#"sum by (core, provider) (millrace_connections{instance=~"$instance"})"# => "{{provider}}, core {{core}}"),
        ],
    ),
    (
        "Memory and credits",
        &[
            panel!(Lines "Buffers in use" "percentunit" "Share of the buffers of each class in use."
                r#"sum by (class) (millrace_pool_buffers_in_use{instance=~"$instance"}) / sum by (class) (millrace_pool_buffers{instance=~"$instance"})"# => "{{class}}"),
            panel!(Lines "Waits" "ops" "Requests that had to wait for a buffer or another bounded \
                resource."
                r#"sum by (class) (rate(millrace_pool_waits_total{instance=~"$instance"}[$__rate_interval]))"# => "buffer {{class}}",
                r#"sum by (resource) (rate(millrace_shortage_waits_total{instance=~"$instance"}[$__rate_interval]))"# => "{{resource}}"),
            panel!(Lines "Credits" "short" "Requested, granted, and in use."
                r#"sum(millrace_credits_requested{instance=~"$instance"})"# => "requested",
                r#"sum(millrace_credits_granted{instance=~"$instance"})"# => "granted",
                r#"sum(millrace_credits_in_use{instance=~"$instance"})"# => "in use"),
            panel!(Stack "Throttled" "short" "Throttled calls on average, by cause."
                r#"sum by (cause) (rate(millrace_throttled_seconds_total{instance=~"$instance"}[$__rate_interval]))"# => "{{cause}}"),
        ],
    ),
    (
        "Fabric",
        &[
            panel!(Lines "Network" "Bps" "Bytes on the network, headers and all."
                r#"sum by (direction) (rate(millrace_fabric_bytes_total{instance=~"$instance"}[$__rate_interval]))"# => "{{direction}}"),
            panel!(Lines "Work requests" "ops" "Completed, by operation."
                r#"sum by (operation) (rate(millrace_rdma_operations_total{instance=~"$instance"}[$__rate_interval]))"# => "{{operation}}"),
            panel!(Lines "System calls for each call" "none" "Batching of turns: below one is good."
                r#"sum by (call) (rate(millrace_fabric_system_calls_total{instance=~"$instance"}[$__rate_interval])) / on () group_left () sum(rate(millrace_rpc_requests_total{instance=~"$instance"}[$__rate_interval]) > 0)"# => "{{call}}"),
            panel!(Lines "Errors" "ops" "Should be zero: failed work requests, damaged frames, \
                connections ended in error, protocol errors."
                r#"sum by (status) (rate(millrace_rdma_failures_total{instance=~"$instance"}[$__rate_interval]))"# => "work {{status}}",
                r#"sum(rate(millrace_fabric_crc_errors_total{instance=~"$instance"}[$__rate_interval]))"# => "CRC",
                r#"sum by (direction) (rate(millrace_fabric_terminates_total{instance=~"$instance"}[$__rate_interval]))"# => "terminate {{direction}}",
                r#"sum by (error) (rate(millrace_rpcrdma_errors_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "RPC-over-RDMA {{error}}"),
            panel!(Lines "Connections that ended" "ops" "By cause."
                r#"sum by (provider, reason) (rate(millrace_connections_closed_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "{{provider}} {{reason}}",
                r#"sum by (provider, reason) (rate(millrace_connections_refused_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "refused: {{provider}} {{reason}}"),
            panel!(Lines "Exposures" "short" "Read-chunk replies held until RDMA_DONE, and those that expire."
                r#"sum(millrace_exposures{instance=~"$instance"})"# => "held",
                r#"sum(rate(millrace_exposures_expired_total{instance=~"$instance"}[$__rate_interval]))"# => "expired each second"),
        ],
    ),
    (
        "RDMA devices",
        &[
            panel!(Lines "Devices and ports" "short" "1 while a device is in use, or a port is \
                active."
                r#"millrace_rdma_device_in_use{instance=~"$instance"}"# => "{{instance}} {{device}}",
                r#"millrace_rdma_port_active{instance=~"$instance"}"# => "{{instance}} {{device}} port {{port}} {{state}}"),
            panel!(Lines "Registered memory" "bytes" "Pinned for each device: all buffers and exports in memory."
                r#"millrace_rdma_device_registered_bytes{instance=~"$instance"}"# => "{{instance}} {{device}}"),
            panel!(Lines "Doorbells and completions" "ops" "Work requests handed to devices, and \
                completions taken from them."
                r#"sum by (queue) (rate(millrace_verbs_doorbells_total{instance=~"$instance"}[$__rate_interval]))"# => "doorbells {{queue}}",
                r#"sum(rate(millrace_verbs_completions_total{instance=~"$instance"}[$__rate_interval]))"# => "completions",
                r#"sum(rate(millrace_verbs_inlined_sends_total{instance=~"$instance"}[$__rate_interval]))"# => "inlined sends",
                r#"sum(rate(millrace_verbs_armed_total{instance=~"$instance"}[$__rate_interval]))"# => "armed"),
            panel!(Lines "Trouble of devices" "ops" "Should be zero: waits for send queue space, \
                lost devices, work never completed. And events by kind."
                r#"sum(rate(millrace_verbs_send_queue_waits_total{instance=~"$instance"}[$__rate_interval]))"# => "send queue waits",
                r#"sum(rate(millrace_verbs_connections_lost_total{instance=~"$instance"}[$__rate_interval]))"# => "connections lost",
                r#"sum(rate(millrace_verbs_undrained_total{instance=~"$instance"}[$__rate_interval]))"# => "undrained",
                r#"sum by (device, event) (rate(millrace_rdma_device_events_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "{{device}} {{event}}"),
        ],
    ),
    (
        "NFS",
        &[
            panel!(Lines "Failures by status" "ops" "NFS calls that failed, by status."
                r#"sum by (status) (rate(millrace_nfs_errors_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "{{status}}"),
            panel!(Lines "Rejected calls and replays" "ops" "Calls rejected before a procedure, \
                and repetitions answered from the cache."
                r#"sum by (reason) (rate(millrace_rpc_rejected_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "{{reason}}",
                r#"sum(rate(millrace_replay_lookups_total{instance=~"$instance",outcome="replayed"}[$__rate_interval]))"# => "replayed"),
        ],
    ),
    (
        "Clients and exports",
        &[
            panel!(Stack "Clients by throughput" "Bps" "The ten with the most data."
                r#"topk(10, sum by (client) (rate(millrace_client_data_bytes_total{instance=~"$instance",client!="other"}[$__rate_interval])))"# => "{{client}}"),
            panel!(Stack "Clients by calls" "ops" "The ten with the most calls."
                r#"topk(10, sum by (client) (rate(millrace_client_requests_total{instance=~"$instance",client!="other"}[$__rate_interval])))"# => "{{client}}"),
            panel!(Stack "Clients held back" "short" "Calls that wait on average for a limit or a \
                share; the ten most throttled."
                r#"topk(10, sum by (client) (rate(millrace_client_throttled_seconds_total{instance=~"$instance",client!="other"}[$__rate_interval])) > 0)"# => "{{client}}"),
            panel!(Lines "Exports by throughput" "Bps" "Data read from and written to each export."
                r#"sum by (export, operation) (rate(millrace_export_data_bytes_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} {{operation}}"),
            panel!(Lines "Exports by calls" "ops" "Calls on each export, and calls that wait for \
                its limit."
                r#"sum by (export) (rate(millrace_export_requests_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}}",
                r#"sum by (export) (millrace_export_waiting{instance=~"$instance"}) > 0"# => "waiting at {{export}}"),
            panel!(Lines "99th percentile by export" "s" "p99 of the time inside the server, of calls \
                that read or write data and of all others."
                r#"histogram_quantile(0.99, sum by (le, export, call) (rate(millrace_export_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))"# => "{{export}} {{call}}"),
            panel!(Lines "99th percentile by class of clients" "s" "p99 of the time inside the server, by \
                the entry of `limits` that applies to the client."
                r#"histogram_quantile(0.99, sum by (le, class, call) (rate(millrace_client_class_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))"# => "{{class}} {{call}}"),
            panel!(Lines "Exports by fill" "percentunit" "Share of each export's capacity that is used."
                r#"millrace_export_used_bytes{instance=~"$instance"} / millrace_export_capacity_bytes{instance=~"$instance"}"# => "{{instance}} {{export}}"),
        ],
    ),
    (
        "Folders",
        &[
            panel!(Lines "Not durable yet" "bytes" "Bytes written that are not known to be \
                durable, and their limit."
                r#"millrace_store_dirty_bytes{instance=~"$instance"}"# => "{{instance}} {{export}}",
                r#"millrace_store_dirty_limit_bytes{instance=~"$instance"}"# => "bound of {{export}}"),
            panel!(Lines "Reads and writes by way" "ops" "Direct, from the page cache, or through \
                it."
                r#"sum by (export, way) (rate(millrace_store_reads_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "{{export}} read {{way}}",
                r#"sum by (export, way) (rate(millrace_store_writes_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "{{export}} write {{way}}"),
            panel!(Lines "Syncs" "ops" "Syncs: of data for COMMITs, of data beyond `limits.dirty`, \
                of names and attributes."
                r#"sum by (export) (rate(millrace_store_commits_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} commits",
                r#"sum by (export) (rate(millrace_store_syncs_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} syncs",
                r#"sum by (export) (rate(millrace_store_forced_syncs_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} forced",
                r#"sum by (export) (rate(millrace_store_name_syncs_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} names"),
            panel!(Lines "Under way" "short" "Data operations and helper jobs, running and \
                waiting, and open objects."
                r#"sum by (export) (millrace_store_operations{instance=~"$instance"})"# => "{{export}} operations",
                r#"sum by (export) (millrace_store_operations_waiting{instance=~"$instance"})"# => "{{export}} operations waiting",
                r#"sum by (export, state) (millrace_store_helper_jobs{instance=~"$instance"})"# => "{{export}} jobs {{state}}",
                r#"sum by (export) (millrace_store_helper_threads{instance=~"$instance"})"# => "{{export}} threads",
                r#"sum by (export) (millrace_store_open_objects{instance=~"$instance"})"# => "{{export}} open"),
            panel!(Lines "Trouble of folders" "short" "Should be zero: failed write-back, new \
                write verifiers, JUKEBOX answers, seconds without progress."
                r#"sum by (export) (rate(millrace_store_write_back_errors_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} write-back errors",
                r#"sum by (export) (rate(millrace_store_verifier_changes_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} new verifiers",
                r#"sum by (export) (rate(millrace_store_delays_total{instance=~"$instance"}[$__rate_interval]))"# => "{{export}} delays",
                r#"millrace_store_stuck_seconds{instance=~"$instance"}"# => "{{instance}} {{export}} stuck"),
        ],
    ),
    (
        "Configuration and process",
        &[
            panel!(Number "Generation" "short" "Of the running configuration."
                r#"millrace_config_generation{instance=~"$instance"}"# => "{{instance}}"),
            panel!(Number "Waiting for a restart" "short" "Keys of the configuration."
                r#"millrace_config_restart_required{instance=~"$instance"}"# => "{{instance}}"),
            panel!(Number "Last reload" "bool_yes_no" "Whether it succeeded."
                r#"millrace_config_last_reload_successful{instance=~"$instance"}"# => "{{instance}}"),
            panel!(Number "Draining" "bool_yes_no" "Whether the service finishes calls and refuses \
                new ones."
                r#"millrace_draining{instance=~"$instance"}"# => "{{instance}}"),
            panel!(Lines "Memory" "bytes" "Resident, and in huge pages."
                r#"millrace_process_resident_memory_bytes{instance=~"$instance"}"# => "{{instance}} resident",
                r#"millrace_process_hugetlb_memory_bytes{instance=~"$instance"}"# => "{{instance}} huge pages"),
            panel!(Lines "Changes and reloads" "ops" "Of the configuration, by outcome."
                r#"sum by (outcome) (rate(millrace_config_changes_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "change {{outcome}}",
                r#"sum by (outcome) (rate(millrace_config_reloads_total{instance=~"$instance"}[$__rate_interval])) > 0"# => "reload {{outcome}}"),
        ],
    ),
];
