//! Which clients or exports are the busiest, where not all can have what only some may have.

use std::time::Duration;

/// The interval of ranking.
pub const RANK_AFTER: Duration = Duration::from_secs(10);

/// How long one that was chosen is not replaced by a busier one.
pub const KEPT_FOR: Duration = Duration::from_secs(120);

/// One that is chosen in place of another must be more than this many times as busy.
pub const BUSIER: u64 = 2;

/// Bytes that count as much as one call.
const BYTES_PER_CALL: u64 = 16 << 10;

/// The activity at a ranking: what was done since the last one, and half of the activity then.
#[must_use]
pub const fn activity(then: u64, requests: u64, bytes: u64) -> u64 {
    (then / 2)
        .saturating_add(requests)
        .saturating_add(bytes / BYTES_PER_CALL)
}

/// Whether one with this activity takes the place of a less busy one.
#[must_use]
pub const fn replaces(activity: u64, other: u64) -> bool {
    activity > other.saturating_mul(BUSIER)
}
