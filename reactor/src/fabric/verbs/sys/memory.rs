//! Protection domains, registered memory, and windows into it.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use millrace_mempool::{Arena, Buffer, Slice};
use rdma_sys::{
    ibv_access_flags, ibv_alloc_mw, ibv_alloc_pd, ibv_dealloc_mw, ibv_dealloc_pd, ibv_dereg_mr,
    ibv_mr, ibv_mw, ibv_mw_type, ibv_pd, ibv_reg_mr_iova2, ibv_sge,
};

use super::context::DeviceContext;
use super::{destroyed, made, verbs};

/// The domain that queue pairs and memory of one device must share.
pub struct ProtectionDomain {
    pointer: NonNull<ibv_pd>,
    _context: Arc<DeviceContext>,
}

// SAFETY: rule 3: the library locks for itself.
unsafe impl Send for ProtectionDomain {}
// SAFETY: rule 3, as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// A new one.
    ///
    /// # Errors
    /// The device has no more.
    pub fn new(context: &Arc<DeviceContext>) -> io::Result<Arc<Self>> {
        // SAFETY: rule 1 for the context, which is borrowed.
        let pointer = made(unsafe { ibv_alloc_pd(context.as_ptr()) })?;
        Ok(Arc::new(Self {
            pointer,
            _context: Arc::clone(context),
        }))
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.pointer.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: rules 1 and 2: given back here only, when nothing made in it is left.
        let done = verbs(unsafe { ibv_dealloc_pd(self.as_ptr()) });
        destroyed("protection domain", done);
    }
}

/// Permitted uses of a region, besides reading by its own device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools)] // A set of rights.
pub struct RegionAccess {
    /// The device may write it, as receives and Reads do.
    pub local_write: bool,
    /// Peers with the key may read it.
    pub remote_read: bool,
    /// Peers with the key may write it.
    pub remote_write: bool,
    /// Windows may be bound to it.
    pub bind_windows: bool,
    /// The device's writes may be reordered on the bus, if device and machine support it.
    pub relaxed_ordering: bool,
}

impl RegionAccess {
    pub(super) fn flags(self) -> u32 {
        let all = [
            (self.local_write, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE),
            (self.remote_read, ibv_access_flags::IBV_ACCESS_REMOTE_READ),
            (self.remote_write, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE),
            (self.bind_windows, ibv_access_flags::IBV_ACCESS_MW_BIND),
            (
                self.relaxed_ordering,
                ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING,
            ),
        ];
        let set = all.into_iter().filter(|(wanted, _)| *wanted);
        set.fold(0, |flags, (_, flag)| flags | flag.0)
    }
}

/// Memory registered with a device. Its pages stay pinned until it is dropped, even if unmapped.
pub struct Region {
    pointer: NonNull<ibv_mr>,
    address: u64,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: rule 3: the library locks for itself; the keys, which we read, never change.
unsafe impl Send for Region {}
// SAFETY: rule 3, as above.
unsafe impl Sync for Region {}

impl Region {
    /// A whole arena, at its own addresses.
    ///
    /// # Errors
    /// The device or the limit of locked memory refuses.
    pub fn of_arena(
        domain: &Arc<ProtectionDomain>,
        arena: &Arena,
        access: RegionAccess,
    ) -> io::Result<Self> {
        let base = arena.base().as_ptr();
        Self::new(domain, base, arena.len(), base as u64, access)
    }

    /// One slice, at its own addresses or from `address` on (whose offset within a page must be the
    /// memory's).
    ///
    /// # Errors
    /// The device or the limit of locked memory refuses, or the slice is empty.
    pub fn of_slice(
        domain: &Arc<ProtectionDomain>,
        slice: &Slice,
        address: Option<u64>,
        access: RegionAccess,
    ) -> io::Result<Self> {
        let base = slice.as_ptr();
        let address = address.unwrap_or(base as u64);
        Self::new(domain, base, slice.len(), address, access)
    }

    fn new(
        domain: &Arc<ProtectionDomain>,
        base: *mut u8,
        length: usize,
        address: u64,
        access: RegionAccess,
    ) -> io::Result<Self> {
        if length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: rule 1 for the domain. The range is mapped during the call by the arena or slice
        // that the two callers above borrow; afterwards its pages are pinned, whoever unmaps them.
        // The plain `ibv_reg_mr` of the library would not know the flag of relaxed ordering.
        let pointer = made(unsafe {
            ibv_reg_mr_iova2(
                domain.as_ptr(),
                base.cast(),
                length,
                address,
                access.flags(),
            )
        })?;
        Ok(Self {
            pointer,
            address,
            _domain: Arc::clone(domain),
        })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_mr {
        self.pointer.as_ptr()
    }

    /// The key for this side's work requests.
    pub fn local_key(&self) -> u32 {
        // SAFETY: rule 1; the library sets the field before it gives the region out, and never
        // again.
        unsafe { (*self.as_ptr()).lkey }
    }

    /// The key for peers, if they have access.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: as for the local key.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// The address of its first byte for peers.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: rule 1: given back here only. What still names its keys is refused by the device.
        let done = verbs(unsafe { ibv_dereg_mr(self.as_ptr()) });
        destroyed("memory region", done);
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Region").finish_non_exhaustive()
    }
}

/// A window of type 2 into regions, for the peer of the queue pair that binds it.
pub struct Window {
    pointer: NonNull<ibv_mw>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: rule 3: the library locks for itself; the key is changed through `&mut self` alone.
unsafe impl Send for Window {}

impl Window {
    /// An unbound window.
    ///
    /// # Errors
    /// The device has no more, or none at all.
    pub fn new(domain: &Arc<ProtectionDomain>) -> io::Result<Self> {
        // SAFETY: rule 1 for the domain, which is borrowed.
        let window = unsafe { ibv_alloc_mw(domain.as_ptr(), ibv_mw_type::IBV_MW_TYPE_2) };
        let pointer = made(window.unwrap_or(std::ptr::null_mut()))?;
        Ok(Self {
            pointer,
            _domain: Arc::clone(domain),
        })
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_mw {
        self.pointer.as_ptr()
    }

    /// The key of its last binding, or its initial one.
    pub fn key(&self) -> u32 {
        // SAFETY: rule 1; the field is changed by `set_key` alone, which borrows exclusively.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// Sets the key of a binding in the library, once the request for it is posted: the next one
    /// must name this key as the window's current one.
    pub fn set_key(&mut self, key: u32) {
        // SAFETY: rule 1. The library reads the field only while a binding is posted, and the
        // window is borrowed exclusively, so its one owner does not post one meanwhile.
        unsafe { (*self.as_ptr()).rkey = key };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: rule 1: given back here only; a binding ends with it.
        let done = verbs(unsafe { ibv_dealloc_mw(self.as_ptr()) });
        destroyed("memory window", done);
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Window");
        debug.field("key", &self.key()).finish_non_exhaustive()
    }
}

/// A key for the next binding of a window: the same window, with another low byte, which the binder
/// chooses.
pub fn next_window_key(current: u32, random: u8) -> u32 {
    let last = current as u8;
    // Any of the 255 others.
    let next = last.wrapping_add(1 + random % 255);
    current & !0xff | u32::from(next)
}

/// Registered memory of this side, in the form of a work request.
#[derive(Clone, Copy)]
pub struct Range(pub(super) ibv_sge);

impl Range {
    /// A slice, with the key of its region.
    ///
    /// # Panics
    /// If it is longer than 4 GiB, which no slice is.
    pub fn of_slice(slice: &Slice, key: u32) -> Self {
        Self(ibv_sge {
            addr: slice.as_ptr() as u64,
            length: u32::try_from(slice.len()).expect("a slice of a work request"),
            lkey: key,
        })
    }

    /// A buffer to be filled, with the key of its region.
    ///
    /// # Panics
    /// If it is longer than 4 GiB, which no buffer is.
    pub fn of_buffer(buffer: &mut Buffer, key: u32) -> Self {
        Self(ibv_sge {
            addr: buffer.as_mut_ptr() as u64,
            length: u32::try_from(buffer.len()).expect("a pool buffer"),
            lkey: key,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_is_another_of_the_same_window() {
        for current in [0, 0x1234_56ff, u32::MAX, 0xabcd_ef00] {
            for random in 0..=255 {
                let next = next_window_key(current, random);
                assert_ne!(next, current);
                assert_eq!(next >> 8, current >> 8);
            }
        }
    }

    #[test]
    fn rights_become_flags() {
        assert_eq!(RegionAccess::default().flags(), 0);
        let all = RegionAccess {
            local_write: true,
            remote_read: true,
            remote_write: true,
            bind_windows: true,
            relaxed_ordering: true,
        };
        assert_eq!(all.flags(), 1 | 2 | 4 | 16 | 1 << 20);
    }
}
