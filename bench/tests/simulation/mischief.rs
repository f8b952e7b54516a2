//! What goes wrong on devices, which do not do it by themselves.

use std::time::{Duration, Instant};

use millrace_mempool::Buffer;
use millrace_reactor::fabric::{Ended, QueuePairId};

use super::dice::Dice;

/// Most turns that a receive is late.
const LATE_TURNS: usize = 8;

/// What goes wrong around one provider, and how often.
pub struct Mischief {
    dice: Dice,
    /// Once in so many turns with connections one is broken off.
    aborts: usize,
    /// Once in so many turns nobody looks for a while.
    deafness: usize,
    /// Once in so many receives one is posted later.
    lateness: usize,
    /// Receives that are late.
    pub late: Vec<(QueuePairId, Buffer)>,
    /// Connections that ended, and why.
    pub ended: Vec<(QueuePairId, Ended)>,
    deaf_until: Option<Instant>,
    /// Times that anything of it happened.
    pub happened: u64,
}

impl Mischief {
    pub fn new(mut dice: Dice) -> Self {
        Self {
            aborts: dice.pick(&[500, 5000, 1_000_000]),
            deafness: dice.pick(&[200, 5000, 1_000_000]),
            lateness: dice.pick(&[10, 200, 1_000_000]),
            dice,
            late: Vec::new(),
            ended: Vec::new(),
            happened: 0,
            deaf_until: None,
        }
    }

    /// Nothing goes wrong any more.
    pub fn end(&mut self) {
        (self.aborts, self.deafness, self.lateness) = (usize::MAX, usize::MAX, usize::MAX);
    }

    /// Whether a receive is posted later.
    pub fn delays_receive(&mut self) -> bool {
        let delays = self.dice.once_in(self.lateness);
        self.happened += u64::from(delays);
        delays
    }

    /// Receives that have been late for long enough.
    pub fn late(&mut self) -> Vec<(QueuePairId, Buffer)> {
        if self.late.is_empty() || !self.dice.once_in(LATE_TURNS) {
            return Vec::new();
        }
        std::mem::take(&mut self.late)
    }

    /// Which of so many connections is broken off now, if any.
    pub fn aborts(&mut self, connections: usize) -> Option<usize> {
        if connections == 0 || !self.dice.once_in(self.aborts) {
            return None;
        }
        self.happened += 1;
        Some(self.dice.below(connections))
    }

    /// Whether nobody looks now.
    pub fn is_deaf(&mut self) -> bool {
        if self.dice.once_in(self.deafness) {
            self.happened += 1;
            let time = Duration::from_micros(self.dice.below(30_000) as u64);
            self.deaf_until = Some(Instant::now() + time);
        }
        self.deaf_until.is_some_and(|until| Instant::now() < until)
    }
}
