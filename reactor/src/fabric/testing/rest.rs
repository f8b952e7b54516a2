//! Detection of the idle state.

use std::time::{Duration, Instant};

use super::wire::Wire;

/// How long a network in real time is observed while nothing is known to be in flight: unnotified
/// failures may still occur.
const QUIET: Duration = Duration::from_millis(5);
/// The same while work is in flight, which may wait for a party that does not poll.
const QUIET_IF_BUSY: Duration = Duration::from_millis(500);
/// The fewest turns of all parties without work before the state is idle.
const TURNS: usize = 20;

/// Detects when all parties are idle, turn by turn.
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

    /// Whether everything possible now has happened, after a turn of all parties with this amount
    /// of work.
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
        // The kernel may need this core to move messages.
        std::thread::yield_now();
        false
    }
}
