//! Metrics of the process and its state.

super::families! {
    /// The process and its state.
    PROCESS = "Service and process";

    READY = Gauge "millrace_ready" in "0 or 1" []
        "1 while the service takes connections and calls, as /readyz says it."
        for "Zero for long is a service that does not come up, or a drain that does not end.";
    DRAINING = Gauge "millrace_draining" in "0 or 1" []
        "1 while the service drains: finishes calls and takes no new ones."
        for "Tells a wanted pause from a fault.";
    BUILD_INFO = Gauge "millrace_build_info" in "1" [RELEASE, PROFILE, RUSTC]
        "Always 1; the labels say what runs."
        for "Which version runs where, to be joined with other metrics.";
    PROCESS_START = Gauge "millrace_process_start_time_seconds" in "seconds" []
        "When the process started, in seconds since 1970."
        for "Uptime, and restarts.";
    PROCESS_CPU = Counter "millrace_process_cpu_seconds_total" in "seconds" []
        "Processor time of the process, user and system."
        for "With `reactors.poll: busy` each reactor takes a whole core; see busy time for real use.";
    PROCESS_MEMORY = Gauge "millrace_process_resident_memory_bytes" in "bytes" []
        "Resident memory of the process, without huge pages."
        for "Growth that does not end.";
    PROCESS_HUGETLB = Gauge "millrace_process_hugetlb_memory_bytes" in "bytes" []
        "Huge pages of the process."
        for "Pools and memory stores, where huge pages were to be had."
        absent "kernels without huge pages do not tell";
    PROCESS_FDS = Gauge "millrace_process_open_fds" in "descriptors" []
        "File descriptors open."
        for "Each connection takes one.";
    PROCESS_FDS_MAX = Gauge "millrace_process_max_fds" in "descriptors" []
        "File descriptors that the process may have open."
        for "The bound of connections that the system sets."
        absent "there may be no limit";
    PROCESS_THREADS = Gauge "millrace_process_threads" in "threads" []
        "Threads of the process."
        for "Reactors and a few helpers: a number that grows is a leak.";
    LOG_DROPPED = Counter "millrace_log_lines_dropped_total" in "lines" []
        "Log lines dropped because standard error took none for too long."
        for "The reader of the log has stopped, or is too slow."
        absent "the log is not written by this process";
    LOG_LEFT_OUT = Counter "millrace_log_lines_left_out_total" in "lines" []
        "Log lines left out because there were too many of one kind in a short time."
        for "A client does the same thing again and again; the log says of which kind they were."
        absent "the log is not written by this process";
}
