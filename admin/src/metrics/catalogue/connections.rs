//! Metrics of connections, clients, and what they are allowed.

super::families! {
    /// Connections and who made them.
    CONNECTIONS_AND_CLIENTS = "Connections and clients";

    CONNECTIONS = Gauge "millrace_connections" in "connections" [CORE, PROVIDER]
        "Open connections, in any state."
        for "Number of connections, and their distribution over cores.";
    CONNECTIONS_ACCEPTED = Counter "millrace_connections_accepted_total" in "connections" [PROVIDER]
        "Connections that were established."
        for "A high rate means that clients reconnect.";
    CONNECTIONS_REFUSED = Counter "millrace_connections_refused_total" in "connections"
        [PROVIDER, REFUSAL]
        "Connections refused before they carried a request."
        for "Peers that violate the protocol, time out during setup, or exceed the limit of connections or of peers that no export admits.";
    ACCEPT_PAUSES = Counter "millrace_accept_pauses_total" in "pauses" [LISTENER]
        "Times that a listener paused accepting, as descriptors or memory were short."
        for "Should be zero: raise the limit of open files, or find the client with too many connections.";
    CONNECTIONS_TURNED_AWAY = Counter "millrace_connections_turned_away_total" in "connections"
        [CORE]
        "RDMA connections refused because their client holds its share of the reactor's memory, no buffers are free, the limit of clients that no export admits is reached, or an operator has banned it."
        for "A client with too many connections, or a pool that is too small.";
    CONNECTIONS_STUCK = Counter "millrace_connections_stuck_total" in "connections" [CORE]
        "RDMA connections closed because their clients answered RDMA Reads too slowly."
        for "Clients that stopped serving reads; they count among the closed ones as well.";
    CONNECTIONS_UNTAKEN = Counter "millrace_connections_untaken_total" in "connections" [CORE]
        "Connections closed because their clients received data too slowly."
        for "Clients that are gone, broken or hostile, against `flow.transfer_least`; they count among the closed ones as well.";
    CONNECTIONS_CLOSED = Counter "millrace_connections_closed_total" in "connections"
        [PROVIDER, CLOSING]
        "Connections ended, by cause."
        for "Orderly ends are `local` and `peer` (`ended` for TCP); investigate all others.";
    CLIENTS = Gauge "millrace_clients" in "clients" [CORE]
        "Clients (addresses) with RDMA connections."
        for "Number of clients that share the reactor's memory.";
}

super::families! {
    /// Clients by address, the busiest of them each with series of its own.
    CLIENT_SERIES = "Clients by address";

    CLIENT_REQUESTS = Counter "millrace_client_requests_total" in "calls" [CLIENT]
        "Calls of a client that were answered, over RDMA and TCP."
        for "Which clients use the server.";
    CLIENT_DATA = Counter "millrace_client_data_bytes_total" in "bytes" [CLIENT, TRANSFER]
        "Bytes of file data read or written by a client."
        for "Which clients use the bandwidth.";
    CLIENT_CLASS_DURATION = Histogram "millrace_client_class_duration_seconds" in "seconds"
        [CLIENT_CLASS, EXPORT_CALL]
        "Time from the arrival of an NFS call of a class of clients to the end of the turn that encoded its reply."
        for "Whether clients with other limits get other latencies.";
    CLIENT_THROTTLED = Counter "millrace_client_throttled_seconds_total" in "seconds" [CLIENT]
        "Time that a client's calls had to wait for a limit or for its share, summed over calls."
        for "Which clients are throttled.";
    CLIENT_CONNECTIONS = Gauge "millrace_client_connections" in "connections" [CLIENT]
        "Open connections of a client, RDMA and TCP."
        for "Clients with many connections, and clients that have left.";
    CLIENT_CREDITS = Gauge "millrace_client_credits_granted" in "credits" [CLIENT]
        "Credits granted to a client, over its connections."
        for "Distribution of credits over clients.";
    CLIENT_MEMORY = Gauge "millrace_client_memory_bytes" in "bytes" [CLIENT]
        "Pool memory held by a client's calls and their replies, until the client has taken them."
        for "Clients that neither take nor send data: a large part of `millrace_pool_memory_bytes` for longer than `flow.transfer_window`.";
    CLIENT_LIMIT_CALLS = Gauge "millrace_client_limit_calls_per_second" in "calls per second" [CLIENT]
        "A client's limit of calls per second; only for clients with such a limit."
        for "Compare with its rate of calls."
        absent "clients without `limits.iops`";
    CLIENT_LIMIT_DATA = Gauge "millrace_client_limit_bytes_per_second" in "bytes per second" [CLIENT]
        "A client's limit of bytes of file data per second; only for clients with such a limit."
        for "Compare with its throughput."
        absent "clients without `limits.bandwidth`";
}

super::families! {
    /// What clients are granted, and what holds them back.
    CREDITS_AND_LIMITS = "Credits and limits";

    CREDITS_GRANTED = Gauge "millrace_credits_granted" in "credits" [CORE]
        "Credits granted, over all connections."
        for "How many calls clients may send at once.";
    CREDITS_REQUESTED = Gauge "millrace_credits_requested" in "credits" [CORE]
        "Credits that clients request, over all connections."
        for "If well above the granted ones, clients could use more.";
    CREDITS_IN_USE = Gauge "millrace_credits_in_use" in "credits" [CORE]
        "Credits whose calls are not answered yet: the most at once in the latest one to two seconds."
        for "Queue depth of the clients, as found by each turn of the reactor.";
    CREDIT_CUTS = Counter "millrace_credit_cuts_total" in "cuts" [CORE, CAUSE]
        "Times a grant was lowered, by shortage."
        for "Which shortage lowers grants.";
    REPLIES_WITHHELD = Gauge "millrace_replies_withheld" in "replies" [CORE]
        "Replies held back because exposures hold all of a connection's credits."
        for "Clients that do not send RDMA_DONE.";
    REPLY_WITHHOLDS = Counter "millrace_reply_withholds_total" in "replies" [CORE]
        "Times a reply was held back because exposures held all of a connection's credits."
        for "How often replies are held back: clients that send RDMA_DONE late.";
    THROTTLED = Counter "millrace_throttled_seconds_total" in "seconds" [CORE, CAUSE]
        "Time that calls and replies had to wait, by cause, summed over calls."
        for "Its rate is the average number of calls that wait for limits and shares.";
}
