//! The state of a volume's data on one reactor.

use std::rc::Rc;
use std::sync::Arc;

use millrace_reactor::Clock;

use super::admission::Admission;
use super::counters::Counters;
use super::in_flight::InFlight;
use crate::posix::engine::Engine;
use crate::posix::volume::Volume;

/// One reactor's part of a volume's data.
pub(in crate::posix) struct LocalData {
    /// The reactor's figures. `objects` keeps the number of open ones.
    pub counters: Arc<Counters>,
    pub(super) admission: Rc<Admission>,
    pub(super) in_flight: Rc<InFlight>,
}

impl LocalData {
    pub fn new(volume: &Volume, engine: &Engine, clock: &Clock) -> Self {
        let counters = volume.data().register();
        let gauges = engine.pool().gauges();
        // A device that hangs leaves half of the memory to other volumes.
        let bytes = move || usize::try_from(gauges.bytes() / 2).unwrap_or(usize::MAX);
        let limited = volume.clone();
        let operations = move || limited.config().limits.operations;
        let admission = Admission::new(operations, bytes, clock, Arc::clone(&counters));
        let admission = Rc::new(admission);
        Self {
            in_flight: InFlight::new(volume, Rc::clone(&admission), Arc::clone(&counters)),
            counters,
            admission,
        }
    }
}
