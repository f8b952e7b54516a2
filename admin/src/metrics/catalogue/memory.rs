//! Metrics of buffers and other things that run short.

super::families! {
    /// Buffers, and who waits for them.
    MEMORY = "Pools and shortages";

    POOL_MEMORY = Gauge "millrace_pool_memory_bytes" in "bytes" [CORE, PAGE_SIZE]
        "Memory of the buffer pool, by page size."
        for "Whether the reactor has huge pages, and how the pool has grown.";
    POOL_BUFFERS = Gauge "millrace_pool_buffers" in "buffers" [CORE, CLASS]
        "Buffers, in use or free."
        for "Compare with the buffers in use; it grows as classes take more of the memory.";
    POOL_BUFFERS_IN_USE = Gauge "millrace_pool_buffers_in_use" in "buffers" [CORE, CLASS]
        "Buffers in use."
        for "How much of the pool is used.";
    POOL_BUFFERS_HIGH_WATER = Gauge "millrace_pool_buffers_high_water" in "buffers" [CORE, CLASS]
        "The most buffers in use at once since the start."
        for "Sizing `mempool.size`.";
    POOL_WAITERS = Gauge "millrace_pool_waiters" in "requests" [CORE, CLASS]
        "Requests that wait for a buffer."
        for "Current back-pressure.";
    POOL_WAITS = Counter "millrace_pool_waits_total" in "requests" [CORE, CLASS]
        "Requests that had to wait for a buffer."
        for "A rate that stays above zero needs a larger `mempool.size` or fewer credits.";
    SHORTAGE_WAITS = Counter "millrace_shortage_waits_total" in "requests" [CORE, RESOURCE]
        "Requests that had to wait for send queue room, a buffer for their reply, or an exposure."
        for "Which resource delays requests.";
}
