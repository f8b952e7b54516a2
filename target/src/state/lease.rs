//! The times of the clients' last requests: each reactor writes cells of its own.

use std::time::Duration;

use millrace_primitives::{CoreBlock, Gauge};

/// The time of the last SEQUENCE of each client on each reactor. A reactor writes its own cells
/// only, the home of the clients reads all.
#[derive(Debug)]
pub struct LeaseCells {
    reactors: Box<[CoreBlock<Box<[Gauge]>>]>,
}

impl LeaseCells {
    /// Cells for so many clients on so many reactors.
    pub(super) fn new(reactors: usize, clients: usize) -> Self {
        let cells = || CoreBlock((0..clients).map(|_| Gauge::new()).collect());
        Self {
            reactors: (0..reactors.max(1)).map(|_| cells()).collect(),
        }
    }

    /// Notes a SEQUENCE of a client. Reactors beyond the last one are ignored.
    pub(super) fn renew(&self, reactor: usize, client: u32, now: Duration) {
        let cells = self.reactors.get(reactor);
        if let Some(cell) = cells.and_then(|cells| cells.get(client as usize)) {
            cell.set(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// The last SEQUENCE of a client on any reactor. A cell may still have the time of a client
    /// that is gone, which is earlier than the beginning of the present one.
    pub(super) fn latest(&self, client: u32) -> Duration {
        let cells = self.reactors.iter();
        let latest = cells.filter_map(|cells| Some(cells.get(client as usize)?.get()));
        Duration::from_nanos(latest.max().unwrap_or(0))
    }
}
