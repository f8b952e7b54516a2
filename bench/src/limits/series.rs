//! Rates over time, slot by slot.

use std::time::Duration;

/// Length of a slot.
pub const SLOT: Duration = Duration::from_millis(10);

/// How far a rate may be from a limit to count as kept: a tenth.
const TOLERANCE: f64 = 0.1;

/// Slots to average, so that a call that ends in the next slot does not matter.
const MEAN_OF: usize = 5;

/// Rates per second in consecutive slots.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Series {
    rates: Vec<f64>,
}

impl Series {
    /// From what was counted at each moment; moments are in seconds.
    #[must_use]
    pub fn of(samples: &[(f64, u64)]) -> Self {
        let rate = |pair: &[(f64, u64)]| {
            let [(from, before), (to, after)] = pair else {
                return 0.0;
            };
            (after - before) as f64 / (to - from).max(1e-9)
        };
        Self {
            rates: samples.windows(2).map(rate).collect(),
        }
    }

    /// The rate in each slot.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// The mean from a slot on.
    #[must_use]
    pub fn mean_from(&self, slot: usize) -> f64 {
        let rates = self.rates.get(slot..).unwrap_or_default();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    }

    /// Slots until the rate is within a tenth of `limit` and the rest of the series is, too, in
    /// the mean.
    #[must_use]
    pub fn settled(&self, limit: f64) -> Option<usize> {
        let near = |rate: f64| (rate - limit).abs() <= limit * TOLERANCE;
        (0..self.rates.len().saturating_sub(MEAN_OF)).find(|&slot| {
            let next = &self.rates[slot..slot + MEAN_OF];
            let mean = next.iter().sum::<f64>() / MEAN_OF as f64;
            near(mean) && near(self.mean_from(slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_settled_when_it_stays_within_a_tenth() {
        let mut count = 0;
        let mut samples = vec![(0.0, 0)];
        for slot in 1..=60 {
            count += match slot {
                ..=4 => 100,
                5 => 60,
                _ if slot % 2 == 0 => 52,
                _ => 48,
            };
            samples.push((f64::from(slot) * 0.01, count));
        }
        let series = Series::of(&samples);
        assert_eq!(series.rates().len(), 60);
        assert!((series.rates()[0] - 10_000.0).abs() < 1.0);
        assert!((series.mean_from(10) - 5_000.0).abs() < 1.0);
        assert_eq!(series.settled(5_000.0), Some(4));
        assert_eq!(series.settled(9_000.0), None);
        assert_eq!(Series::default().settled(1.0), None);
    }
}
