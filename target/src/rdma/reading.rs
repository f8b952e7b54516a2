//! RDMA Reads under way, and how long they may take.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{Connection, Shared};

/// RDMA Reads of a connection are given up, and the connection with them, when none has ended for
/// this long. A client that serves any of them is done with one of the largest size in far less on
/// the slowest of networks; and clients that lose a connection have found another by then (Linux
/// gives up a call after a minute).
pub const STUCK_AFTER: Duration = Duration::from_secs(30);

/// Time between two looks.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// RDMA Reads of one connection.
#[derive(Debug)]
pub struct Reading {
    open: Cell<u32>,
    /// When one ended, or the first began.
    moved: Cell<Instant>,
}

impl Reading {
    /// None yet.
    pub fn new(now: Instant) -> Self {
        Self {
            open: Cell::new(0),
            moved: Cell::new(now),
        }
    }

    /// Whether there are some and none has ended for too long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.open.get() > 0 && now.saturating_duration_since(self.moved.get()) >= STUCK_AFTER
    }
}

/// When to look at the connections of a reactor.
#[derive(Debug, Default)]
pub struct ReadingWatch {
    open: Cell<u32>,
    next: Cell<Option<Instant>>,
}

impl ReadingWatch {
    /// Whether it is time to look; the next time is later then.
    pub fn is_due(&self, now: Instant) -> bool {
        let due = self.next.get().is_some_and(|next| now >= next);
        if due {
            let next = (self.open.get() > 0).then_some(now + CHECK_AFTER);
            self.next.set(next);
        }
        due
    }

    /// When to look next, if anything is to be looked at.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next.get()
    }
}

/// One RDMA Read, or a chain of them, until dropped.
pub struct Read<'a, S> {
    shared: &'a Shared<S>,
    connection: &'a Connection,
}

impl<'a, S> Read<'a, S> {
    /// Begins now.
    pub fn begin(shared: &'a Shared<S>, connection: &'a Connection) -> Self {
        let (mine, all) = (&connection.reading, &shared.reading);
        let now = shared.clock.now();
        if mine.open.replace(mine.open.get() + 1) == 0 {
            mine.moved.set(now);
        }
        all.open.set(all.open.get() + 1);
        if all.next.get().is_none() {
            all.next.set(Some(now + CHECK_AFTER));
        }
        Self { shared, connection }
    }
}

impl<S> Drop for Read<'_, S> {
    fn drop(&mut self) {
        let (mine, all) = (&self.connection.reading, &self.shared.reading);
        mine.open.set(mine.open.get() - 1);
        mine.moved.set(self.shared.clock.now());
        all.open.set(all.open.get() - 1);
    }
}
