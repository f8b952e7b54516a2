//! What one provider needs to make memory of one device reachable: memory windows to be used
//! again and again, and unpredictable numbers.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use millrace_mempool::Slice;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::counters::VerbsCounters;
use super::device::Device;
use super::report::Transport;
use super::sys::{Region, RegionAccess, Window, next_window_key};
use crate::fabric::Access;

/// Bits of an address that stay the memory's own where the others are chosen at random, so that
/// registrations of hugepages stay registrations of hugepages.
const PAGE_BITS: u32 = 21;

/// Bits from here on stay clear, so that no address overflows.
const TOP_BITS: u32 = 62;

/// The windows of one provider on one device, and its source of chance.
///
/// A window is made by a system call and bound by a work request, so windows that are bound no
/// more are kept. They are used again first in, first out: a dead key rests as long as it can.
pub struct Windows {
    device: Arc<Device>,
    free: VecDeque<Window>,
    random: ChaCha20Rng,
    counters: Arc<VerbsCounters>,
}

impl Windows {
    /// No windows yet.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(device: &Arc<Device>, counters: &Arc<VerbsCounters>) -> io::Result<Self> {
        Ok(Self {
            device: Arc::clone(device),
            free: VecDeque::new(),
            random: ChaCha20Rng::try_from_os_rng()
                .map_err(|error| io::Error::other(error.to_string()))?,
            counters: Arc::clone(counters),
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether exposures are windows; else each is a registration.
    pub fn are_there(&self) -> bool {
        self.device.has_windows()
    }

    /// A window, and the key that it shall be bound with: never the last one, and unpredictable in
    /// the part that is ours to choose.
    ///
    /// # Errors
    /// The device has no more.
    pub(super) fn take(&mut self) -> io::Result<(Window, u32)> {
        let window = match self.free.pop_front() {
            Some(window) => window,
            None => Window::new(self.device.protection_domain())?,
        };
        // The lowest byte of the generator is as good as any.
        let key = next_window_key(window.key(), self.random.next_u32() as u8);
        self.counters.windows_bound.add(1);
        Ok((window, key))
    }

    /// Takes back a window that is bound to nothing any more, or was not bound since it was taken
    /// (then without a key).
    pub(super) fn give_back(&mut self, mut window: Window, bound: Option<u32>) {
        // The next binding names the key of the last one as well.
        if let Some(key) = bound {
            window.set_key(key);
        }
        self.free.push_back(window);
    }

    /// Registers one slice for the peer, where there are no windows. The key holds for all queue
    /// pairs of the device: where the fabric takes any address, a random one guards it; iWARP
    /// devices use the memory's own address and draw the key itself.
    ///
    /// # Errors
    /// The device has no more registrations, or the slice is empty.
    pub(super) fn register(&mut self, slice: &Slice, access: Access) -> io::Result<Region> {
        let chosen = self.device.transport() != Transport::Iwarp;
        let address = chosen.then(|| disguised(slice.as_ptr() as u64, self.random.next_u64()));
        let remote_write = access == Access::RemoteWrite;
        let access = RegionAccess {
            local_write: remote_write,
            remote_read: !remote_write,
            remote_write,
            relaxed_ordering: remote_write,
            ..RegionAccess::default()
        };
        let domain = self.device.protection_domain();
        let region = Region::of_slice(domain, slice, address, access)?;
        self.counters.registrations.add(1);
        Ok(region)
    }
}

/// A random address with the place within a page that the memory has.
fn disguised(address: u64, random: u64) -> u64 {
    let own = (1 << PAGE_BITS) - 1;
    let all = (1 << TOP_BITS) - 1;
    address & own | random & all & !own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disguised_address_keeps_its_place_in_the_page_and_never_overflows() {
        for random in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            for address in [0x7f12_3456_789a, 0, u64::MAX] {
                let found = disguised(address, random);
                assert_eq!(found % (2 << 20), address % (2 << 20));
                assert!(found.checked_add(u64::from(u32::MAX)).is_some());
                assert!(found < 1 << 62);
            }
        }
        assert_ne!(disguised(0, 1 << 40), disguised(0, 1 << 41));
    }
}
