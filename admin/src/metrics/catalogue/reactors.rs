//! Metrics of reactors: the polling loops.

super::families! {
    /// The polling loops.
    REACTORS = "Reactors";

    REACTOR_BUSY = Counter "millrace_reactor_busy_seconds_total" in "seconds" [CORE]
        "Time of turns that found work."
        for "Its rate is the share of the core in use: the only honest measure for a loop that polls.";
    REACTOR_IDLE = Counter "millrace_reactor_idle_seconds_total" in "seconds" [CORE]
        "Time of turns that found no work, and of sleep."
        for "What is left of the core.";
    REACTOR_TURNS = Counter "millrace_reactor_turns_total" in "turns" [CORE]
        "Turns of the loop."
        for "Busy time by turns is the length of a turn, and the batch that one turn serves.";
    REACTOR_LONGEST_TURN = Gauge "millrace_reactor_longest_turn_seconds" in "seconds" [CORE]
        "The longest turn since the start."
        for "All connections of the core wait through it: the bound of what the loop adds to latency.";
    REACTOR_LAST_TURN = Gauge "millrace_reactor_last_turn_age_seconds" in "seconds" [CORE]
        "Time since the loop last ended a turn; 0 while it sleeps for want of work."
        for "Shows a stall before the watchdog calls it one.";
    REACTOR_STALLED = Gauge "millrace_reactor_stalled" in "0 or 1" [CORE]
        "1 when the watchdog sees no turns, else 0."
        for "To be alerted: nobody on that core is served.";
    REACTOR_WORK = Counter "millrace_reactor_work_total" in "pieces" [CORE, SOURCE]
        "Pieces of work by the source that had them."
        for "What keeps a core busy.";
    REACTOR_TASKS = Gauge "millrace_reactor_tasks" in "calls" [CORE]
        "Calls that have a task at the end of a turn: they wait for data, memory or the store."
        for "What the server waits for; calls that are answered in the turn they come in do not count.";
    REACTOR_BACKLOG = Gauge "millrace_reactor_backlog" in "calls" [CORE]
        "Calls that wait for a task, or for their client's turn to get one."
        for "A queue that stays is a client that asks for more than its share, or a core that is full.";
    REACTOR_MAILBOX = Gauge "millrace_reactor_mailbox_messages" in "messages" [CORE]
        "Messages from other threads that wait in the mailbox."
        for "A full mailbox (1024) refuses management and new connections.";
    REACTOR_MESSAGES = Counter "millrace_reactor_messages_total" in "messages" [CORE]
        "Messages from other threads."
        for "How much the management plane and placement ask of a core.";
    REACTOR_SLEEPS = Counter "millrace_reactor_sleeps_total" in "sleeps" [CORE]
        "Times the loop slept for want of work."
        for "Each costs tens of microseconds of latency; zero with `reactors.poll: busy`.";
    REACTOR_TASK_PANICS = Counter "millrace_reactor_task_panics_total" in "tasks" [CORE]
        "Tasks that panicked and ended their connection."
        for "Every one is a defect to report.";
}
