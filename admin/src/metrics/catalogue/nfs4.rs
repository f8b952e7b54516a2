//! Metrics of the state of NFS version 4's clients.

super::families! {
    /// Clients of NFS version 4 and what they hold.
    CLIENT_STATE = "State of NFS version 4";

    NFS4_OPERATIONS = Counter "millrace_nfs4_operations_total" in "operations" [NFS4_OPERATION]
        "Answered operations of COMPOUNDs."
        for "What clients of version 4 do: reads, opens, look-ups. Their calls are all COMPOUNDs.";
    NFS4_OPERATION_ERRORS = Counter "millrace_nfs4_operation_errors_total" in "operations" [NFS4_OPERATION]
        "Of these, operations answered with a status other than success."
        for "Which operations fail; a LOOKUP of a missing name counts.";
    NFS4_ERRORS = Counter "millrace_nfs4_errors_total" in "operations" [NFS4_STATUS]
        "The same by status."
        for "Why operations fail: full (`nospc`), a lease that has ended (`expired`), a client that repeats a request with other arguments (`seq_false_retry`).";
    NFS4_REPLAYS = Counter "millrace_nfs4_replays_total" in "calls" []
        "COMPOUNDs answered from the reply cache of a session."
        for "Clients that repeat requests: lost connections.";
    NFS4_CLIENTS = Gauge "millrace_nfs4_clients" in "clients" []
        "Clients of NFS version 4, with or without sessions."
        for "How many clients a restart concerns."
        absent "servers without NFS version 4";
    NFS4_CLIENTS_SILENT = Gauge "millrace_nfs4_clients_silent" in "clients" []
        "Of these, clients that have sent nothing for a lease."
        for "Clients that are down: others may take what they hold."
        absent "servers without NFS version 4";
    NFS4_SESSIONS = Gauge "millrace_nfs4_sessions" in "sessions" []
        "Sessions."
        for "Growth shows clients that do not end their sessions."
        absent "servers without NFS version 4";
    NFS4_OPENS = Gauge "millrace_nfs4_opens" in "opens" []
        "Opens in force."
        for "Growth shows clients that do not close files."
        absent "servers without NFS version 4";
    NFS4_LOCK_STATES = Gauge "millrace_nfs4_lock_states" in "states" []
        "Lock owners by open file, with or without locks at the moment."
        for "How much files are locked."
        absent "servers without NFS version 4";
    NFS4_DELEGATIONS = Gauge "millrace_nfs4_delegations" in "delegations" []
        "Delegations in force."
        for "How many files clients may cache without asking."
        absent "servers without NFS version 4";
    NFS4_REVOKED = Gauge "millrace_nfs4_revoked_states" in "states" []
        "Opens, lock states and delegations that were taken away and not acknowledged by their clients yet."
        for "Clients that lost locks, after an outage or by order of an administrator."
        absent "servers without NFS version 4";
    NFS4_GRACE_SECONDS = Gauge "millrace_nfs4_grace_seconds" in "seconds" []
        "Time until the grace period ends at the latest; 0 outside of it."
        for "After a restart: opens and locks that are no reclaims wait for it."
        absent "servers without NFS version 4";
    NFS4_GRACE_CLIENTS = Gauge "millrace_nfs4_grace_clients" in "clients" []
        "Clients that the grace period waits for."
        for "It ends with the last of them."
        absent "servers without NFS version 4";
    NFS4_RECORD_GROUPS = Counter "millrace_nfs4_record_groups_total" in "groups" []
        "Groups of changes of clients' records that were made durable."
        for "How often clients come and go."
        absent "servers without NFS version 4";
    NFS4_RECORD_FAILURES = Counter "millrace_nfs4_record_failures_total" in "failures" []
        "Failed attempts to make records of clients durable."
        for "Alert: clients get no first open. The state directory is full or damaged."
        absent "servers without NFS version 4";
    NFS4_RECORDS_DAMAGED = Gauge "millrace_nfs4_records_damaged" in "records" []
        "Records of clients that could not be read at the start."
        for "Clients that could not reclaim their opens and locks. The log names the files."
        absent "servers without NFS version 4";
}
