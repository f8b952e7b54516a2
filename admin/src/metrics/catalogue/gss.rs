//! Metrics of Kerberos.

super::families! {
    /// Contexts of RPCSEC_GSS and the calls under them.
    KERBEROS = "Kerberos";

    GSS_CONTEXTS = Gauge "millrace_gss_contexts" in "contexts" []
        "Security contexts: authenticated users of clients."
        for "Near `gss.contexts`, contexts are evicted, and clients have to create them again."
        absent "servers without Kerberos";
    GSS_CREATED = Counter "millrace_gss_created_total" in "contexts" []
        "Contexts created."
        for "Rate of authentications. Far more contexts than users: contexts end too early."
        absent "servers without Kerberos";
    GSS_CREATIONS_FAILED = Counter "millrace_gss_creations_failed_total" in "creations" [GSS_FAILURE]
        "Contexts that were not created."
        for "Alert: users are refused. The log has cause and remedy."
        absent "servers without Kerberos";
    GSS_ENDED = Counter "millrace_gss_ended_total" in "contexts" [GSS_END]
        "Contexts that have ended."
        for "`evicted`: `gss.contexts` or `gss.contexts_per_client` is too low."
        absent "servers without Kerberos";
    GSS_CREATION_SECONDS = Histogram "millrace_gss_creation_seconds" in "seconds" []
        "Time from a client's token to the result."
        for "Long times show a slow name service, or too few helper threads."
        absent "servers without Kerberos";
    GSS_PENDING = Gauge "millrace_gss_pending" in "creations" []
        "Context creations that are running, or wait for a helper thread."
        for "Near `gss.pending`, clients are refused until threads are free."
        absent "servers without Kerberos";
    GSS_CALLS = Counter "millrace_gss_calls_total" in "calls" [GSS_SERVICE]
        "Calls whose sender was verified."
        for "Which protection is in use."
        absent "servers without Kerberos";
    GSS_REFUSED = Counter "millrace_gss_refused_total" in "calls" [GSS_REFUSAL]
        "Calls refused for their credential, verifier or body."
        for "`credential` is normal after a restart: clients create their contexts again. `body` shows damage, or a faulty client."
        absent "servers without Kerberos";
    GSS_DROPPED = Counter "millrace_gss_dropped_total" in "calls" [GSS_DROP]
        "Calls dropped because of their sequence numbers."
        for "`old` shows a window too small for a client's calls in flight: raise `gss.window`."
        absent "servers without Kerberos";
    GSS_REPLIES_UNVERIFIED = Counter "millrace_gss_callback_replies_unverified_total" in "replies" []
        "Replies to callbacks that did not verify, and counted as none."
        for "Any increase shows damage, a faulty client, or someone between client and server."
        absent "servers without Kerberos";
    GSS_PROTECTED_BYTES = Counter "millrace_gss_protected_bytes_total" in "bytes" [GSS_SERVICE, DIRECTION]
        "Bytes of arguments and results with integrity or privacy."
        for "How much data is signed and encrypted."
        absent "servers without Kerberos";
    GSS_CRYPTO_SECONDS = Counter "millrace_gss_crypto_seconds_total" in "seconds" []
        "Time that reactors spent on integrity and privacy of arguments and results."
        for "The share of the cores used for protection."
        absent "servers without Kerberos";
    GSS_KEYTAB_AGE = Gauge "millrace_gss_keytab_age_seconds" in "seconds" []
        "Time since the keytab was read."
        for "If the file was changed since then, the new one cannot be used."
        absent "servers without Kerberos";
    GSS_NAME_LOOKUP_SECONDS = Histogram "millrace_gss_name_lookup_seconds" in "seconds" []
        "Duration of lookups of users and groups."
        for "A slow name service delays new users."
        absent "servers without Kerberos";
    GSS_NAMES_UNKNOWN = Counter "millrace_gss_names_unknown_total" in "names" []
        "Principals that were looked up and are not users of this host."
        for "They act as the anonymous user."
        absent "servers without Kerberos";
}
