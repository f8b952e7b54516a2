//! What a reactor is doing, for those who look at it from outside while it is stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) const STOPPED: usize = 0;
pub(crate) const SLEEPING: usize = 1;
pub(crate) const MESSAGES: usize = 2;
pub(crate) const TURN: usize = 3;
const LOOP: [&str; 4] = ["stopped", "sleeping", "handling messages", "turning"];

/// Names what the reactor does now. The worker enters its own activities as its turn goes on; one
/// plain store each.
#[derive(Clone, Debug)]
pub struct Activity {
    now: Arc<AtomicUsize>,
    names: &'static [&'static str],
}

impl Activity {
    /// An activity of a worker with these `names` ([`crate::Worker::ACTIVITIES`]).
    pub fn new(names: &'static [&'static str]) -> Self {
        Self {
            now: Arc::new(AtomicUsize::new(TURN)),
            names,
        }
    }

    /// Says that the worker's activity `names[index]` begins.
    pub fn enter(&self, index: usize) {
        self.now.store(LOOP.len() + index, Relaxed);
    }

    /// The activity now.
    pub fn name(&self) -> &'static str {
        let now = self.now.load(Relaxed);
        match LOOP.get(now) {
            Some(name) => name,
            None => self.names.get(now - LOOP.len()).unwrap_or(&"unnamed"),
        }
    }

    /// Whether the reactor has a right not to turn.
    pub(crate) fn at_rest(&self) -> bool {
        matches!(self.now.load(Relaxed), STOPPED | SLEEPING)
    }

    pub(crate) fn set(&self, phase: usize) {
        self.now.store(phase, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Activity, SLEEPING};

    #[test]
    fn names_are_the_loops_or_the_workers() {
        let activity = Activity::new(&["polling the fabric"]);
        assert_eq!(activity.name(), "turning");
        activity.enter(0);
        assert_eq!(activity.name(), "polling the fabric");
        assert!(!activity.at_rest());
        activity.enter(1);
        assert_eq!(activity.name(), "unnamed");
        activity.set(SLEEPING);
        assert_eq!((activity.name(), activity.at_rest()), ("sleeping", true));
    }
}
