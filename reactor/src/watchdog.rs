//! Detects reactors that stop turning, and reports their activity.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use crate::aside::step_aside;
use crate::core::Context;
use crate::spawn::ReactorHandle;

/// A turn longer than this is reported. Other connections of the core wait for it.
const LIMIT: Duration = Duration::from_secs(1);

const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A stalled reactor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The reactor's name.
    pub reactor: String,
    /// Its activity at the last check.
    pub activity: &'static str,
    /// How long it has been stalled, within the interval of checks.
    pub since: Duration,
    /// Whether it has ended; a stall is reported when it is detected and when it ends.
    pub over: bool,
}

/// Monitors reactors on a thread of its own, which ends when this value is dropped.
#[derive(Debug)]
pub struct Watchdog {
    stalls: Arc<Mutex<Vec<Stall>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts; stalls are logged.
    ///
    /// # Errors
    /// If no thread can be created.
    pub fn spawn<M>(reactors: &[ReactorHandle<M>]) -> io::Result<Self> {
        let mut monitor = Monitor::new(reactors.iter().map(|reactor| reactor.context().clone()));
        let cores: Vec<usize> = reactors.iter().filter_map(ReactorHandle::core).collect();
        let (stop, stopped) = bounded(0);
        let stalls: Arc<Mutex<Vec<Stall>>> = Arc::default();
        let known = Arc::clone(&stalls);
        let thread = thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                if let Err(error) = step_aside(&cores) {
                    tracing::warn!(%error, "the watchdog's thread may run on the reactors' cores");
                }
                while stopped.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    monitor.check(Instant::now(), |stall| {
                        note(&known, &stall);
                        let Stall {
                            reactor,
                            activity,
                            since,
                            over,
                        } = stall;
                        if over {
                            tracing::warn!(%reactor, ?since, "the reactor is no longer stuck");
                        } else {
                            tracing::error!(%reactor, activity, ?since, "the reactor is stuck");
                        }
                    });
                }
            })?;
        Ok(Self {
            stalls,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The current stalls, as they were when detected.
    pub fn stalls(&self) -> Vec<Stall> {
        self.stalls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Updates the list of current stalls.
fn note(stalls: &Mutex<Vec<Stall>>, stall: &Stall) {
    let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
    stalls.retain(|known| known.reactor != stall.reactor);
    if !stall.over {
        stalls.push(stall.clone());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The watchdog's logic, without its thread and clock.
struct Monitor {
    watched: Vec<Watched>,
}

struct Watched {
    context: Context,
    loops: u64,
    changed: Option<Instant>,
    reported: bool,
}

impl Monitor {
    fn new(contexts: impl Iterator<Item = Context>) -> Self {
        let watched = |context| Watched {
            context,
            loops: 0,
            changed: None,
            reported: false,
        };
        Self {
            watched: contexts.map(watched).collect(),
        }
    }

    fn check(&mut self, now: Instant, mut report: impl FnMut(Stall)) {
        for watched in &mut self.watched {
            let loops = watched.context.counters.loops();
            let at_rest = watched.context.activity.at_rest();
            let changed = *watched.changed.get_or_insert(now);
            let stuck = loops == watched.loops && !at_rest;
            let stall = |over| Stall {
                reactor: watched.context.name().to_owned(),
                activity: watched.context.activity.name(),
                since: now - changed,
                over,
            };
            if stuck && now - changed >= LIMIT && !watched.reported {
                report(stall(false));
                watched.reported = true;
            } else if !stuck {
                if watched.reported {
                    report(stall(true));
                }
                watched.reported = false;
                watched.changed = Some(now);
                watched.loops = loops;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{Monitor, Stall};
    use crate::activity::{Activity, SLEEPING, TURN};
    use crate::alarm::Alarm;
    use crate::core::Context;

    #[test]
    fn a_stall_is_reported_once_with_its_activity_and_once_when_over() {
        let context = Context {
            name: "r0".into(),
            core: None,
            alarm: Alarm::new().unwrap(),
            counters: Arc::default(),
            activity: Activity::new(&["flushing"]),
            polling: crate::core::Polling::new(crate::PollMode::Busy),
        };
        let mut monitor = Monitor::new([context.clone()].into_iter());
        let start = Instant::now();
        let mut check = |milliseconds| {
            let mut stalls = Vec::new();
            let now = start + Duration::from_millis(milliseconds);
            monitor.check(now, |stall| stalls.push(stall));
            stalls
        };
        context.activity.enter(0);
        context.counters.end_turn(1, 1, true);
        assert_eq!(check(0), []);
        assert_eq!(check(999), []);
        let since = Duration::from_secs(1);
        let stall = Stall {
            reactor: "r0".into(),
            activity: "flushing",
            since,
            over: false,
        };
        assert_eq!(check(1000), [stall]);
        assert_eq!(check(5000), [], "reported once");
        context.counters.end_turn(1, 1, true);
        let over = check(6000);
        assert_eq!(
            (over.len(), over[0].over, over[0].since),
            (1, true, Duration::from_secs(6))
        );
        context.activity.set(SLEEPING);
        assert_eq!(check(60_000), [], "who sleeps is not stuck");
        context.activity.set(TURN);
        assert_eq!(check(60_500), [], "time asleep does not count");
        assert_eq!(check(61_000).len(), 1);
    }
}
