//! How long calls take, by one reading of the clock for all calls of a turn.
//!
//! Reading the clock takes a good part of what encoding a small reply takes. Calls are noted as
//! they are answered and timed together at the end of the turn, when their replies have been handed
//! to the fabric; so the time of a call is at most the rest of one turn longer than it was.

use std::cell::RefCell;
use std::time::Instant;

use arrayvec::ArrayVec;

use crate::counters::{Counters, Size, nanoseconds};

/// Calls noted at most; one more has all of them timed at once.
const NOTED_MAX: usize = 64;

/// Whose procedure was called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    Nfs,
    Mount,
}

#[derive(Clone, Copy, Debug)]
struct Noted {
    program: Program,
    procedure: u32,
    /// Of READs and WRITEs that succeeded.
    size: Option<Size>,
    arrived: Instant,
}

/// Calls that were answered in this turn and are not timed yet.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    noted: RefCell<ArrayVec<Noted, NOTED_MAX>>,
}

impl Latencies {
    /// Notes an answered call of the procedure with this number.
    pub fn note(
        &self,
        counters: &Counters,
        (program, procedure): (Program, u32),
        size: Option<Size>,
        arrived: Instant,
    ) {
        let mut noted = self.noted.borrow_mut();
        if noted.is_full() {
            time(&mut noted, counters);
        }
        noted.push(Noted {
            program,
            procedure,
            size,
            arrived,
        });
    }

    /// Times what was noted.
    pub fn settle(&self, counters: &Counters) {
        let mut noted = self.noted.borrow_mut();
        if !noted.is_empty() {
            time(&mut noted, counters);
        }
    }
}

fn time(noted: &mut ArrayVec<Noted, NOTED_MAX>, counters: &Counters) {
    let now = Instant::now();
    for call in noted.drain(..) {
        let procedures = match call.program {
            Program::Nfs => &counters.nfs[..],
            Program::Mount => &counters.mount[..],
        };
        let took = now.saturating_duration_since(call.arrived);
        let sized = counters.sized(call.procedure).zip(call.size);
        if let Some((latencies, size)) = sized {
            latencies[size as usize].observe(nanoseconds(took));
        } else if let Some(slot) = procedures.get(call.procedure as usize) {
            slot.observe(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_timed_once_by_the_end_of_its_turn() {
        let (counters, latencies) = (Counters::default(), Latencies::default());
        let arrived = Instant::now();
        let calls = NOTED_MAX as u64 + 3;
        for _ in 0..calls {
            latencies.note(&counters, (Program::Nfs, 6), None, arrived);
        }
        latencies.note(&counters, (Program::Mount, 1), None, arrived);
        latencies.settle(&counters);
        latencies.settle(&counters);
        assert_eq!(counters.nfs[6].latency.snapshot().count(), calls);
        assert_eq!(counters.mount[1].latency.snapshot().count(), 1);
    }
}
