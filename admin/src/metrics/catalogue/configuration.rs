//! Metrics of the configuration and its changes.

super::families! {
    /// The configuration and its changes.
    CONFIGURATION = "Configuration";

    CONFIG_GENERATION = Gauge "millrace_config_generation" in "generations" []
        "The configuration's generation; the one the server started with is 1."
        for "Marks changes on other graphs."
        absent "millraced has it; a service without a ledger of changes does not";
    CONFIG_CHANGES = Counter "millrace_config_changes_total" in "changes" [CHANGE]
        "Changes of the configuration that were asked for, by what became of them."
        for "Who keeps changing things, and changes that fail."
        absent "millraced has it; a service without a ledger of changes does not";
    CONFIG_RELOADS = Counter "millrace_config_reloads_total" in "reloads" [RELOAD]
        "Reloads of the configuration file, ok or failed."
        for "Whether reloads happen at all."
        absent "millraced has it; a service without a ledger of changes does not";
    CONFIG_LAST_RELOAD = Gauge "millrace_config_last_reload_successful" in "0 or 1" []
        "1 when the last reload of the configuration file went well, else 0."
        for "To be alerted: the file is not what the server runs by."
        absent "millraced has it; a service without a ledger of changes does not";
    CONFIG_LAST_RELOAD_SUCCESS = Gauge "millrace_config_last_reload_success_timestamp_seconds"
        in "seconds" []
        "When the configuration file was last read well, in seconds since 1970."
        for "How old the running configuration is."
        absent "millraced has it; a service without a ledger of changes does not";
    CONFIG_RESTART_REQUIRED = Gauge "millrace_config_restart_required" in "keys" []
        "Keys of the configuration that wait for a restart of the server."
        for "Changes that are accepted and not in force."
        absent "millraced has it; a service without a ledger of changes does not";
}
