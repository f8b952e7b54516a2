//! How many calls of one transport are served side by side on one reactor.

use crate::call::TransportKind;

/// Bounds of the calls that have a task. Calls may wait long for a limit of their client or export,
/// and those of several clients would have all tasks otherwise: shares grow smaller as clients
/// come, but not what the first ones have by then. So some tasks are kept for clients of whose
/// calls only a few are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// The transport.
    pub transport: TransportKind,
    /// Tasks that are divided among the active clients; one part is left for who comes next.
    pub divided: u32,
    /// Tasks that a client may have its whole part of.
    pub common: usize,
    /// All tasks. Those beyond [`common`](Self::common) are for clients with a few calls.
    pub capacity: usize,
    /// How many those are.
    pub few: u32,
}

impl TaskLimits {
    /// Of RPC-over-RDMA.
    pub const RDMA: Self = Self {
        transport: TransportKind::Rdma,
        divided: 1024,
        common: 896,
        capacity: 1024,
        few: 2,
    };

    /// Whether one of so many active clients may have one more call served beside `own` calls of
    /// its own and `served` calls of all clients.
    pub(super) fn allow(&self, clients: u32, own: u32, served: usize) -> bool {
        // A part of `divided` has room for it, without a division.
        let parts = u64::from(clients) + 1;
        let is_within = own == 0 || (u64::from(own) + 1) * parts <= u64::from(self.divided);
        is_within && (served < self.common || own < self.few)
    }
}
