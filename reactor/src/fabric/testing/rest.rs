//! When nothing more is to be expected.

use std::time::{Duration, Instant};

use super::wire::Wire;

/// How long a network in real time is listened to while nothing is known to be under way: what
/// nobody is told of may go wrong yet.
const QUIET: Duration = Duration::from_millis(5);
/// The same while something is under way, which may be waiting for somebody who does not look.
const QUIET_IF_BUSY: Duration = Duration::from_millis(500);
/// Turns of everybody without work, at least, before it is quiet.
const TURNS: usize = 20;

/// Tells when all parties have come to rest, turn by turn.
#[derive(Debug)]
pub struct Rest {
    wire: Wire,
    rounds: usize,
    idle: usize,
    quiet: Option<Instant>,
}

impl Rest {
    pub(super) fn new(wire: Wire, rounds: usize) -> Self {
        Self {
            wire,
            rounds,
            idle: 0,
            quiet: None,
        }
    }

    /// Whether all that can happen now has happened, after a turn of everybody that did so much
    /// work.
    ///
    /// # Panics
    /// If there is work for more rounds than given.
    pub fn reached(&mut self, work: usize) -> bool {
        if work > 0 {
            self.rounds = self.rounds.checked_sub(1).expect("no rest");
            (self.idle, self.quiet) = (0, None);
            return false;
        }
        let Some(busy) = self.wire.is_busy() else {
            return true;
        };
        self.idle += 1;
        let quiet = self.quiet.get_or_insert_with(Instant::now).elapsed();
        if self.idle >= TURNS && quiet >= if busy { QUIET_IF_BUSY } else { QUIET } {
            return true;
        }
        // The kernel may have to move the messages on this very core.
        std::thread::yield_now();
        false
    }
}
