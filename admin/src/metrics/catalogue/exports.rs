//! Metrics of each export.

super::families! {
    /// Each export by itself.
    EXPORTS = "Exports";

    EXPORT_REQUESTS = Counter "millrace_export_requests_total" in "calls" [EXPORT]
        "NFS calls on objects of an export."
        for "Operations per second of each export.";
    EXPORT_ERRORS = Counter "millrace_export_errors_total" in "calls" [EXPORT]
        "NFS calls on objects of an export answered with a status other than success."
        for "Which export fails.";
    EXPORT_DATA = Counter "millrace_export_data_bytes_total" in "bytes" [EXPORT, TRANSFER]
        "Bytes of file data read from or written to an export."
        for "Throughput of each export.";
    EXPORT_DURATION = Histogram "millrace_export_duration_seconds" in "seconds"
        [EXPORT, EXPORT_CALL]
        "Time from the arrival of an NFS call on an export to the end of the turn that encoded its reply."
        for "Latency of each export: calls that moved file data (`read`, `write`), and all others.";
    OTHER_HANDLES = Counter "millrace_handles_of_other_secrets_total" in "uses" []
        "Uses of file handles that were made under a secret below the first line of `handle_secret`."
        for "Replacing the secret: once it no longer grows, the old one can be removed.";
    EXPORT_WAITING = Gauge "millrace_export_waiting" in "calls" [EXPORT]
        "Calls that wait for the export's limit."
        for "Whether `exports.limits` throttles clients of the export.";
    EXPORT_CAPACITY = Gauge "millrace_export_capacity_bytes" in "bytes" [EXPORT]
        "Bytes an export can hold."
        for "Compare with the used bytes.";
    EXPORT_USED = Gauge "millrace_export_used_bytes" in "bytes" [EXPORT]
        "Bytes an export holds."
        for "Predicting when it is full.";
    EXPORT_FILES = Gauge "millrace_export_files" in "files" [EXPORT]
        "Files and folders of an export."
        for "Growth of the number of files.";
    EXPORT_CAPACITY_FILES = Gauge "millrace_export_capacity_files" in "files" [EXPORT]
        "Files and folders an export can have, unless only the space bounds their number."
        for "Compare with the files: without one to spare, creations fail though there is space.";
}
