//! Reports of reactors, requested only as often as needed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_admin::control::ControlError;

/// How long reports are valid: every reactor is queried at most ten times a second, for any number
/// of readers.
const GOOD_FOR: Duration = Duration::from_millis(100);

type CachedAnswer<T> = Result<Arc<T>, ControlError>;

/// The latest reports, or the error. Readers during a query wait for its result.
#[derive(Debug)]
pub(super) struct Latest<T> {
    latest: Mutex<Option<(Instant, CachedAnswer<T>)>>,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self {
            latest: Mutex::default(),
        }
    }
}

impl<T> Latest<T> {
    /// Recent reports, or the result of `ask`. Their age counts from the time of the answer.
    pub fn get(
        &self,
        clock: impl Fn() -> Instant,
        ask: impl FnOnce() -> Result<T, ControlError>,
    ) -> CachedAnswer<T> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, answer)) = &*latest
            && clock().saturating_duration_since(*at) < GOOD_FOR
        {
            return answer.clone();
        }
        let answer = ask().map(Arc::new);
        *latest = Some((clock(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_answer_good_or_bad_is_kept_for_its_time() {
        let (latest, now) = (Latest::default(), Cell::new(Instant::now()));
        let asked = Cell::new(0);
        let get = |works: bool| {
            let answer = latest.get(
                || now.get(),
                || {
                    asked.set(asked.get() + 1);
                    let unavailable = ControlError::Unavailable("no answer".to_owned());
                    if works {
                        Ok(asked.get())
                    } else {
                        Err(unavailable)
                    }
                },
            );
            answer.map(|number| *number).ok()
        };
        assert_eq!(
            (get(true), get(true), get(false)),
            (Some(1), Some(1), Some(1))
        );
        now.set(now.get() + GOOD_FOR);
        assert_eq!((get(false), get(true)), (None, None));
        now.set(now.get() + GOOD_FOR);
        assert_eq!((get(true), asked.get()), (Some(3), 3));
    }

    #[test]
    fn those_who_ask_at_once_share_one_round() {
        const ASKERS: usize = 16;
        let (latest, asked, barrier) =
            (Latest::default(), AtomicUsize::new(0), Barrier::new(ASKERS));
        // Time does not advance, so only one query may be made, by any reader.
        let now = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..ASKERS {
                scope.spawn(|| {
                    barrier.wait();
                    let ask = || Ok(asked.fetch_add(1, Ordering::Relaxed));
                    assert_eq!(*latest.get(|| now, ask).unwrap(), 0);
                });
            }
        });
        assert_eq!(asked.into_inner(), 1);
    }
}
