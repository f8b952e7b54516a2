//! The number of calls of one transport served concurrently on one reactor.

use crate::call::TransportKind;

/// Limits of the calls in service that are not answered at once. Calls may wait long for a limit of
/// their client or export, and those of several clients could take all tasks: shares shrink as
/// clients are added, but earlier clients keep the tasks that they have. So some tasks are reserved
/// for clients with only a few calls in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// The transport.
    pub transport: TransportKind,
    /// Tasks divided among the active clients; one part is reserved for the next client.
    pub divided: u32,
    /// Tasks up to which a client may use its whole part.
    pub common: usize,
    /// All tasks. Those beyond [`common`](Self::common) are for clients with a few calls.
    pub capacity: usize,
    /// The number of such calls.
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

    /// Whether one of this many active clients may have one more call served in addition to `own`
    /// calls of its own and `served` calls of all clients.
    pub(super) fn allow(&self, clients: u32, own: u32, served: usize) -> bool {
        // Compares with a part of `divided`, without a division.
        let parts = u64::from(clients) + 1;
        let is_within = own == 0 || (u64::from(own) + 1) * parts <= u64::from(self.divided);
        is_within && (served < self.common || own < self.few)
    }
}
