//! Metrics of buffers and other things that run short.

super::families! {
    /// Buffers, and who waits for them.
    MEMORY = "Pools and shortages";

    POOL_MEMORY = Gauge "millrace_pool_memory_bytes" in "bytes" [CORE, PAGE_SIZE]
        "Memory that buffers are cut from, by the size of its pages."
        for "Whether the reactor got hugepages, and what live growth added.";
    POOL_BUFFERS = Gauge "millrace_pool_buffers" in "buffers" [CORE, CLASS]
        "Buffers there are, handed out or free."
        for "The ceiling of the buffers in use; grows as classes cut more from the memory.";
    POOL_BUFFERS_IN_USE = Gauge "millrace_pool_buffers_in_use" in "buffers" [CORE, CLASS]
        "Buffers handed out."
        for "How near the pool is to its end.";
    POOL_BUFFERS_HIGH_WATER = Gauge "millrace_pool_buffers_high_water" in "buffers" [CORE, CLASS]
        "The most buffers handed out at once so far."
        for "Sizing `mempool.size`.";
    POOL_WAITERS = Gauge "millrace_pool_waiters" in "requests" [CORE, CLASS]
        "Requests that wait for a buffer."
        for "Backpressure at this moment.";
    POOL_WAITS = Counter "millrace_pool_waits_total" in "requests" [CORE, CLASS]
        "Requests that had to wait for a buffer."
        for "A rate that stays above zero asks for a larger `mempool.size` or fewer credits.";
    SHORTAGE_WAITS = Counter "millrace_shortage_waits_total" in "requests" [CORE, RESOURCE]
        "Requests that had to wait for send queue room, a buffer for their reply, or an exposure."
        for "Which bound holds requests up.";
}
