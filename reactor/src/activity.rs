//! The current activity of a reactor, visible from outside while it is stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) const STOPPED: usize = 0;
pub(crate) const SLEEPING: usize = 1;
pub(crate) const MESSAGES: usize = 2;
pub(crate) const TURN: usize = 3;
const LOOP: [&str; 4] = ["stopped", "sleeping", "handling messages", "turning"];

/// The current activity of the reactor. The worker enters its activities during its turn, with one
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

    /// Records that the worker's activity `names[index]` begins.
    pub fn enter(&self, index: usize) {
        self.now.store(LOOP.len() + index, Relaxed);
    }

    /// The current activity.
    pub fn name(&self) -> &'static str {
        let now = self.now.load(Relaxed);
        match LOOP.get(now) {
            Some(name) => name,
            None => self.names.get(now - LOOP.len()).unwrap_or(&"unnamed"),
        }
    }

    /// Whether the reactor is permitted not to turn.
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
