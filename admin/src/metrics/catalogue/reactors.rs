//! Metrics of reactors: the polling loops.

super::families! {
    /// The polling loops.
    REACTORS = "Reactors";

    REACTOR_BUSY = Counter "millrace_reactor_busy_seconds_total" in "seconds" [CORE]
        "Time of turns that found work."
        for "Its rate is the utilization of the core. Processor time does not show it, as the loop polls.";
    REACTOR_IDLE = Counter "millrace_reactor_idle_seconds_total" in "seconds" [CORE]
        "Time of turns that found no work, and of sleep."
        for "The unused part of the core.";
    REACTOR_TURNS = Counter "millrace_reactor_turns_total" in "turns" [CORE]
        "Turns of the loop."
        for "Busy time divided by turns is the length of a turn.";
    REACTOR_LONGEST_TURN = Gauge "millrace_reactor_longest_turn_seconds" in "seconds" [CORE]
        "The longest turn since the start."
        for "The most latency that the loop adds: all connections of the core wait for it.";
    REACTOR_LAST_TURN = Gauge "millrace_reactor_last_turn_age_seconds" in "seconds" [CORE]
        "Time since the loop last ended a turn; 0 while it sleeps without work."
        for "Shows a stall before the watchdog reports it.";
    REACTOR_STALLED = Gauge "millrace_reactor_stalled" in "0 or 1" [CORE]
        "1 when the watchdog sees no turns, else 0."
        for "Alert: no client of that core is served.";
    REACTOR_WORK = Counter "millrace_reactor_work_total" in "pieces" [CORE, SOURCE]
        "Pieces of work, by source."
        for "What keeps a core busy.";
    REACTOR_TASKS = Gauge "millrace_reactor_tasks" in "calls" [CORE]
        "Calls in service at the end of a turn: they wait for data, memory or the store."
        for "Calls that wait; calls answered in the turn in which they arrive do not count.";
    REACTOR_BACKLOG = Gauge "millrace_reactor_backlog" in "calls" [CORE]
        "Calls that wait for a task, or for their client's turn to get one."
        for "A persistent queue: a client exceeds its share, or the core is fully used.";
    REACTOR_MAILBOX = Gauge "millrace_reactor_mailbox_messages" in "messages" [CORE]
        "Messages from other threads that wait in the mailbox."
        for "A full mailbox (1024) refuses management and new connections.";
    REACTOR_MESSAGES = Counter "millrace_reactor_messages_total" in "messages" [CORE]
        "Messages from other threads."
        for "Load of the core by the management plane and placement.";
    REACTOR_SLEEPS = Counter "millrace_reactor_sleeps_total" in "sleeps" [CORE]
        "Times the loop slept without work."
        for "The next request waits until the reactor has woken up; zero with `reactors.poll: busy`.";
    REACTOR_TASK_PANICS = Counter "millrace_reactor_task_panics_total" in "tasks" [CORE]
        "Tasks that panicked and ended their connection."
        for "Each is a defect to report.";
}
