//! Memory accessible to the peer of one connection.
//!
//! If the device has memory windows with enforced bounds ([`super::device::windows_hold`]), an
//! exposure is a window of type 2: bound by a request of the send queue before the message that
//! contains its key, ended by another such request, or by the peer's message. The key is valid on
//! that queue pair only. Otherwise an exposure is a registration of its own, which is valid until
//! it is revoked.
//!
//! Both cover one range of addresses, so one exposure is one slice
//! ([`crate::fabric::ControlPath::exposure_slices`]).
//!
//! Use by a connection:
//!
//! 1. [`Exposures::expose`] returns the exposure, and the slot of a binding that must be appended
//!    to the send queue at once; [`Exposures::binding`] returns that request when it is passed to
//!    the device. The queue must have space for it before.
//! 2. [`Exposures::revoke`] returns the memory, or the slot of an ending to append to the send
//!    queue; [`Exposures::ending`] returns that request, and when it has completed,
//!    [`Exposures::ended`] the memory. It must be signalled.
//! 3. A message with an invalidated key is passed to [`Exposures::invalidated_by_peer`]. An unknown
//!    key is the peer's error.
//! 4. When the connection ends, [`Exposures::end`] returns the handles to be destroyed *before* the
//!    queue pair, and memory to be kept until then. `rdma_rxe` waits for 50 seconds before it
//!    destroys a queue pair with bound windows, so a structure that holds both declares its
//!    `Exposures` first.

use std::sync::Arc;

use millrace_mempool::Slice;

use super::exposure_table::{Revocation, Table};
use super::keys::KeyCache;
use super::sys::{Region, SendKind, Window};
use super::windows::Windows;
use crate::fabric::{Access, ExposeError, Exposure, Key, Slices};

/// The exposures of one connection.
pub struct Exposures {
    table: Table<ExposedMemory, Slices>,
}

/// The handle that makes memory accessible.
enum ExposedMemory {
    Window(Bound),
    Region(Region),
}

/// A window and its region. The window is dropped first.
struct Bound {
    window: Window,
    key: u32,
    region: Arc<Region>,
    address: u64,
    length: u32,
    access: Access,
}

/// The result of revoking an exposure.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // By value, for boxing would allocate per operation.
pub enum Ending {
    /// The key is revoked, and the memory the caller's again.
    Now(Slices),
    /// A request must end it: append the one of this slot to the send queue.
    Request(u32),
    /// No such exposure (any more).
    Unknown,
}

/// The rest of the exposures of an ended connection.
#[derive(Default)]
pub struct Leftovers {
    /// To be destroyed, on the control thread, and before the queue pair: some devices do not
    /// destroy a queue pair with bound windows.
    pub handles: Handles,
    /// To be kept until the queue pair is destroyed.
    pub memory: Vec<Slices>,
}

/// Windows that may still be bound, and registrations.
#[derive(Default)]
pub struct Handles {
    held: Vec<ExposedMemory>,
}

impl Handles {
    /// Whether it is empty.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl Exposures {
    /// An empty table, for at most this many at once.
    pub fn new(most: u32) -> Self {
        Self {
            table: Table::new(most),
        }
    }

    /// Exposes one slice. With a slot, the key becomes valid by a request that the caller appends
    /// to the send queue ([`Exposures::binding`]).
    ///
    /// # Errors
    /// There is no space, the device has no more windows or registrations or does not have this
    /// memory, or it is not one slice. The memory is returned.
    #[allow(clippy::result_large_err)] // The memory comes back by value; boxing would allocate.
    pub fn expose(
        &mut self,
        local: Slices,
        access: Access,
        windows: &mut Windows,
        keys: &mut KeyCache,
    ) -> Result<(Exposure, Option<u32>), (ExposeError, Slices)> {
        if !self.table.has_room() {
            return Err((ExposeError::Full, local));
        }
        let Some((slice, length)) = single(&local) else {
            return Err((ExposeError::Scattered, local));
        };
        let held = hold(slice, length, access, windows, keys);
        let Some((held, key, offset)) = held else {
            return Err((ExposeError::Full, local));
        };
        let is_window = matches!(held, ExposedMemory::Window(_));
        match self.table.insert(key, held, local) {
            Ok(slot) => {
                let exposure = Exposure {
                    key: Key(key),
                    offset,
                    length,
                };
                Ok((exposure, is_window.then_some(slot)))
            }
            Err((held, local)) => {
                if let ExposedMemory::Window(bound) = held {
                    windows.give_back(bound.window, None);
                }
                Err((ExposeError::Full, local))
            }
        }
    }

    /// The request that makes a slot's key valid.
    pub fn binding(&self, slot: u32) -> Option<SendKind<'_>> {
        match self.table.get(slot)? {
            (_, ExposedMemory::Window(bound)) => Some(SendKind::Bind {
                window: &bound.window,
                region: &bound.region,
                key: bound.key,
                address: bound.address,
                length: u64::from(bound.length),
                remote_read: bound.access == Access::RemoteRead,
                remote_write: bound.access == Access::RemoteWrite,
            }),
            (_, ExposedMemory::Region(_)) => None,
        }
    }

    /// Ends an exposure.
    pub fn revoke(&mut self, key: Key, windows: &mut Windows) -> Ending {
        let is_window = |held: &ExposedMemory| matches!(held, ExposedMemory::Window(_));
        match self.table.revoke(key.0, is_window) {
            Revocation::Now(held, memory) => {
                release(held, windows);
                Ending::Now(memory)
            }
            Revocation::Later(slot) => Ending::Request(slot),
            Revocation::Unknown => Ending::Unknown,
        }
    }

    /// The request that ends a slot's binding.
    pub fn ending(&self, slot: u32) -> Option<SendKind<'static>> {
        self.table
            .get(slot)
            .map(|(key, _)| SendKind::Invalidate(key))
    }

    /// The request of [`Exposures::ending`] has completed with success: the key is revoked, and
    /// this is its memory.
    pub fn ended(&mut self, slot: u32, windows: &mut Windows) -> Option<(Key, Slices)> {
        let (key, held, memory) = self.table.ended(slot)?;
        release(held, windows);
        Some((Key(key), memory))
    }

    /// A message of the peer invalidated a key. False if that is no live exposure of this
    /// connection: such a peer is to be disconnected.
    pub fn invalidated_by_peer(&mut self, key: Key) -> bool {
        self.table.invalidate(key.0)
    }

    /// Exposures that have not ended.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The connection has ended: all remaining handles and memory. There are no exposures
    /// afterwards.
    pub fn end(&mut self) -> Leftovers {
        let mut left = Leftovers::default();
        for (held, memory) in self.table.drain() {
            left.handles.held.push(held);
            left.memory.push(memory);
        }
        left
    }
}

/// The only slice that has bytes.
fn single(local: &Slices) -> Option<(&Slice, u32)> {
    let mut slices = local.iter().filter(|slice| !slice.is_empty());
    let slice = slices.next()?;
    let length = u32::try_from(slice.len()).ok()?;
    slices.next().is_none().then_some((slice, length))
}

/// The handle for a slice, its key and the first byte's offset.
fn hold(
    slice: &Slice,
    length: u32,
    access: Access,
    windows: &mut Windows,
    keys: &mut KeyCache,
) -> Option<(ExposedMemory, u32, u64)> {
    let device = windows.device();
    if device.is_gone() {
        return None;
    }
    let refused = |error: std::io::Error| {
        tracing::debug!(%error, bytes = length, "no memory is exposed");
    };
    if windows.are_there() {
        let region = keys.region(slice.region())?;
        let (window, key) = windows.take().map_err(refused).ok()?;
        // Arenas are registered at their own addresses.
        let address = slice.as_ptr() as u64;
        let bound = Bound {
            window,
            key,
            region,
            address,
            length,
            access,
        };
        return Some((ExposedMemory::Window(bound), key, address));
    }
    let region = windows.register(slice, access).map_err(refused).ok()?;
    let (key, address) = (region.remote_key(), region.address());
    Some((ExposedMemory::Region(region), key, address))
}

/// Keeps a window that is no longer bound for reuse; ends a registration.
fn release(held: ExposedMemory, windows: &mut Windows) {
    match held {
        ExposedMemory::Window(bound) => windows.give_back(bound.window, Some(bound.key)),
        ExposedMemory::Region(region) => drop(region),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};

    #[test]
    fn one_slice_with_bytes_is_exposed_and_nothing_else() {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        let buffer = pool.try_acquire(millrace_mempool::Class::Control).unwrap();
        let whole = buffer.into_slice(0..1000);
        let pieces = |ranges: &[(usize, usize)]| -> Slices {
            let slices = ranges.iter().map(|&(from, to)| whole.slice(from..to));
            slices.collect()
        };
        let length = |local: &Slices| single(local).map(|(_, length)| length);
        assert_eq!(length(&pieces(&[(0, 1000)])), Some(1000));
        assert_eq!(length(&pieces(&[(5, 5), (10, 20), (30, 30)])), Some(10));
        assert_eq!(length(&pieces(&[(0, 10), (10, 20)])), None);
        assert_eq!(length(&pieces(&[(5, 5)])), None);
        assert_eq!(length(&Slices::new()), None);
    }

    #[test]
    fn an_unknown_key_is_not_the_peers_to_invalidate() {
        let mut exposures = Exposures::new(4);
        assert!(!exposures.invalidated_by_peer(Key(7)));
        assert!(exposures.binding(0).is_none() && exposures.ending(0).is_none());
        let left = exposures.end();
        assert!(left.handles.is_empty() && left.memory.is_empty());
    }
}
