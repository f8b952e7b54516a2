//! The receives of a connection: posted by the application, passed to the device, and filled.

use std::collections::VecDeque;

use millrace_mempool::Buffer;

/// A filled receive.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) buffer: Buffer,
    /// Bytes that arrived.
    pub(super) length: u32,
    /// Our key that the message invalidated.
    pub(super) invalidated: Option<u32>,
}

/// The receive queue of a single connection. Its receives are numbered from 0 on and filled in
/// order.
pub(super) struct ReceiveQueue {
    depth: usize,
    /// Those passed to the device first, then the others.
    posted: VecDeque<Buffer>,
    /// The number passed to the device.
    handed: usize,
    /// The number of the oldest.
    first: u64,
}

impl ReceiveQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self {
            depth: depth as usize,
            posted: VecDeque::new(),
            handed: 0,
            first: 0,
        }
    }

    /// Sets the device's limit.
    pub(super) fn bound(&mut self, depth: u32) {
        self.depth = self.depth.min(depth as usize);
    }

    /// The most receives.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The oldest receive not passed to the device. For a shared queue, which takes it over.
    pub(super) fn take_waiting(&mut self) -> Option<Buffer> {
        debug_assert_eq!(self.handed, 0, "receives are its own or shared");
        self.posted.pop_front()
    }

    /// Adds a receive.
    ///
    /// # Errors
    /// There is no space; the buffer is returned.
    pub(super) fn post(&mut self, buffer: Buffer) -> Result<(), Buffer> {
        if self.posted.len() >= self.depth {
            return Err(buffer);
        }
        self.posted.push_back(buffer);
        Ok(())
    }

    /// Whether receives wait to be passed to the device.
    pub(super) fn has_waiting(&self) -> bool {
        self.handed < self.posted.len()
    }

    /// Passes at most `most` receives to the device: each is passed to `hand` with its number,
    /// which returns whether it was accepted. Returns the number accepted.
    pub(super) fn hand_over(
        &mut self,
        most: usize,
        mut hand: impl FnMut(u64, &mut Buffer) -> bool,
    ) -> usize {
        let number = self.first + self.handed as u64;
        let waiting = self.posted.iter_mut().skip(self.handed).take(most);
        let mut taken = 0;
        for (number, buffer) in (number..).zip(waiting) {
            if !hand(number, buffer) {
                break;
            }
            taken += 1;
        }
        self.handed += taken;
        taken
    }

    /// The device did not accept the last `count` receives passed.
    pub(super) fn not_handed(&mut self, count: usize) {
        self.handed -= count;
    }

    /// Receives held by the device.
    pub(super) fn outstanding(&self) -> usize {
        self.handed
    }

    /// The device has completed a receive: the oldest one, of whose number the bits in `mask` are
    /// given. `None` if that is not its number.
    pub(super) fn complete(&mut self, number: u64, mask: u64) -> Option<Buffer> {
        if self.handed == 0 || number != self.first & mask {
            return None;
        }
        self.handed -= 1;
        self.first += 1;
        self.posted.pop_front()
    }

    /// The device has released everything.
    pub(super) fn end(&mut self) {
        self.posted.clear();
        self.handed = 0;
        self.depth = 0;
    }
}

/// The receives that one connection has added to a shared receive queue, minus messages.
///
/// A connection that consumes a message must have added a receive before; otherwise, and for a
/// flushed receive, the buffer is returned to the queue. Unused receives of ended connections are
/// surplus, and replace receives of other connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought(u32);

/// Receives in a shared queue without a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Surplus(u32);

impl Brought {
    /// Counts a receive. Returns whether its buffer is added to the queue; if not, a surplus one is
    /// used.
    pub(super) fn bring(&mut self, surplus: &mut Surplus) -> bool {
        self.0 += 1;
        let needed = surplus.0 == 0;
        surplus.0 = surplus.0.saturating_sub(1);
        needed
    }

    /// Counts a message. False if the connection has not added a receive for it: it used another
    /// connection's.
    pub(super) fn take(&mut self) -> bool {
        let had = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        had
    }

    /// Receives added and not used by messages.
    pub(super) fn count(self) -> u32 {
        self.0
    }

    /// The connection has ended.
    pub(super) fn leave(&mut self, surplus: &mut Surplus) {
        surplus.0 += std::mem::take(&mut self.0);
    }
}

impl Surplus {
    /// Whether there is any.
    pub(super) fn is_some(self) -> bool {
        self.0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
    use proptest::prelude::*;

    const MASK: u64 = 3;

    fn pool() -> Pool {
        let registry = Registry::new(HugepagePolicy::Off);
        Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).expect("ordinary pages")
    }

    fn marked(pool: &Pool, mark: u8) -> Buffer {
        let mut buffer = pool.try_acquire(Class::Control).expect("free");
        buffer[0] = mark;
        buffer
    }

    #[test]
    fn receives_are_filled_in_the_order_posted() {
        let pool = pool();
        let mut queue = ReceiveQueue::new(6);
        for mark in 0..6 {
            queue.post(marked(&pool, mark)).expect("room");
        }
        assert_eq!(queue.post(marked(&pool, 9)).expect_err("full")[0], 9);
        let mut numbers = Vec::new();
        let mut hand = |number, buffer: &mut Buffer| {
            numbers.push((number, buffer[0]));
            true
        };
        assert_eq!(queue.hand_over(2, &mut hand), 2);
        assert_eq!(queue.hand_over(9, &mut hand), 4);
        assert_eq!(numbers, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
        for number in 0..6_u64 {
            assert!(
                queue.complete((number + 1) & MASK, MASK).is_none(),
                "not its turn"
            );
            let buffer = queue.complete(number & MASK, MASK).expect("its turn");
            assert_eq!(u64::from(buffer[0]), number);
        }
        assert!(
            queue.complete(6 & MASK, MASK).is_none(),
            "the device has none"
        );
    }

    #[test]
    fn what_the_device_does_not_take_waits() {
        let pool = pool();
        let mut queue = ReceiveQueue::new(8);
        for mark in 0..4 {
            queue.post(marked(&pool, mark)).expect("room");
        }
        assert_eq!(queue.hand_over(9, |number, _| number < 3), 3);
        queue.not_handed(2);
        assert_eq!((queue.outstanding(), queue.has_waiting()), (1, true));
        let mut again = Vec::new();
        queue.hand_over(9, |number, buffer| {
            again.push((number, buffer[0]));
            true
        });
        assert_eq!(again, [(1, 1), (2, 2), (3, 3)]);
        queue.end();
        assert_eq!((queue.outstanding(), queue.has_waiting()), (0, false));
        assert_eq!(pool.gauges().in_use(), 0);
        assert!(queue.post(marked(&pool, 1)).is_err());
    }

    proptest! {
        /// A shared queue has as many receives as connections have added and not used, and use of
        /// another connection's receive is detected.
        #[test]
        fn a_shared_queue_holds_what_its_connections_brought(
            acts in prop::collection::vec((0_usize..3, 0_u8..8), 0..200),
        ) {
            let mut brought = [Brought::default(); 3];
            let mut surplus = Surplus::default();
            let mut queue = 0_u32;
            for (who, act) in acts {
                match act {
                    0..=3 => queue += u32::from(brought[who].bring(&mut surplus)),
                    4..=6 if queue > 0 => {
                        let had = brought[who].count() > 0;
                        prop_assert_eq!(brought[who].take(), had);
                        // Otherwise its buffer is returned.
                        queue -= u32::from(had);
                    }
                    _ => brought[who].leave(&mut surplus),
                }
                let all: u32 = brought.iter().map(|one| one.count()).sum();
                prop_assert_eq!(queue, all + surplus.0);
            }
        }
    }
}
