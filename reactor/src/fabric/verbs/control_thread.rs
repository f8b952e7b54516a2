//! The control thread: it monitors the devices and runs blocking operations for the reactors.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError};
use rustix::event::PollFd;

use super::device::Device;
use super::device_counters::index;
use super::device_set::DeviceSet;
use super::devices::DevicesShared;
use super::reaper::{Bell, Command, Notice, Outbox};
use super::sys::{self, AsyncEvent, AsyncKind, DeviceContext};

/// The interval of checking the kernel's list of devices.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The interval of checking whether a device is released, or a provider has space.
const WAIT_INTERVAL: Duration = Duration::from_millis(20);

/// The number of checks after the removal of a device until the connection manager is made to close
/// it: it can do so only once the last of its own identifiers is destroyed.
const FORGET_LOOKS: u32 = 120;

/// Requests executed, and events taken from one device, before others have their turn.
const BATCH: usize = 64;

/// The shortest interval between log lines for events of one kind and device.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The state of the control thread.
pub(super) struct Watch {
    shared: Arc<DevicesShared>,
    commands: Receiver<Command>,
    bell: Arc<Bell>,
    outbox: Outbox,
    device_set: DeviceSet,
    /// Devices that we have released, whose contexts may still be held elsewhere.
    closing: Vec<Weak<DeviceContext>>,
    /// Devices removed and still held, at the last check.
    gone: usize,
    forget_looks: u32,
    next_look: Instant,
    logged: HashMap<(String, usize), Instant>,
    scratch: Vec<PollFd<'static>>,
}

impl Watch {
    /// Monitors the open devices.
    pub(super) fn new(
        shared: Arc<DevicesShared>,
        commands: Receiver<Command>,
        bell: Arc<Bell>,
    ) -> Self {
        let mut device_set = DeviceSet::default();
        for device in shared.all() {
            device_set.opened(device.name());
        }
        Self {
            shared,
            commands,
            bell,
            outbox: Outbox::default(),
            device_set,
            closing: Vec::new(),
            gone: 0,
            forget_looks: 0,
            next_look: Instant::now() + LOOK_INTERVAL,
            logged: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Runs until the last user is gone; then releases all devices.
    pub(super) fn run(mut self) {
        loop {
            self.wait();
            self.bell.clear();
            if !self.obey() {
                break;
            }
            self.take_events();
            let now = Instant::now();
            if now >= self.next_look {
                self.next_look = now + LOOK_INTERVAL;
                self.look();
            }
            self.let_go();
            self.outbox.retry();
        }
        // Pending handles are dropped with the channel, before the devices.
        drop(self.commands);
        self.shared.clear();
    }

    /// Sleeps until there is work.
    fn wait(&mut self) {
        let mut descriptors: Vec<RawFd> = vec![self.bell.as_fd().as_raw_fd()];
        // Only this thread closes devices, so the descriptors stay open.
        let mut is_waiting = self.outbox.is_waiting() || !self.closing.is_empty();
        for device in self.shared.all() {
            if device.is_gone() {
                is_waiting = true;
            } else {
                descriptors.push(device.context().async_descriptor());
            }
        }
        let timeout = if !self.commands.is_empty() {
            Duration::ZERO
        } else if is_waiting {
            WAIT_INTERVAL
        } else {
            self.next_look.saturating_duration_since(Instant::now())
        };
        crate::sleep::until_readable(&descriptors, &mut self.scratch, Some(timeout));
    }

    /// Executes commands of reactors. False for the command to stop.
    fn obey(&mut self) -> bool {
        for _ in 0..BATCH {
            match self.commands.try_recv() {
                Ok(Command::Destroy { remains, token, to }) => {
                    drop(remains);
                    self.outbox.tell(&to, Notice::Destroyed(token));
                }
                Ok(Command::Tell(recipient)) => self.outbox.add(recipient),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => break,
            }
        }
        true
    }

    fn take_events(&mut self) {
        for device in self.shared.all() {
            for _ in 0..BATCH {
                if device.is_gone() {
                    break;
                }
                match device.context().next_async_event() {
                    Ok(Some(event)) => self.handle(&device, &event),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(
                            device = device.name(), %error,
                            "the RDMA device no longer delivers events"
                        );
                        self.lose(&device);
                        self.device_set.failed(device.name());
                    }
                }
            }
        }
    }

    fn handle(&mut self, device: &Arc<Device>, event: &AsyncEvent) {
        let total = device.counters().count_event(event.kind);
        self.log(device.name(), event, total);
        match (event.kind, event.queue_pair) {
            (AsyncKind::DeviceFatal, _) => {
                self.lose(device);
                self.device_set.failed(device.name());
            }
            (AsyncKind::QueuePairError, Some(number)) => {
                self.outbox.tell_all(&Notice::QueuePairFailed {
                    device: Arc::downgrade(device),
                    number,
                    reason: event.name,
                });
            }
            _ => {}
        }
    }

    fn log(&mut self, device: &str, event: &AsyncEvent, total: u64) {
        let now = Instant::now();
        let last = self
            .logged
            .insert((device.to_owned(), index(event.kind)), now);
        if let Some(last) = last
            && now.saturating_duration_since(last) < LOG_INTERVAL
            && event.kind != AsyncKind::DeviceFatal
        {
            let key = (device.to_owned(), index(event.kind));
            self.logged.insert(key, last);
            return;
        }
        let (name, port) = (event.name, event.port);
        match event.kind {
            AsyncKind::DeviceFatal | AsyncKind::CompletionQueueError => {
                tracing::error!(device, port, total, "RDMA device: {name}");
            }
            AsyncKind::PortError | AsyncKind::QueuePairError | AsyncKind::SharedReceiveQueue => {
                let number = event.queue_pair;
                tracing::warn!(
                    device,
                    port,
                    queue_pair = number,
                    total,
                    "RDMA device: {name}"
                );
            }
            AsyncKind::PortActive | AsyncKind::AddressesChanged => {
                tracing::info!(device, port, total, "RDMA device: {name}");
            }
            AsyncKind::Other => tracing::debug!(device, port, total, "RDMA device: {name}"),
        }
    }

    /// Compares the devices with the kernel's list.
    fn look(&mut self) {
        if self.forget_looks > 0 {
            self.forget_looks -= 1;
            sys::let_manager_look();
        }
        let listed = match sys::device_names() {
            Ok(listed) => listed,
            Err(error) => {
                tracing::debug!(%error, "the list of RDMA devices cannot be read");
                return;
            }
        };
        let changes = self.device_set.look(&listed);
        for name in changes.left {
            for device in self.shared.all() {
                if device.name() == name {
                    self.lose(&device);
                }
            }
        }
        for (name, is_new) in changes.wanted {
            self.open(&name, is_new);
        }
    }

    /// Records that a device was removed, so that all holders release it.
    fn lose(&mut self, device: &Arc<Device>) {
        if device.set_unplugged() {
            tracing::warn!(
                device = device.name(),
                "the RDMA device was removed: its connections end"
            );
            self.forget_looks = FORGET_LOOKS;
        }
    }

    fn open(&mut self, name: &str, is_new: bool) {
        // An unreleased one of the same name would be confused with it.
        if self.shared.all().iter().any(|device| device.name() == name) {
            self.device_set.not_opened(name);
            return;
        }
        let opened = sys::open_device(name).and_then(|context| self.shared.add(context));
        // Before connections use it.
        sys::let_manager_look();
        let device = match opened {
            Ok(device) => device,
            Err(error) => {
                self.device_set.not_opened(name);
                if is_new {
                    tracing::warn!(
                        device = name, %error,
                        "an RDMA device was added and cannot be opened; retrying"
                    );
                }
                return;
            }
        };
        self.device_set.opened(name);
        if self.shared.fill(&device) {
            tracing::info!(device = name, "an RDMA device was added");
            self.outbox.tell_all(&Notice::DevicesChanged);
        }
    }

    /// Closes removed devices without holders, and notifies the holders of others.
    fn let_go(&mut self) {
        let gone = self.shared.all().iter().filter(|d| d.is_gone()).count();
        if gone > self.gone {
            self.outbox.tell_all(&Notice::DevicesChanged);
        }
        self.gone = gone;
        for device in self.shared.take_unheld() {
            self.closing.push(Arc::downgrade(device.context()));
        }
        let before = self.closing.len();
        self.closing.retain(|context| context.strong_count() > 0);
        if self.closing.len() < before {
            sys::let_manager_look();
        }
    }
}
