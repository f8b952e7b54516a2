//! One provider's part of one device: its completion queues, keys, windows and shared receives.

use std::io;
use std::sync::Arc;

use super::config::VerbsConfig;
use super::counters::VerbsCounters;
use super::device::{Device, QueuePairBounds, ReadSink};
use super::devices::Devices;
use super::keys::KeyCache;
use super::shared_receives::{DEPTH_WISH, SharedReceives};
use super::sys::{
    CompletionChannel, CompletionQueue, QueuePair, QueuePairSetup, SharedReceiveQueue,
};
use super::windows::Windows;
use crate::fabric::QueuePairLimits;

/// Requested entries of a completion queue, up to the device's limit.
const ENTRIES_WISH: u32 = 32 * 1024;

/// Entries of a completion queue that stay free: completions of destroyed queue pairs may still be
/// there when the next ones add theirs.
const ENTRIES_SPARE: u32 = 64;

/// A completion queue, and the most completions of its queue pairs.
struct Queue {
    queue: Arc<CompletionQueue>,
    promised: u32,
}

/// The completion queue of a queue pair, and the most completions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuePlacement {
    queue: usize,
    entries: u32,
}

pub(super) struct DeviceQueues {
    pub(super) device: Arc<Device>,
    pub(super) channel: Arc<CompletionChannel>,
    queues: Vec<Queue>,
    pub(super) keys: KeyCache,
    pub(super) windows: Windows,
    pub(super) shared: Option<SharedReceives>,
    pub(super) sink: ReadSink,
    vector: u32,
    /// Connections on it.
    pub(super) connections: usize,
    /// A completion queue of it is broken.
    pub(super) is_broken: bool,
}

impl DeviceQueues {
    /// A device's part without queues yet.
    ///
    /// # Errors
    /// The device or the system lacks resources.
    pub(super) fn new(
        device: &Arc<Device>,
        devices: &Devices,
        config: &VerbsConfig,
        counters: &Arc<VerbsCounters>,
    ) -> io::Result<Self> {
        let attributes = device.attributes();
        let depth = DEPTH_WISH
            .min(attributes.max_srq_wr)
            .min(attributes.max_cqe / 2);
        let shared = if config.shared_receives && depth > 0 {
            let queue = SharedReceiveQueue::new(device.protection_domain(), depth)?;
            Some(SharedReceives::new(queue, depth))
        } else {
            None
        };
        Ok(Self {
            channel: CompletionChannel::new(device.context())?,
            queues: Vec::new(),
            keys: KeyCache::new(device),
            windows: Windows::new(device, counters)?,
            shared,
            sink: device.read_sink(config.force_read_registrations),
            vector: devices.completion_vector(device, config.core, config.completion_vector),
            connections: 0,
            is_broken: false,
            device: Arc::clone(device),
        })
    }

    /// The limits of a queue pair whose completions fit into one completion queue.
    pub(super) fn bounds(&self, wish: &QueuePairLimits) -> QueuePairBounds {
        let bounds = self.device.queue_pair_bounds(wish);
        let promised = self.shared.as_ref().map_or(0, SharedReceives::depth);
        let most = self.device.attributes().max_cqe;
        let most = most.saturating_sub(promised.saturating_add(ENTRIES_SPARE));
        match self.shared {
            Some(_) => QueuePairBounds {
                send_depth: bounds.send_depth.min(most),
                ..bounds
            },
            None => {
                let (send_depth, receive_depth) =
                    fit(bounds.send_depth, bounds.receive_depth, most);
                QueuePairBounds {
                    send_depth,
                    receive_depth,
                    ..bounds
                }
            }
        }
    }

    /// Makes a queue pair whose completions always have space.
    ///
    /// # Errors
    /// The device has no more.
    pub(super) fn queue_pair(
        &mut self,
        bounds: &QueuePairBounds,
    ) -> io::Result<(QueuePair, QueuePlacement)> {
        // A completion queue has space for all receives of a shared one: a peer may consume more
        // than its connection has posted, before that is detected.
        let receive_depth = match self.shared {
            Some(_) => 0,
            None => bounds.receive_depth,
        };
        let entries = bounds.send_depth.saturating_add(receive_depth);
        let queue = self.find_queue(entries)?;
        let completions = &self.queues[queue].queue;
        let queue_pair = QueuePair::new(
            self.device.protection_domain(),
            QueuePairSetup {
                send_queue: completions,
                receive_queue: completions,
                shared: self.shared.as_ref().map(SharedReceives::queue),
                send_depth: bounds.send_depth,
                receive_depth,
                send_ranges: bounds.send_ranges.max(bounds.read_ranges),
                inline: bounds.inline,
            },
        )?;
        self.queues[queue].promised += entries;
        Ok((queue_pair, QueuePlacement { queue, entries }))
    }

    /// A completion queue with space for this many more.
    fn find_queue(&mut self, entries: u32) -> io::Result<usize> {
        let fits = |queue: &Queue| {
            let most = queue.queue.capacity().saturating_sub(ENTRIES_SPARE);
            queue.promised.saturating_add(entries) <= most
        };
        if let Some(found) = self.queues.iter().position(fits) {
            return Ok(found);
        }
        let promised = self.shared.as_ref().map_or(0, SharedReceives::depth);
        let least = entries
            .saturating_add(promised)
            .saturating_add(ENTRIES_SPARE);
        let wish = ENTRIES_WISH.max(least);
        let most = self.device.attributes().max_cqe;
        let queue = CompletionQueue::new(
            self.device.context(),
            wish.min(most),
            Some(&self.channel),
            self.vector,
        )?;
        let queue = Queue { queue, promised };
        if !fits(&queue) {
            return Err(io::Error::other(format!(
                "a connection of {entries} work requests does not fit into the device's longest \
                 completion queue, of {most} entries"
            )));
        }
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    /// A queue pair is destroyed.
    pub(super) fn leave(&mut self, place: QueuePlacement) {
        let queue = &mut self.queues[place.queue];
        queue.promised = queue.promised.saturating_sub(place.entries);
    }

    /// Whether its connections have to end.
    pub(super) fn is_lost(&self) -> bool {
        self.is_broken || self.device.is_gone()
    }

    /// Its completion queues.
    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// One of them.
    pub(super) fn queue(&self, index: usize) -> &CompletionQueue {
        &self.queues[index].queue
    }

    /// Takes it apart, when the device is removed and no connection is left: handles to destroy,
    /// and buffers to keep until then.
    pub(super) fn take_apart(self) -> (Box<dyn Send>, Option<Kept>) {
        let Self {
            device,
            channel,
            queues,
            keys,
            windows,
            shared,
            ..
        } = self;
        let queues: Vec<_> = queues.into_iter().map(|queue| queue.queue).collect();
        let (receives, kept) = shared.map(SharedReceives::take_apart).unzip();
        let remains = (receives, queues, channel, windows, keys, device);
        (Box::new(remains), kept)
    }
}

/// Two depths whose sum is limited: the larger one is reduced, down to half of it.
fn fit(one: u32, other: u32, most: u32) -> (u32, u32) {
    if one.saturating_add(other) <= most {
        return (one, other);
    }
    let half = most / 2;
    if one <= half {
        (one, most - one)
    } else if other <= half {
        (most - other, other)
    } else {
        (half, half)
    }
}

/// Buffers that a device may still fill.
pub(super) type Kept = Vec<Option<millrace_mempool::Buffer>>;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn depths_fit_and_a_small_one_is_kept(one: u32, other: u32, most in 2_u32..100_000) {
            let (first, second) = fit(one, other, most);
            prop_assert!(first + second <= most);
            prop_assert!(first <= one && second <= other);
            prop_assert!(first >= one.min(most / 2) && second >= other.min(most / 2));
        }
    }
}
