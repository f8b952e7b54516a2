//! The least rate at which a peer has to take and give data.
//!
//! A peer that takes a byte now and then would otherwise hold the memory of all that waits for it
//! for as long as it likes.

use std::time::{Duration, Instant};

/// How slow a peer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferLimits {
    /// Bytes that have to move within each window, or all that waits when it begins, if that is
    /// less.
    pub least: u64,
    /// The length of a window.
    pub window: Duration,
}

impl Default for TransferLimits {
    /// The defaults of the configuration's section `flow`: less than any network in use carries.
    /// Clients that lose a connection have found another by then (Linux gives up a call after a
    /// minute).
    fn default() -> Self {
        Self {
            least: 1 << 20,
            window: Duration::from_secs(30),
        }
    }
}

/// The window of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferWindow {
    /// When it began, and how many bytes have to have moved by its end, counted from the beginning
    /// of the connection.
    open: Option<(Instant, u64)>,
}

impl TransferWindow {
    /// Whether too little has moved; to be asked now and then while something waits. `moved` are
    /// the bytes that have, since the connection began, and `waiting` those that have not.
    pub fn is_too_slow(
        &mut self,
        moved: u64,
        waiting: u64,
        now: Instant,
        limits: &TransferLimits,
    ) -> bool {
        if waiting == 0 {
            self.open = None;
            return false;
        }
        match self.open {
            Some((began, target)) if moved < target => {
                now.saturating_duration_since(began) >= limits.window
            }
            _ => {
                self.open = Some((now, moved + waiting.min(limits.least)));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: TransferLimits = TransferLimits {
        least: 1000,
        window: Duration::from_secs(30),
    };

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_now_and_then_are_not_enough() {
        let start = Instant::now();
        let mut window = TransferWindow::default();
        let slow = |second: u64| {
            let now = start + SECOND * second as u32;
            window.is_too_slow(second, 100_000, now, &LIMITS)
        };
        assert_eq!((0..1000).position(slow), Some(30));
    }

    #[test]
    fn the_least_rate_is_enough() {
        let start = Instant::now();
        let mut window = TransferWindow::default();
        for second in 0..1000 {
            let now = start + SECOND * second as u32;
            assert!(!window.is_too_slow(second * 36, 100_000, now, &LIMITS));
        }
    }

    #[test]
    fn little_that_waits_has_to_move_whole_and_what_is_new_has_its_time() {
        let start = Instant::now();
        let mut window = TransferWindow::default();
        let mut slow = |second: u32, moved, waiting| {
            window.is_too_slow(moved, waiting, start + SECOND * second, &LIMITS)
        };
        // Short replies one after the other, each of which leaves in time.
        for second in 0..300 {
            assert!(!slow(second, u64::from(second) * 10, 10));
        }
        assert!(!slow(301, 3000, 0));
        // All but the last byte of one.
        assert!(!slow(1000, 3000, 10));
        assert!(!slow(1029, 3009, 1));
        assert!(slow(1030, 3009, 1));
    }

    proptest! {
        /// Whatever a peer does, it moves the least in each window, or is found out before two of
        /// them are over.
        #[test]
        fn nobody_is_slower_for_longer_than_two_windows(
            steps in prop::collection::vec((0_u64..200, 0_u64..400), 1..400),
        ) {
            let start = Instant::now();
            let mut window = TransferWindow::default();
            let (mut moved, mut waiting) = (0_u64, 0_u64);
            let mut history = Vec::new();
            for (second, (takes, comes)) in (0_u32..).zip(steps) {
                waiting += comes;
                let takes = takes.min(waiting);
                waiting -= takes;
                moved += takes;
                history.push((moved, waiting));
                if window.is_too_slow(moved, waiting, start + SECOND * second, &LIMITS) {
                    return Ok(());
                }
                if second >= 61 {
                    let (before, waited) = history[second as usize - 61];
                    prop_assert!(moved - before >= waited.min(LIMITS.least));
                }
            }
        }
    }
}
