//! Metrics of RDMA devices and of the provider on them.

super::families! {
    /// RDMA devices, and the provider on them.
    VERBS = "RDMA devices";

    RDMA_DEVICE_IN_USE = Gauge "millrace_rdma_device_in_use" in "0 or 1" [DEVICE]
        "Whether the device is present and in use; 0 from its removal until its return."
        for "0: the device was removed or has failed, and its connections have ended."
        absent "servers without `provider: verbs`";
    RDMA_DEVICE_INFO = Gauge "millrace_rdma_device_info" in "always 1"
        [DEVICE, TRANSPORT, FIRMWARE, MEMORY_NODE]
        "Devices present, with their network, firmware and memory node."
        for "Properties of the device, to join with its other series."
        absent "servers without `provider: verbs`";
    RDMA_PORT_ACTIVE = Gauge "millrace_rdma_port_active" in "0 or 1" [DEVICE, PORT, PORT_STATE]
        "Whether a port of a device is active, with its state."
        for "0: a cable, a switch or a network interface is down."
        absent "servers without `provider: verbs`";
    RDMA_DEVICE_OPENED = Counter "millrace_rdma_device_opened_total" in "times" [DEVICE]
        "Times that the device was opened."
        for "More than one: it was removed and returned."
        absent "servers without `provider: verbs`";
    RDMA_DEVICE_UNPLUGGED = Counter "millrace_rdma_device_unplugged_total" in "times" [DEVICE]
        "Times that the device was removed while in use."
        for "Devices that fail, and drivers that reset them."
        absent "servers without `provider: verbs`";
    RDMA_DEVICE_REGISTERED = Gauge "millrace_rdma_device_registered_bytes" in "bytes" [DEVICE]
        "Memory registered with the device, and so pinned."
        for "Compare with the limit of locked memory (`ulimit -l`)."
        absent "servers without `provider: verbs`";
    RDMA_DEVICE_EVENTS = Counter "millrace_rdma_device_events_total" in "events"
        [DEVICE, DEVICE_EVENT]
        "Asynchronous events of a device, by kind."
        for "Link changes of ports, failures of queues and devices."
        absent "servers without `provider: verbs`";
    VERBS_DOORBELLS = Counter "millrace_verbs_doorbells_total" in "lists" [CORE, QUEUE]
        "Lists of work requests handed to a device."
        for "Divided by work requests: how well turns batch."
        absent "servers without `provider: verbs`";
    VERBS_COMPLETIONS = Counter "millrace_verbs_completions_total" in "completions" [CORE]
        "Completions taken from completion queues."
        for "Divided by work requests: how many of them are signalled."
        absent "servers without `provider: verbs`";
    VERBS_INLINED = Counter "millrace_verbs_inlined_sends_total" in "sends" [CORE]
        "Sends with their bytes in the work request (inline)."
        for "The share of replies for which the device need not read memory."
        absent "servers without `provider: verbs`";
    VERBS_ARMED = Counter "millrace_verbs_armed_total" in "times" [CORE]
        "Sleeps of the reactor for which completion queues were armed."
        for "How often interrupts wake it (`reactors.poll: adaptive`)."
        absent "servers without `provider: verbs`";
    VERBS_QUEUE_WAITS = Counter "millrace_verbs_send_queue_waits_total" in "waits" [CORE]
        "Times that work waited for space in a device's send queue."
        for "Devices whose queues are too short for the load."
        absent "servers without `provider: verbs`";
    VERBS_CONNECTION_EVENTS = Counter "millrace_verbs_connection_events_total" in "events" [CORE]
        "Events of the connection manager."
        for "Rate of connection changes."
        absent "servers without `provider: verbs`";
    VERBS_WINDOWS = Counter "millrace_verbs_windows_bound_total" in "windows" [CORE]
        "Memory windows bound, for read-chunk replies."
        for "The cost of classic mode on devices with memory windows."
        absent "servers without `provider: verbs`";
    VERBS_REGISTRATIONS = Counter "millrace_verbs_registrations_total" in "registrations" [CORE]
        "Registrations made for a single exposure or RDMA Read."
        for "The cost of devices without memory windows, and of iWARP adapters."
        absent "servers without `provider: verbs`";
    VERBS_UNDRAINED = Counter "millrace_verbs_undrained_total" in "queue pairs" [CORE]
        "Queue pairs destroyed with work that the device never completed."
        for "Devices that hang; zero if healthy."
        absent "servers without `provider: verbs`";
    VERBS_LOST = Counter "millrace_verbs_connections_lost_total" in "connections" [CORE]
        "Connections that ended because their device was removed."
        for "Connections lost with a device."
        absent "servers without `provider: verbs`";
}
