//! The latest events, numbered, for any number of readers. A reader that is slow delays no other
//! and no writer: it is told how many events it has lost.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::status::{Occurrence, ServiceEvent};

/// The most events that are kept.
const EVENTS_MAX: usize = 1024;

/// The latest events.
pub struct EventLog {
    /// Part of the identifiers, different in each run of a server.
    run: u64,
    ring: Mutex<EventRing>,
    /// The number of the next event.
    next: watch::Sender<u64>,
}

#[derive(Default)]
struct EventRing {
    events: VecDeque<(f64, Occurrence)>,
    /// The number of the first of them.
    first: u64,
}

/// The position of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPosition {
    next: u64,
    /// Whether it comes from an earlier run of the server.
    restarted: bool,
}

impl EventLog {
    /// An empty log of this run.
    pub fn new(run: u64) -> Self {
        Self {
            run,
            ring: Mutex::default(),
            next: watch::Sender::new(0),
        }
    }

    /// Adds an event, in place of the oldest one if the log is full.
    pub fn publish(&self, what: Occurrence) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.unwrap_or_default().as_secs_f64();
        let mut ring = self.lock();
        if ring.events.len() == EVENTS_MAX {
            ring.events.pop_front();
            ring.first += 1;
        }
        ring.events.push_back((now, what));
        self.next.send_replace(ring.next());
    }

    /// The position after the event with this identifier; after the latest one without.
    pub fn position(&self, last: Option<&str>) -> EventPosition {
        let ring = self.lock();
        let Some(last) = last else {
            return EventPosition {
                next: ring.next(),
                restarted: false,
            };
        };
        let number = last.strip_prefix(&format!("{:016x}-", self.run));
        let number = number.and_then(|number| number.parse::<u64>().ok());
        match number.and_then(|number| number.checked_add(1)) {
            Some(next) if next <= ring.next() => EventPosition {
                next,
                restarted: false,
            },
            _ => EventPosition {
                next: ring.first,
                restarted: true,
            },
        }
    }

    /// The event at a position, which advances; `None` if there is none yet.
    pub fn read(&self, position: &mut EventPosition) -> Option<ServiceEvent> {
        let ring = self.lock();
        let lost = ring.first.saturating_sub(position.next);
        if position.restarted || lost > 0 {
            let count = (!position.restarted).then_some(lost);
            position.restarted = false;
            position.next = position.next.max(ring.first);
            let time_seconds = ring.events.front().map_or(0.0, |(time, _)| *time);
            return Some(ServiceEvent {
                // A reader that goes on after this one misses nothing more.
                id: self.id(position.next.wrapping_sub(1)),
                time_seconds,
                what: Occurrence::Lost { count },
            });
        }
        let index = usize::try_from(position.next - ring.first).ok()?;
        let (time_seconds, what) = ring.events.get(index)?.clone();
        let id = self.id(position.next);
        position.next += 1;
        Some(ServiceEvent {
            id,
            time_seconds,
            what,
        })
    }

    /// Is notified of each event.
    pub fn notices(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    fn id(&self, number: u64) -> String {
        format!("{:016x}-{number}", self.run)
    }

    fn lock(&self) -> MutexGuard<'_, EventRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventRing {
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(number: usize) -> Occurrence {
        Occurrence::ClientGone {
            address: number.to_string(),
        }
    }

    fn all(log: &EventLog, mut position: EventPosition) -> Vec<ServiceEvent> {
        std::iter::from_fn(|| log.read(&mut position)).collect()
    }

    #[test]
    fn a_reader_gets_each_event_once_and_can_go_on_after_any() {
        let log = EventLog::new(7);
        log.publish(gone(0));
        let mut position = log.position(None);
        assert_eq!(log.read(&mut position), None);
        for number in 1..4 {
            log.publish(gone(number));
        }
        let events = all(&log, position);
        let what: Vec<_> = events.iter().map(|event| event.what.clone()).collect();
        assert_eq!(what, [gone(1), gone(2), gone(3)]);
        let rest = all(&log, log.position(Some(&events[1].id)));
        assert_eq!(rest, events[2..]);
        assert_eq!(all(&log, log.position(Some(&events[2].id))), []);
    }

    #[test]
    fn a_slow_reader_is_told_how_many_it_has_lost() {
        let log = EventLog::new(7);
        let position = log.position(None);
        for number in 0..EVENTS_MAX + 5 {
            log.publish(gone(number));
        }
        let events = all(&log, position);
        assert_eq!(events.len(), EVENTS_MAX + 1);
        assert_eq!(events[0].what, Occurrence::Lost { count: Some(5) });
        assert_eq!(events[1].what, gone(5));
        assert_eq!(all(&log, log.position(Some(&events[0].id))), events[1..]);
    }

    #[test]
    fn a_reader_of_an_earlier_run_gets_all_that_there_is() {
        let log = EventLog::new(7);
        log.publish(gone(0));
        let lost = Occurrence::Lost { count: None };
        for number in [0, 9] {
            let earlier = format!("{:016x}-{number}", 6);
            let events = all(&log, log.position(Some(&earlier)));
            assert_eq!(events[0].what, lost, "{earlier}");
        }
        let events = all(&log, log.position(Some("another run")));
        // It goes on from there.
        log.publish(gone(1));
        let rest = all(&log, log.position(Some(&events[0].id)));
        assert_eq!(rest.last().unwrap().what, gone(1));
        for strange in ["", "7", "0000000000000007-", "0000000000000007-99", "x-1"] {
            let events = all(&log, log.position(Some(strange)));
            assert_eq!((&events[0].what, &events[1].what), (&lost, &gone(0)));
        }
    }
}
