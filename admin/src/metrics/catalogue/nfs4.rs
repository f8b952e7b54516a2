//! Metrics of the state of NFS version 4's clients.

super::families! {
    /// Clients of NFS version 4 and what they hold.
    CLIENT_STATE = "State of NFS version 4";

    NFS4_OPERATIONS = Counter "millrace_nfs4_operations_total" in "operations" [NFS4_OPERATION]
        "Answered operations of COMPOUNDs."
        for "Operations per second of version 4, by kind. As RPC calls they all count as `compound`.";
    NFS4_OPERATION_ERRORS = Counter "millrace_nfs4_operation_errors_total" in "operations" [NFS4_OPERATION]
        "Operations of COMPOUNDs answered with a status other than success."
        for "Which operations fail; a LOOKUP of a missing name counts.";
    NFS4_ERRORS = Counter "millrace_nfs4_errors_total" in "operations" [NFS4_STATUS]
        "Operations of COMPOUNDs answered with a status other than success, by that status."
        for "Why operations fail: full (`nospc`), a lease that has ended (`expired`), a client that repeats a request with other arguments (`seq_false_retry`).";
    NFS4_REPLAYS = Counter "millrace_nfs4_replays_total" in "calls" []
        "COMPOUNDs answered from the reply cache of a session."
        for "Clients that repeat requests after lost connections.";
    NFS4_CLIENTS = Gauge "millrace_nfs4_clients" in "clients" []
        "Clients of NFS version 4, with or without sessions."
        for "How many clients a restart affects."
        absent "servers without NFS version 4";
    NFS4_CLIENTS_SILENT = Gauge "millrace_nfs4_clients_silent" in "clients" []
        "Clients of NFS version 4 that have sent nothing for the time of a lease."
        for "Clients that are down: their opens and locks are revoked if others request them."
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
        "Lock states: pairs of a lock owner and an open file, with or without locks at the moment."
        for "Use of byte-range locks."
        absent "servers without NFS version 4";
    NFS4_DELEGATIONS = Gauge "millrace_nfs4_delegations" in "delegations" []
        "Delegations in force."
        for "How many files clients may cache without asking the server."
        absent "servers without NFS version 4";
    NFS4_REVOKED = Gauge "millrace_nfs4_revoked_states" in "states" []
        "Opens, lock states and delegations that were revoked, and not yet acknowledged by their clients."
        for "Clients that lost locks, after an outage or by an administrator's action."
        absent "servers without NFS version 4";
    NFS4_GRACE_SECONDS = Gauge "millrace_nfs4_grace_seconds" in "seconds" []
        "Time until the grace period ends at the latest; 0 outside of it."
        for "After a restart: until then only reclaims of opens and locks are granted."
        absent "servers without NFS version 4";
    NFS4_GRACE_CLIENTS = Gauge "millrace_nfs4_grace_clients" in "clients" []
        "Clients that the grace period waits for."
        for "The period ends when the last of them has finished its reclaims."
        absent "servers without NFS version 4";
    NFS4_GRANTS_HELD = Gauge "millrace_nfs4_grants_held" in "boolean" []
        "1 while no gateway grants opens and locks because clients of one may reclaim; else 0."
        for "A gateway that does not come back, or whose place no other one takes, keeps it at 1."
        absent "servers without NFS version 4";
    NFS4_RECORD_GROUPS = Counter "millrace_nfs4_record_groups_total" in "groups" []
        "Batches of changes to clients' records that were made durable."
        for "Rate of clients that arrive and leave."
        absent "servers without NFS version 4";
    NFS4_RECORD_FAILURES = Counter "millrace_nfs4_record_failures_total" in "failures" []
        "Failed attempts to make records of clients durable."
        for "Alert: clients without a record get no open. The state directory is full or damaged."
        absent "servers without NFS version 4";
    NFS4_RECORDS_DAMAGED = Gauge "millrace_nfs4_records_damaged" in "records" []
        "Records of clients that could not be read at the start."
        for "Clients that could not reclaim their opens and locks. The log names the files."
        absent "servers without NFS version 4";
}
