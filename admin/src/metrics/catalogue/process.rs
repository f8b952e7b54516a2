//! Metrics of the process and its state.

super::families! {
    /// The process and its state.
    PROCESS = "Service and process";

    READY = Gauge "millrace_ready" in "0 or 1" []
        "1 while the service accepts connections and calls, as in /readyz."
        for "Zero for long: a start or a drain does not complete.";
    DRAINING = Gauge "millrace_draining" in "0 or 1" []
        "1 while the service drains: calls in progress are finished, new calls and connections are refused."
        for "Distinguishes maintenance from a fault.";
    BUILD_INFO = Gauge "millrace_build_info" in "1" [RELEASE, PROFILE, RUSTC]
        "Always 1; the labels identify the build."
        for "The version of each server, to join with other metrics.";
    PROCESS_START = Gauge "millrace_process_start_time_seconds" in "seconds" []
        "When the process started, in seconds since 1970."
        for "Uptime, and restarts.";
    PROCESS_CPU = Counter "millrace_process_cpu_seconds_total" in "seconds" []
        "Processor time of the process, user and system."
        for "With `reactors.poll: busy` each reactor takes a whole core; see busy time for real use.";
    PROCESS_MEMORY = Gauge "millrace_process_resident_memory_bytes" in "bytes" []
        "Resident memory of the process, without huge pages."
        for "Memory leaks.";
    PROCESS_HUGETLB = Gauge "millrace_process_hugetlb_memory_bytes" in "bytes" []
        "Huge pages of the process."
        for "Pools and memory stores, where huge pages are available."
        absent "kernels without huge pages";
    PROCESS_FDS = Gauge "millrace_process_open_fds" in "descriptors" []
        "File descriptors open."
        for "Each connection takes one.";
    PROCESS_FDS_MAX = Gauge "millrace_process_max_fds" in "descriptors" []
        "File descriptors that the process may have open."
        for "Limits the number of connections."
        absent "processes without such a limit";
    PROCESS_THREADS = Gauge "millrace_process_threads" in "threads" []
        "Threads of the process."
        for "Reactors and a few helpers: growth is a leak.";
    LOG_DROPPED = Counter "millrace_log_lines_dropped_total" in "lines" []
        "Log lines dropped because standard error was blocked for too long."
        for "The reader of the log has stopped, or is too slow."
        absent "processes that do not write the log";
    LOG_LEFT_OUT = Counter "millrace_log_lines_left_out_total" in "lines" []
        "Log lines left out because there were too many of one kind in a short time."
        for "A client repeats the same action; the log names the kind of lines."
        absent "processes that do not write the log";
}
