//! A limit of log lines of one kind, as peers can cause any number of some.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one kind within [`WINDOW`].
const LINES_MAX: u64 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Limits the lines of each place in the code. Lines of the main thread, which no peer can cause,
/// and audit records are not limited. Clones share it.
#[derive(Clone, Default)]
pub struct LineLimit {
    shared: Arc<LimitState>,
}

#[derive(Default)]
struct LimitState {
    kinds: Mutex<HashMap<Identifier, LineKind>>,
    left_out: AtomicU64,
}

struct LineKind {
    place: String,
    since: Instant,
    lines: u64,
    /// Not reported yet.
    left_out: u64,
}

impl LineLimit {
    /// Lines left out so far.
    pub fn left_out(&self) -> u64 {
        self.shared.left_out.load(Relaxed)
    }

    /// Returns how many lines were left out since the last time, by place in the code.
    pub fn take_report(&self) -> Vec<(String, u64)> {
        let mut kinds = self.kinds();
        let kinds = kinds.values_mut().filter(|kind| kind.left_out > 0);
        kinds
            .map(|kind| (kind.place.clone(), std::mem::take(&mut kind.left_out)))
            .collect()
    }

    fn admits(&self, metadata: &Metadata<'_>, now: Instant) -> bool {
        let mut kinds = self.kinds();
        let kind = kinds
            .entry(metadata.callsite())
            .or_insert_with(|| LineKind {
                place: format!("{}:{}", metadata.target(), metadata.line().unwrap_or(0)),
                since: now,
                lines: 0,
                left_out: 0,
            });
        if now.saturating_duration_since(kind.since) >= WINDOW {
            (kind.since, kind.lines) = (now, 0);
        }
        kind.lines += 1;
        if kind.lines <= LINES_MAX {
            return true;
        }
        kind.left_out += 1;
        self.shared.left_out.fetch_add(1, Relaxed);
        false
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<Identifier, LineKind>> {
        let kinds = self.shared.kinds.lock();
        kinds.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for LineLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if metadata.target() == "audit" || thread::current().name() == Some("main") {
            return true;
        }
        self.admits(metadata, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite;

    use super::*;

    /// The metadata of two places.
    fn places() -> [&'static Metadata<'static>; 2] {
        let one =
            tracing::callsite!(name: "one", kind: tracing::metadata::Kind::EVENT, fields: &[]);
        let other =
            tracing::callsite!(name: "other", kind: tracing::metadata::Kind::EVENT, fields: &[]);
        [one.metadata(), other.metadata()]
    }

    #[test]
    fn a_kind_has_so_many_lines_in_a_window_and_the_rest_are_counted() {
        let [one, other] = places();
        let limit = LineLimit::default();
        let start = Instant::now();
        let admitted = |metadata, now| limit.admits(metadata, now);
        let through = (0..250).filter(|_| admitted(one, start)).count();
        assert_eq!(through, 100);
        assert!(admitted(other, start), "another kind has its own bound");
        assert!(!admitted(one, start + WINDOW - Duration::from_millis(1)));
        assert!(admitted(one, start + WINDOW));
        assert_eq!(limit.left_out(), 151);
        let report = limit.take_report();
        let [(place, 151)] = &report[..] else {
            panic!("{report:?}");
        };
        assert!(place.contains("limit::tests:"), "{place}");
        assert_eq!(limit.take_report(), []);
    }
}
