//! One device in use: its protection domain, the registrations of all arenas, its limits.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_mempool::{Arena, RegionId, Slice};
use rustix::process::{Resource, getrlimit};

use super::device_counters::DeviceCounters;
use super::report::Transport;
use super::sys::{Attributes, DeviceContext, ProtectionDomain, Region, RegionAccess};
use crate::fabric::{Invalidation, QueuePairLimits, SLICES_MAX};

/// Inline bytes requested for a queue pair: enough for a short reply with its header. More makes
/// every entry of the queue larger.
const INLINE_WISH: u32 = 256;

/// The most RDMA Reads in one direction: one byte in the connection manager.
const READ_DEPTH_MAX: u32 = 255;

/// The vendor number of `siw`, the kernel's software iWARP.
const VENDOR_SIW: u32 = 0x62_6d_74;

/// The vendor number of `rdma_rxe`, the kernel's software RoCE.
const VENDOR_RXE: u32 = 0xff_ffff;

/// Requests of a send queue for each window: one that binds it, one that ends the binding.
const REQUESTS_PER_WINDOW: u32 = 2;

/// An RDMA device in use. After its removal it is closed when its last holder drops it.
pub struct Device {
    // Dropped in this order: registrations, then the domain, then the context.
    regions: Mutex<BTreeMap<RegionId, Arc<Region>>>,
    domain: Arc<ProtectionDomain>,
    context: Arc<DeviceContext>,
    has_windows: bool,
    state: AtomicU8,
    registered: AtomicU64,
    counters: Arc<DeviceCounters>,
}

/// Memory is being registered.
const PREPARING: u8 = 0;
const IN_USE: u8 = 1;
/// Present, but not usable.
const UNUSABLE: u8 = 2;
/// Unplugged.
const GONE: u8 = 3;

/// The key of the sink of an RDMA Read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSink {
    /// That of its arena.
    Pool,
    /// That of a registration for this Read alone ([`Device::register_sink`]). An iWARP peer
    /// answers a Read by writing with the sink's key, which therefore must grant remote writing.
    PerRead,
}

/// Limits of a device's queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairBounds {
    /// Requests of the send queue, including those that bind and unbind windows.
    pub send_depth: u32,
    /// Receives.
    pub receive_depth: u32,
    /// Ranges of a Send or Write.
    pub send_ranges: u32,
    /// Ranges of a Read.
    pub read_ranges: u32,
    /// Inline bytes of a request, if the device supports them.
    pub inline: u32,
    /// Reads of the peer served at once.
    pub responder_resources: u8,
    /// Reads that may be open at once.
    pub initiator_depth: u8,
}

/// A device refuses memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "the RDMA device {device} cannot register {bytes} bytes of memory in addition to {registered}: \
     {source}{advice}"
)]
pub struct Refusal {
    device: String,
    bytes: usize,
    registered: u64,
    source: io::Error,
    advice: String,
}

impl Device {
    /// A device without memory. Its windows are used if they are enforced, or trusted by the
    /// caller.
    ///
    /// # Errors
    /// It has no protection domain left.
    pub fn new(
        context: Arc<DeviceContext>,
        counters: Arc<DeviceCounters>,
        trusts_windows: bool,
    ) -> io::Result<Self> {
        let attributes = context.attributes();
        let has_windows =
            attributes.has_memory_windows_2 && (trusts_windows || windows_hold(attributes));
        Ok(Self {
            has_windows,
            regions: Mutex::default(),
            domain: ProtectionDomain::new(&context)?,
            context,
            state: AtomicU8::new(PREPARING),
            registered: AtomicU64::new(0),
            counters,
        })
    }

    /// Its name in the kernel.
    pub fn name(&self) -> &str {
        self.context.name()
    }

    /// The open device.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// The domain of all its queue pairs, regions and windows.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// Limits and abilities.
    pub fn attributes(&self) -> &Attributes {
        self.context.attributes()
    }

    /// Its network.
    pub fn transport(&self) -> Transport {
        self.attributes().transport
    }

    /// Its counters.
    pub fn counters(&self) -> &Arc<DeviceCounters> {
        &self.counters
    }

    /// Whether connections on it have to end: it was unplugged, or refused memory. All holders
    /// release it, as the kernel waits for that.
    pub fn is_gone(&self) -> bool {
        self.state() >= UNUSABLE
    }

    /// Whether connections may be made on it: all memory is registered.
    pub fn is_in_use(&self) -> bool {
        self.state() == IN_USE
    }

    /// Records that all memory is registered.
    pub(super) fn set_ready(&self) {
        if self.change(PREPARING, IN_USE) {
            self.counters.count_opened();
        }
    }

    /// Records that it is not usable. False if that was known.
    pub(super) fn set_unusable(&self) -> bool {
        let changed = self.change(PREPARING, UNUSABLE) || self.change(IN_USE, UNUSABLE);
        if changed {
            self.counters.set_unused();
        }
        changed
    }

    /// Records that it was unplugged. False if that was known.
    pub(super) fn set_unplugged(&self) -> bool {
        let changed = self.state.swap(GONE, Ordering::AcqRel) != GONE;
        if changed {
            self.counters.count_unplugged();
        }
        changed
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let outcome = self
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        outcome.is_ok()
    }

    /// Whether exposures are memory windows.
    pub fn has_windows(&self) -> bool {
        self.has_windows
    }

    /// The key of the sinks of Reads; `separate` requests one each in any case.
    pub fn read_sink(&self, separate: bool) -> ReadSink {
        let writes_by_peer = self.transport() == Transport::Iwarp && !self.is_siw();
        if separate || writes_by_peer {
            ReadSink::PerRead
        } else {
            ReadSink::Pool
        }
    }

    /// Whether messages and Writes must all be signalled. `siw` passes the pages of unsignalled
    /// ones to TCP by reference (`siw_qp_prepare_tx` of `siw_qp_tx.c`), and completes them when TCP
    /// has the reference: later changes of the memory may still reach the peer.
    pub fn sends_by_reference(&self) -> bool {
        self.is_siw()
    }

    /// Whether an answer to our connection request contains the depths in force on this side,
    /// instead of the peer's (`siw_cm_upcall` of `siw_cm.c`).
    pub fn answers_with_own_depths(&self) -> bool {
        self.is_siw()
    }

    fn is_siw(&self) -> bool {
        self.attributes().vendor_id == VENDOR_SIW && self.transport() == Transport::Iwarp
    }

    /// Registers the sink of one Read, which the peer may write until this is dropped.
    ///
    /// # Errors
    /// The device has no more registrations, or the slice is empty.
    pub fn register_sink(&self, slice: &Slice) -> io::Result<Region> {
        let access = RegionAccess {
            local_write: true,
            remote_write: true,
            ..RegionAccess::default()
        };
        Region::of_slice(&self.domain, slice, None, access)
    }

    /// The directions in which messages invalidate keys on this device.
    ///
    /// The library of `siw` takes the key of such a message from the wrong field of the work
    /// request (`push_send_wqe` of its `siw.c`), and the peer ends the connection for an unknown
    /// key; so it is not used, although the kernel's part supports it.
    pub fn invalidation(&self) -> Invalidation {
        Invalidation {
            sends: self.attributes().has_send_invalidate && !self.is_siw(),
            receives: self.has_windows,
        }
    }

    /// The limits of a queue pair, at most those requested.
    pub fn queue_pair_bounds(&self, wish: &QueuePairLimits) -> QueuePairBounds {
        bounds(self.attributes(), self.has_windows, wish)
    }

    /// The registration of an arena.
    pub fn region(&self, arena: RegionId) -> Option<Arc<Region>> {
        self.regions().get(&arena).cloned()
    }

    /// Bytes of all registered arenas.
    pub fn registered_bytes(&self) -> u64 {
        self.registered.load(Ordering::Relaxed)
    }

    /// Registers an arena, if it is not yet.
    ///
    /// # Errors
    /// The device or the limit of locked memory does not permit it.
    pub(super) fn register(&self, arena: &Arena) -> Result<(), Refusal> {
        if self.region(arena.id()).is_some() {
            return Ok(());
        }
        let access = RegionAccess {
            local_write: true,
            bind_windows: self.has_windows,
            // Completions are never reordered before the data that they report.
            relaxed_ordering: true,
            ..RegionAccess::default()
        };
        // Takes long, so the table is not locked in the meantime.
        let region = Region::of_arena(&self.domain, arena, access);
        let region = region.map_err(|source| self.refusal(arena.len(), source))?;
        let region = Arc::new(region);
        let mut regions = self.regions();
        if regions.contains_key(&arena.id()) {
            // Another thread was faster: ours is not needed, and is dropped after the table is
            // unlocked.
            drop(regions);
            return Ok(());
        }
        regions.insert(arena.id(), region);
        self.add_registered(arena.len() as u64);
        Ok(())
    }

    /// Ends the registration of an arena.
    pub(super) fn unregister(&self, arena: &Arena) {
        let region = self.regions().remove(&arena.id());
        if region.is_some() {
            self.add_registered((arena.len() as u64).wrapping_neg());
        }
        // Ended here, after the table is unlocked: this may take long.
        drop(region);
    }

    fn add_registered(&self, bytes: u64) {
        let before = self.registered.fetch_add(bytes, Ordering::Relaxed);
        self.counters.set_registered(before.wrapping_add(bytes));
    }

    fn refusal(&self, bytes: usize, source: io::Error) -> Refusal {
        let limit = getrlimit(Resource::Memlock).current;
        Refusal {
            device: self.name().to_owned(),
            bytes,
            registered: self.registered_bytes(),
            advice: advice(&source, limit),
            source,
        }
    }

    fn regions(&self) -> MutexGuard<'_, BTreeMap<RegionId, Arc<Region>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Device")
            .field("name", &self.name())
            .field("gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}

/// Advice about refused memory.
fn advice(error: &io::Error, limit: Option<u64>) -> String {
    match (error.raw_os_error(), limit) {
        (Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM), Some(limit)) => format!(
            "; this process may lock {limit} bytes in memory: raise that with \
             LimitMEMLOCK=infinity in its unit, or `ulimit -l unlimited` before it starts"
        ),
        _ => String::new(),
    }
}

/// Whether a device enforces the bounds of windows. `rdma_rxe` checks a peer's request against the
/// bounds of the registration that a window is bound to (`check_rkey` of `rxe_resp.c`), which here
/// is a whole arena.
pub fn windows_hold(device: &Attributes) -> bool {
    let is_rxe = device.vendor_id == VENDOR_RXE && device.transport == Transport::Roce;
    device.has_memory_windows_2 && !is_rxe
}

fn bounds(device: &Attributes, has_windows: bool, wish: &QueuePairLimits) -> QueuePairBounds {
    let most = device.max_qp_wr.max(1);
    let windows = if has_windows {
        wish.exposures.saturating_mul(REQUESTS_PER_WINDOW)
    } else {
        0
    };
    let ranges = |most: u32| most.clamp(1, SLICES_MAX as u32);
    let reads = |wish: u16, most: u32| {
        let depth = u32::from(wish).min(most).min(READ_DEPTH_MAX);
        u8::try_from(depth).unwrap_or(u8::MAX)
    };
    QueuePairBounds {
        send_depth: wish.send_depth.saturating_add(windows).clamp(1, most),
        receive_depth: wish.receive_depth.clamp(1, most),
        send_ranges: ranges(device.max_sge),
        // Some old drivers report zero and mean the same as for others.
        read_ranges: match device.max_sge_rd {
            0 => ranges(device.max_sge),
            most => ranges(most),
        },
        inline: INLINE_WISH,
        responder_resources: reads(wish.ird, device.max_qp_rd_atom),
        initiator_depth: reads(wish.ord, device.max_qp_init_rd_atom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        Attributes {
            firmware: String::new(),
            vendor_id: 0,
            transport: Transport::Roce,
            ports: 1,
            max_qp: 1000,
            max_qp_wr: 500,
            max_sge: 30,
            max_sge_rd: 2,
            max_cq: 100,
            max_cqe: 1000,
            max_mr: 100,
            max_mr_size: 1 << 40,
            max_mw: 100,
            max_srq: 10,
            max_srq_wr: 100,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 1000,
            has_memory_windows_2: true,
            has_send_invalidate: true,
        }
    }

    const WISH: QueuePairLimits = QueuePairLimits {
        send_depth: 100,
        receive_depth: 200,
        ird: 64,
        ord: 400,
        exposures: 50,
        receive_size: 4096,
    };

    #[test]
    fn a_queue_pair_gets_what_it_wishes_within_the_device() {
        let expected = QueuePairBounds {
            send_depth: 200,
            receive_depth: 200,
            send_ranges: 4,
            read_ranges: 2,
            inline: 256,
            responder_resources: 16,
            initiator_depth: 255,
        };
        assert_eq!(bounds(&attributes(), true, &WISH), expected);
        let wish = QueuePairLimits {
            send_depth: u32::MAX,
            receive_depth: 501,
            ..WISH
        };
        let most = QueuePairBounds {
            send_depth: 500,
            receive_depth: 500,
            ..expected
        };
        assert_eq!(bounds(&attributes(), true, &wish), most);
    }

    #[test]
    fn exposures_take_no_requests_where_there_are_no_windows() {
        let device = Attributes {
            max_sge: 3,
            max_sge_rd: 0,
            max_qp_rd_atom: 0,
            ..attributes()
        };
        let found = bounds(&device, false, &WISH);
        assert_eq!((found.send_depth, found.responder_resources), (100, 0));
        assert_eq!((found.send_ranges, found.read_ranges), (3, 3));
    }

    #[test]
    fn windows_that_do_not_hold_are_not_used() {
        assert!(windows_hold(&attributes()));
        let rxe = Attributes {
            vendor_id: VENDOR_RXE,
            ..attributes()
        };
        assert!(!windows_hold(&rxe));
        let none = Attributes {
            has_memory_windows_2: false,
            ..attributes()
        };
        assert!(!windows_hold(&none));
    }

    #[test]
    fn a_refusal_for_lack_of_lockable_memory_tells_what_to_do() {
        let refusal = Refusal {
            device: String::from("mlx5_0"),
            bytes: 64 << 20,
            registered: 0,
            advice: advice(&io::Error::from_raw_os_error(libc::ENOMEM), Some(8 << 20)),
            source: io::Error::from_raw_os_error(libc::ENOMEM),
        };
        let text = refusal.to_string();
        for part in [
            "mlx5_0",
            "67108864 bytes",
            "Cannot allocate memory",
            "8388608 bytes",
            "LimitMEMLOCK=infinity",
            "ulimit -l unlimited",
        ] {
            assert!(text.contains(part), "{part:?} in {text:?}");
        }
        let other = io::Error::from_raw_os_error(libc::EINVAL);
        assert_eq!(advice(&other, Some(8 << 20)), "");
        let unlimited = io::Error::from_raw_os_error(libc::ENOMEM);
        assert_eq!(advice(&unlimited, None), "");
    }
}
