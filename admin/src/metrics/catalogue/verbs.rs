//! Metrics of RDMA devices and of the provider on them.

super::families! {
    /// RDMA devices, and the provider on them.
    VERBS = "RDMA devices";

    RDMA_DEVICE_IN_USE = Gauge "millrace_rdma_device_in_use" in "0 or 1" [DEVICE]
        "Whether the device is there and in use; 0 from when it goes until it comes back."
        for "A device that was unplugged or has failed: its connections have ended."
        absent "only servers with `provider: verbs` have devices";
    RDMA_DEVICE_INFO = Gauge "millrace_rdma_device_info" in "always 1"
        [DEVICE, TRANSPORT, FIRMWARE, MEMORY_NODE]
        "The devices that are there, with their network, firmware and memory node."
        for "What the other series of a device are about."
        absent "only servers with `provider: verbs` have devices";
    RDMA_PORT_ACTIVE = Gauge "millrace_rdma_port_active" in "0 or 1" [DEVICE, PORT, PORT_STATE]
        "Whether a port of a device carries traffic, with its state."
        for "A cable, a switch or a network interface that is down."
        absent "only servers with `provider: verbs` have devices";
    RDMA_DEVICE_OPENED = Counter "millrace_rdma_device_opened_total" in "times" [DEVICE]
        "Times that the device was opened."
        for "More than one: it went and came back."
        absent "only servers with `provider: verbs` have devices";
    RDMA_DEVICE_UNPLUGGED = Counter "millrace_rdma_device_unplugged_total" in "times" [DEVICE]
        "Times that the device went while it was in use."
        for "Devices that fail, and drivers that reset them."
        absent "only servers with `provider: verbs` have devices";
    RDMA_DEVICE_REGISTERED = Gauge "millrace_rdma_device_registered_bytes" in "bytes" [DEVICE]
        "Memory that is registered with the device, and so pinned."
        for "Against the limit of locked memory (`ulimit -l`)."
        absent "only servers with `provider: verbs` have devices";
    RDMA_DEVICE_EVENTS = Counter "millrace_rdma_device_events_total" in "events"
        [DEVICE, DEVICE_EVENT]
        "Asynchronous events of a device, by kind."
        for "Ports that go up and down, queues and devices that fail."
        absent "only servers with `provider: verbs` have devices";
    VERBS_DOORBELLS = Counter "millrace_verbs_doorbells_total" in "lists" [CORE, QUEUE]
        "Lists of work requests handed to a device."
        for "Divided by work requests: how well turns batch."
        absent "only servers with `provider: verbs` have it";
    VERBS_COMPLETIONS = Counter "millrace_verbs_completions_total" in "completions" [CORE]
        "Completions taken from completion queues."
        for "Divided by work requests: how many of them are signalled."
        absent "only servers with `provider: verbs` have it";
    VERBS_INLINED = Counter "millrace_verbs_inlined_sends_total" in "sends" [CORE]
        "Sends whose bytes went into the work request itself."
        for "The share of replies that save the device a read of memory."
        absent "only servers with `provider: verbs` have it";
    VERBS_ARMED = Counter "millrace_verbs_armed_total" in "times" [CORE]
        "Sleeps of the reactor for which completion queues were armed."
        for "How often interrupts wake it (`reactors.poll: adaptive`)."
        absent "only servers with `provider: verbs` have it";
    VERBS_QUEUE_WAITS = Counter "millrace_verbs_send_queue_waits_total" in "waits" [CORE]
        "Times that work waited for room in a device's send queue."
        for "Devices whose queues are shorter than the load asks for."
        absent "only servers with `provider: verbs` have it";
    VERBS_CONNECTION_EVENTS = Counter "millrace_verbs_connection_events_total" in "events" [CORE]
        "Events of the connection manager."
        for "Connections that come and go."
        absent "only servers with `provider: verbs` have it";
    VERBS_WINDOWS = Counter "millrace_verbs_windows_bound_total" in "windows" [CORE]
        "Memory windows bound, for replies that clients fetch."
        for "The cost of classic mode on devices with memory windows."
        absent "only servers with `provider: verbs` have it";
    VERBS_REGISTRATIONS = Counter "millrace_verbs_registrations_total" in "registrations" [CORE]
        "Registrations made for a single exposure or RDMA Read."
        for "The cost of devices without memory windows, and of iWARP adapters."
        absent "only servers with `provider: verbs` have it";
    VERBS_UNDRAINED = Counter "millrace_verbs_undrained_total" in "queue pairs" [CORE]
        "Queue pairs destroyed with work that the device never completed."
        for "Devices that hang; zero on a healthy one."
        absent "only servers with `provider: verbs` have it";
    VERBS_LOST = Counter "millrace_verbs_connections_lost_total" in "connections" [CORE]
        "Connections that ended because their device went."
        for "What an unplugged device has cost."
        absent "only servers with `provider: verbs` have it";
}
