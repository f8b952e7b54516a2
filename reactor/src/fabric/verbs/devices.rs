//! The RDMA devices of the process.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use millrace_mempool::{Arena, RegisterError, Registrar, Registry};

use super::control_thread::Watch;
use super::device::{Device, Refusal};
use super::device_counters::DeviceCounters;
use super::numa;
use super::probe::describe;
use super::reaper::{Command, ControlThreadSender, Reaper};
use super::report::DeviceReport;
use super::sys::{self, DeviceContext};
use crate::fabric::Invalidation;

/// Why there are no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DevicesError {
    /// The kernel has no RDMA at all, or no device.
    #[error(
        "this machine has no RDMA device (`rdma link` lists them; `rdma link add siw0 type siw \
         netdev eth0` adds a software device)"
    )]
    None,
    /// There are devices, but they cannot be used.
    #[error("the RDMA devices cannot be used: {0}")]
    Unusable(String),
}

impl DevicesError {
    pub(super) fn unusable(reason: impl fmt::Display) -> Self {
        Self::Unusable(reason.to_string())
    }
}

/// The RDMA devices of the process, shared by all reactors. Clones share them.
///
/// A thread (`rdma-devices`) monitors them: devices plugged in later get all memory and are used,
/// unplugged ones are released. It ends with the last clone.
///
/// NUMA placement is not done here: the configuration selects the cores, and a pool's memory is
/// near the thread that makes the pool, which is its own reactor's. The log names a reactor that is
/// far from a device it serves.
#[derive(Clone)]
pub struct Devices {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<DevicesShared>,
    line: ControlThreadSender,
    thread: Option<JoinHandle<()>>,
}

/// State shared by devices, control thread and registry.
pub(super) struct DevicesShared {
    registry: Registry,
    /// Windows are used whenever there are some.
    trusts_windows: bool,
    /// All open devices, including removed ones that are still held.
    devices: Mutex<Vec<Arc<Device>>>,
    /// Of all devices ever seen, in the order of their first appearance.
    counters: Mutex<Vec<Arc<DeviceCounters>>>,
    /// Cores and devices already logged as far from each other.
    far: Mutex<HashSet<(usize, String)>>,
}

impl Devices {
    /// Opens all devices and registers the memory of `registry` with them, now and when it grows.
    /// Takes at least 0.1 s per GiB; not for a reactor.
    ///
    /// With several devices, one that does not open or refuses the memory is skipped with a
    /// warning.
    ///
    /// # Errors
    /// [`DevicesError`].
    pub fn open(registry: &Registry) -> Result<Self, DevicesError> {
        Self::open_with(registry, false)
    }

    /// As [`Devices::open`], but also uses memory windows of devices that do not enforce their
    /// bounds. For tests of windows on `rdma_rxe`.
    ///
    /// # Errors
    /// [`DevicesError`].
    #[doc(hidden)]
    pub fn open_trusting_windows(registry: &Registry) -> Result<Self, DevicesError> {
        Self::open_with(registry, true)
    }

    fn open_with(registry: &Registry, trusts_windows: bool) -> Result<Self, DevicesError> {
        let found = sys::open_devices().map_err(DevicesError::unusable)?;
        if found.is_empty() {
            return Err(DevicesError::None);
        }
        let shared = Arc::new(DevicesShared {
            registry: registry.clone(),
            trusts_windows,
            devices: Mutex::default(),
            counters: Mutex::default(),
            far: Mutex::default(),
        });
        let mut failed = Vec::new();
        for (name, context) in found {
            if let Err(error) = context.and_then(|context| shared.add(context)) {
                failed.push(format!("{name}: {error}"));
            }
        }
        if shared.all().is_empty() {
            return Err(DevicesError::Unusable(failed.join(", ")));
        }
        for reason in failed {
            tracing::warn!("an RDMA device cannot be opened: {reason}");
        }
        // Before connections use them.
        sys::let_manager_look();
        let registrar = Arc::new(Memory(Arc::downgrade(&shared)));
        registry.attach(registrar).map_err(DevicesError::unusable)?;
        for device in shared.all() {
            device.set_ready();
        }
        Self::watched(shared).map_err(DevicesError::unusable)
    }

    fn watched(shared: Arc<DevicesShared>) -> io::Result<Self> {
        let (line, commands, bell) = ControlThreadSender::new()?;
        let watch = Watch::new(Arc::clone(&shared), commands, bell);
        let thread = std::thread::Builder::new()
            .name(String::from("rdma-devices"))
            .spawn(move || watch.run())?;
        let handle = Handle {
            shared,
            line,
            thread: Some(thread),
        };
        Ok(Self {
            handle: Arc::new(handle),
        })
    }

    /// The devices in use now.
    pub fn report(&self) -> Vec<DeviceReport> {
        let devices = self.all();
        let described = devices.iter().map(|device| {
            let mut report = describe(device.context());
            report.features.memory_windows = device.has_windows();
            report
        });
        described.collect()
    }

    /// The counters of each device that was ever in use, in a stable order.
    pub fn counters(&self) -> Vec<Arc<DeviceCounters>> {
        lock(&self.handle.shared.counters).clone()
    }

    /// The directions in which messages invalidate keys, on all devices.
    pub fn invalidation(&self) -> Invalidation {
        let devices = self.all();
        let each = devices.iter().map(|device| device.invalidation());
        each.fold(Invalidation::BOTH, |all, one| Invalidation {
            sends: all.sends && one.sends,
            receives: all.receives && one.receives,
        })
    }

    /// The devices on which connections may be made.
    pub(crate) fn all(&self) -> Vec<Arc<Device>> {
        let mut devices = self.handle.shared.all();
        devices.retain(|device| device.is_in_use());
        devices
    }

    /// The device of this name, if connections may be made on it.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Device>> {
        let devices = lock(&self.handle.shared.devices);
        let mut devices = devices.iter();
        devices
            .find(|device| device.name() == name && device.is_in_use())
            .cloned()
    }

    /// A provider's connection to the control thread, with space for `room` notices.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub(crate) fn reaper(&self, room: usize) -> io::Result<Reaper> {
        Reaper::new(&self.handle.line, room)
    }

    /// The completion vector of a device for the reactor on this core: one near it if possible,
    /// else the requested one. Logs once if core and device are far from each other.
    pub(crate) fn completion_vector(
        &self,
        device: &Device,
        core: Option<usize>,
        wish: usize,
    ) -> u32 {
        let context = device.context();
        let node = context.numa_node();
        let near = node.map(numa::cores_of_node).unwrap_or_default();
        if let (Some(core), Some(node)) = (core, node)
            && let Some(own) = numa::node_of_core(core)
            && own != node
            && lock(&self.handle.shared.far).insert((core, device.name().to_owned()))
        {
            tracing::warn!(
                core,
                core_node = own,
                device = device.name(),
                device_node = node,
                "a reactor and an RDMA device are on different memory nodes: all their data \
                 crosses between the sockets"
            );
        }
        numa::vector(core, &near, wish, context.completion_vectors())
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.all()).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.line.send(Command::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the RDMA devices has panicked");
        }
    }
}

impl DevicesShared {
    /// All open devices, in any state.
    pub(super) fn all(&self) -> Vec<Arc<Device>> {
        lock(&self.devices).clone()
    }

    /// Adds a device. It has no memory yet, but gets every arena made from now on.
    pub(super) fn add(&self, context: Arc<DeviceContext>) -> io::Result<Arc<Device>> {
        let counters = self.counters_of(context.name());
        let device = Arc::new(Device::new(context, counters, self.trusts_windows)?);
        lock(&self.devices).push(Arc::clone(&device));
        Ok(device)
    }

    /// Registers all existing arenas with a device that was added, and returns whether it is then
    /// in use.
    ///
    /// Not under the registry's lock: an arena made in the meantime is either in the registry's
    /// list already, or finds the device in ours.
    pub(super) fn fill(&self, device: &Device) -> bool {
        for arena in self.registry.arenas() {
            if let Err(refusal) = device.register(&arena) {
                leave_out(device, &refusal);
                break;
            }
        }
        device.set_ready();
        device.is_in_use()
    }

    /// Removes the removed devices without other holders, and returns them to be closed.
    pub(super) fn take_unheld(&self) -> Vec<Arc<Device>> {
        let mut devices = lock(&self.devices);
        let is_unheld =
            |device: &mut Arc<Device>| device.is_gone() && Arc::strong_count(device) == 1;
        devices.extract_if(.., is_unheld).collect()
    }

    /// Releases all devices.
    pub(super) fn clear(&self) {
        let devices = std::mem::take(&mut *lock(&self.devices));
        drop(devices);
    }

    fn counters_of(&self, name: &str) -> Arc<DeviceCounters> {
        let mut all = lock(&self.counters);
        if let Some(known) = all.iter().find(|counters| counters.name() == name) {
            return Arc::clone(known);
        }
        let counters = Arc::new(DeviceCounters::new(name));
        all.push(Arc::clone(&counters));
        counters
    }
}

fn leave_out(device: &Device, refusal: &Refusal) {
    if device.set_unusable() {
        tracing::warn!("{refusal}; the device is not used");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The registry's reference to the devices, which may be dropped before the registry.
///
/// It is called under the registry's lock. It takes the lock of the list of devices, and then that
/// of one device's table, each briefly; the control thread calls the registry with neither.
struct Memory(Weak<DevicesShared>);

impl Registrar for Memory {
    fn register(&self, arena: &Arena) -> Result<(), RegisterError> {
        let Some(shared) = self.0.upgrade() else {
            return Ok(());
        };
        let mut devices = shared.all();
        devices.retain(|device| !device.is_gone());
        let outcomes: Vec<_> = devices.iter().map(|d| d.register(arena)).collect();
        let has_some = outcomes.iter().any(Result::is_ok);
        for (device, outcome) in devices.iter().zip(outcomes) {
            match outcome {
                Ok(()) => {}
                // The others serve without it.
                Err(refusal) if has_some => leave_out(device, &refusal),
                Err(refusal) => return Err(RegisterError::new(refusal)),
            }
        }
        Ok(())
    }

    fn unregister(&self, arena: &Arena) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        for device in shared.all() {
            device.unregister(arena);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::verbs::reaper::Notice;
    use millrace_mempool::HugepagePolicy;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn without_devices(registry: &Registry) -> Devices {
        let shared = Arc::new(DevicesShared {
            registry: registry.clone(),
            trusts_windows: false,
            devices: Mutex::default(),
            counters: Mutex::default(),
            far: Mutex::default(),
        });
        let registrar = Arc::new(Memory(Arc::downgrade(&shared)));
        registry.attach(registrar).expect("nobody refuses");
        Devices::watched(shared).expect("a thread")
    }

    /// Records the thread on which it was dropped.
    struct Remains(Arc<Mutex<Option<String>>>);

    impl Drop for Remains {
        fn drop(&mut self) {
            let name = std::thread::current().name().map(str::to_owned);
            *lock(&self.0) = name;
        }
    }

    #[test]
    fn what_is_sent_is_dropped_on_the_control_thread_and_noted() {
        let devices = without_devices(&Registry::new(HugepagePolicy::Off));
        let reaper = devices.reaper(4).expect("a door");
        let dropped = Arc::default();
        reaper.destroy(Box::new(Remains(Arc::clone(&dropped))), 9);
        let mut scratch = Vec::new();
        let token = loop {
            crate::sleep::until_readable(&[reaper.descriptor()], &mut scratch, None);
            reaper.clear();
            if let Some(Notice::Destroyed(token)) = reaper.notice() {
                break token;
            }
        };
        assert_eq!(token, 9);
        assert_eq!(lock(&dropped).as_deref(), Some("rdma-devices"));
    }

    #[test]
    fn the_thread_ends_with_the_last_clone_and_memory_outlives_it() {
        struct Told(Arc<AtomicBool>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let registry = Registry::new(HugepagePolicy::Off);
        let before = registry.arena(2 << 20).expect("memory");
        let devices = without_devices(&registry);
        let told = Arc::new(AtomicBool::new(false));
        let reaper = devices.reaper(4).expect("a door");
        let clone = devices.clone();
        drop(devices);
        assert!(clone.all().is_empty() && clone.by_name("mlx5_0").is_none());
        assert_eq!(clone.invalidation(), Invalidation::BOTH);
        let shared = Arc::downgrade(&clone.handle.shared);
        reaper.destroy(Box::new(Told(Arc::clone(&told))), 1);
        drop(clone);
        assert!(told.load(Ordering::SeqCst), "dropped before the end");
        assert!(shared.upgrade().is_none(), "the registry does not hold it");
        let after = registry.arena(2 << 20).expect("nobody to ask");
        drop((before, after));
    }
}
