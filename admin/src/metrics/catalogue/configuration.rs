//! Metrics of the configuration and its changes.

super::families! {
    /// The configuration and its changes.
    CONFIGURATION = "Configuration";

    CONFIG_GENERATION = Gauge "millrace_config_generation" in "1" []
        "The generation of the configuration; 1 at start."
        for "Correlating a step in another metric with a change of the configuration.";
    CONFIG_CHANGES = Counter "millrace_config_changes_total" in "changes" [CHANGE]
        "Requested changes of the configuration, by outcome."
        for "Changes that the service could not apply, or could not write into the file.";
    CONFIG_RELOADS = Counter "millrace_config_reloads_total" in "reloads" [RELOAD]
        "Reloads of the configuration file, by SIGHUP or through the API."
        for "Whether a reload happened.";
    CONFIG_LAST_RELOAD = Gauge "millrace_config_last_reload_successful" in "0 or 1" []
        "1 when the last reload of the configuration file succeeded, else 0."
        for "Alert: the file is invalid, and the next start would fail.";
    CONFIG_LAST_RELOAD_SUCCESS = Gauge
        "millrace_config_last_reload_success_timestamp_seconds" in "seconds" []
        "When the configuration file was last read successfully, in seconds since 1970."
        for "Age of the configuration in force, compared with that of the file.";
    CONFIG_RESTART_REQUIRED = Gauge "millrace_config_restart_required" in "keys" []
        "Keys of the configuration that wait for a restart of the server."
        for "More than zero for days is a forgotten restart.";
}
