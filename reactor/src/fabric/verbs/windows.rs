//! Resources of one provider for exposing memory of one device: reusable memory windows, and
//! unpredictable numbers.

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

/// The low bits of an address that are kept when the others are random, so that registrations of
/// hugepages remain aligned.
const PAGE_BITS: u32 = 21;

/// Bits from here on are zero, so that no address overflows.
const TOP_BITS: u32 = 62;

/// The windows of one provider on one device, and its random source.
///
/// A window is made by a system call and bound by a work request, so unbound windows are kept for
/// reuse. They are reused first in, first out, so that a revoked key is unused for as long as
/// possible.
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

    /// A window, and the key for its next binding: never the last one, and unpredictable in the
    /// part that we choose.
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

    /// Returns a window that is no longer bound, or was not bound since it was taken (then without
    /// a key).
    pub(super) fn give_back(&mut self, mut window: Window, bound: Option<u32>) {
        // The next binding names the key of the last one as well.
        if let Some(key) = bound {
            window.set_key(key);
        }
        self.free.push_back(window);
    }

    /// Registers one slice for the peer, without windows. The key is valid for all queue pairs of
    /// the device: if the fabric permits any address, a random one protects it; iWARP devices use
    /// the memory's own address and choose the key themselves.
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

/// A random address with the memory's own offset within a page.
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
