//! State shared by the connections of one provider.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;

use super::config::VerbsConfig;
use super::counters::VerbsCounters;
use super::devices::Devices;
use super::reaper::Reaper;
use super::sys::{CompletionBatch, EventChannel, ReceiveList, SendList};
use crate::fabric::SLICES_MAX;

/// Work requests passed to a device at once.
pub(super) const LIST_MAX: usize = 256;

/// The most notices that wait for the provider.
const NOTICES_MAX: usize = 1024;

pub(super) struct Common {
    pub(super) config: VerbsConfig,
    pub(super) counters: Arc<VerbsCounters>,
    /// The channel of connection manager events.
    pub(super) channel: Arc<EventChannel>,
    pub(super) reaper: Reaper,
    /// Readable when there is something to poll for.
    pub(super) epoll: OwnedFd,
    /// Connections whose requests wait for the application.
    pub(super) half_open: usize,
    /// The time of the last turn.
    pub(super) now: Instant,
    /// No deadline is earlier.
    pub(super) earliest: Option<Instant>,
    /// Lists being filled, and space for completions; empty between two calls.
    pub(super) sends: SendList,
    pub(super) receives: ReceiveList,
    pub(super) completions: CompletionBatch,
    // Last: the control thread outlives everything else.
    pub(super) devices: Devices,
}

impl Common {
    pub(super) fn new(devices: &Devices, config: VerbsConfig) -> io::Result<Self> {
        let common = Self {
            config,
            counters: Arc::default(),
            channel: EventChannel::new()?,
            reaper: devices.reaper(NOTICES_MAX)?,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            half_open: 0,
            now: Instant::now(),
            earliest: None,
            sends: SendList::with_capacity(LIST_MAX, LIST_MAX * SLICES_MAX),
            receives: ReceiveList::with_capacity(LIST_MAX),
            completions: CompletionBatch::new(),
            devices: devices.clone(),
        };
        common.watch(&*common.channel)?;
        common.watch(&common.reaper)?;
        Ok(common)
    }

    /// Makes our descriptor readable when this one is.
    pub(super) fn watch(&self, descriptor: impl AsFd) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(
            &self.epoll,
            descriptor,
            data,
            epoll::EventFlags::IN,
        )?)
    }

    pub(super) fn has_deadline(&mut self, deadline: Instant) {
        self.earliest = Some(
            self.earliest
                .map_or(deadline, |earliest| earliest.min(deadline)),
        );
    }

    pub(super) fn connections(&self) -> usize {
        let count = self.counters.fabric.connections.get();
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}
