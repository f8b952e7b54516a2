//! Receives shared by all connections of a provider on one device.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_mempool::Buffer;

use super::device_queues::Kept;
use super::receive_queue::{Brought, Surplus};
use super::sys::SharedReceiveQueue;

/// Requested depth of a shared queue, up to the device's limit.
pub(super) const DEPTH_WISH: u32 = 16 * 1024;

/// A shared receive queue, and the buffers in it by number.
pub(super) struct SharedReceives<Queue = SharedReceiveQueue> {
    // Dropped before the buffers held by the device.
    queue: Arc<Queue>,
    buffers: Vec<Option<Buffer>>,
    free: Vec<u32>,
    /// Numbers of buffers not passed to the device yet.
    waiting: Vec<u32>,
    depth: u32,
    surplus: Surplus,
    /// Slots of connections by the number of their queue pair, as completions of a shared queue do
    /// not contain the connection's own identifier.
    owners: HashMap<u32, u32>,
}

impl<Queue> SharedReceives<Queue> {
    pub(super) fn new(queue: Arc<Queue>, depth: u32) -> Self {
        Self {
            queue,
            buffers: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            depth,
            surplus: Surplus::default(),
            owners: HashMap::new(),
        }
    }

    /// The queue, to be dropped first, and the buffers in it.
    pub(super) fn take_apart(self) -> (Arc<Queue>, Kept) {
        (self.queue, self.buffers)
    }

    /// The most receives.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Adds a connection that uses it.
    pub(super) fn join(&mut self, queue_pair: u32, slot: u32) {
        self.owners.insert(queue_pair, slot);
    }

    /// Removes a connection, or one without a queue pair.
    pub(super) fn leave(&mut self, queue_pair: Option<u32>, brought: &mut Brought) {
        if let Some(queue_pair) = queue_pair {
            self.owners.remove(&queue_pair);
        }
        brought.leave(&mut self.surplus);
    }

    /// The connection whose queue pair has this number.
    pub(super) fn owner(&self, queue_pair: u32) -> Option<u32> {
        self.owners.get(&queue_pair).copied()
    }

    /// Adds a receive of a connection. If there is a surplus one, the buffer is not needed.
    ///
    /// # Errors
    /// There is no space; the buffer is returned.
    pub(super) fn post(&mut self, buffer: Buffer, brought: &mut Brought) -> Result<(), Buffer> {
        let held = self.buffers.len() - self.free.len();
        if held >= self.depth as usize && !self.surplus.is_some() {
            return Err(buffer);
        }
        if brought.bring(&mut self.surplus) {
            self.keep(buffer);
        }
        Ok(())
    }

    fn keep(&mut self, buffer: Buffer) {
        let number = match self.free.pop() {
            Some(number) => {
                self.buffers[number as usize] = Some(buffer);
                number
            }
            None => {
                self.buffers.push(Some(buffer));
                self.buffers.len() as u32 - 1
            }
        };
        self.waiting.push(number);
    }

    /// The device has completed a receive.
    pub(super) fn complete(&mut self, number: u64) -> Option<Buffer> {
        let index = usize::try_from(number).ok()?;
        let buffer = self.buffers.get_mut(index)?.take()?;
        self.free.push(index as u32);
        Some(buffer)
    }

    /// Returns the buffer of a receive without a message.
    pub(super) fn put_back(&mut self, buffer: Buffer) {
        self.keep(buffer);
    }

    /// Whether receives wait to be passed to the device.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Passes at most `most` receives; each is passed to `hand`, which returns whether it was
    /// accepted. Returns the number accepted.
    pub(super) fn hand_over(
        &mut self,
        most: usize,
        mut hand: impl FnMut(u64, &mut Buffer) -> bool,
    ) -> usize {
        let mut count = 0;
        while count < most
            && let Some(&number) = self.waiting.last()
            && let Some(buffer) = self.buffers[number as usize].as_mut()
            && hand(u64::from(number), buffer)
        {
            self.waiting.pop();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};

    use super::*;

    const CONNECTIONS: usize = 50;
    const GRANT: usize = 32;

    /// A device: the receives passed to it, and the connections that added them.
    struct Device {
        shared: SharedReceives<()>,
        brought: Vec<Brought>,
        given: Vec<u64>,
        pool: Pool,
    }

    impl Device {
        fn new() -> Self {
            let registry = Registry::new(HugepagePolicy::Off);
            let bytes = 16 << 20;
            Self {
                shared: SharedReceives::new(Arc::new(()), DEPTH_WISH),
                brought: vec![Brought::default(); CONNECTIONS],
                given: Vec::new(),
                pool: Pool::new(&registry, PoolConfig { bytes }).expect("ordinary pages"),
            }
        }

        /// A connection posts a receive, as it does before it grants a credit.
        fn post(&mut self, connection: usize) {
            let buffer = self.pool.try_acquire(Class::Control).expect("free");
            let brought = &mut self.brought[connection];
            self.shared.post(buffer, brought).expect("room");
            let given = &mut self.given;
            self.shared.hand_over(usize::MAX, |number, _| {
                given.push(number);
                true
            });
        }

        /// A message arrives in the next receive. False if there is none.
        fn arrives(&mut self, connection: usize) -> bool {
            let Some(number) = self.given.pop() else {
                return false;
            };
            assert!(self.shared.complete(number).is_some(), "filled once");
            assert!(self.brought[connection].take(), "nobody took another's");
            true
        }
    }

    #[test]
    fn rr1_cred_23_receives_of_a_shared_queue_cover_the_sum_of_all_grants() {
        let mut device = Device::new();
        for connection in 0..CONNECTIONS {
            for _ in 0..GRANT {
                device.post(connection);
            }
        }
        // Ended connections leave theirs behind, which others then need not add.
        for connection in [3, 40] {
            device
                .shared
                .leave(Some(connection as u32), &mut device.brought[connection]);
        }
        for connection in [3, 40] {
            for _ in 0..GRANT {
                device.post(connection);
            }
        }
        assert_eq!(device.given.len(), CONNECTIONS * GRANT);
        // All use their whole grant at once, and once more after they have posted again.
        for _ in 0..2 {
            for _ in 0..GRANT {
                for connection in 0..CONNECTIONS {
                    assert!(device.arrives(connection), "a receive for every credit");
                }
            }
            assert!(device.given.is_empty());
            for connection in 0..CONNECTIONS {
                for _ in 0..GRANT {
                    device.post(connection);
                }
            }
        }
    }

    #[test]
    fn rr1_cred_23_a_full_shared_queue_covers_no_more_grants() {
        let mut device = Device::new();
        device.shared.depth = 2;
        device.post(0);
        device.post(1);
        let buffer = device.pool.try_acquire(Class::Control).expect("free");
        let refused = device.shared.post(buffer, &mut device.brought[2]);
        assert!(refused.is_err(), "no credit without a receive");
        assert_eq!(device.brought[2].count(), 0);
    }
}
