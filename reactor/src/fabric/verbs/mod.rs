//! RDMA devices, through libibverbs and librdmacm: InfiniBand, RoCE and iWARP adapters, and the
//! kernel's software devices (`rdma_rxe`, `siw`).
//!
//! [`Devices`] holds the devices of the process, with one protection domain each, in which every
//! arena is registered once. [`Verbs`] owns the queue pairs of one reactor, with completion queues
//! of its own on each device, and polls them. What may block (tearing down, registering arenas,
//! watching for devices that come and go) runs on a thread of [`Devices`].
//!
//! All foreign calls, and all `unsafe`, stand in `sys`.

mod census;
#[allow(dead_code)] // As `sys`.
mod completion;
mod config;
mod counters;
#[allow(dead_code)] // As `sys`.
mod device;
mod device_counters;
#[allow(dead_code)] // As `sys`.
mod devices;
#[allow(dead_code)] // As `sys`.
mod exposure_table;
#[allow(dead_code)] // As `sys`.
mod exposures;
#[allow(dead_code)] // As `sys`.
mod keys;
mod numa;
#[cfg(test)]
mod on_device;
#[allow(dead_code)] // As `sys`.
mod phase;
mod place;
mod provider;
#[allow(dead_code)] // As `sys`.
mod reaper;
#[allow(dead_code)] // As `sys`.
mod receive_queue;
mod report;
#[allow(dead_code)] // As `sys`.
mod send_queue;
mod survey;
#[allow(dead_code, unused_imports)] // Its users come with the provider.
mod sys;
mod watch;
#[allow(dead_code)] // As `sys`.
mod windows;

pub use config::VerbsConfig;
pub use counters::VerbsCounters;
pub use device_counters::{DEVICE_EVENTS, DeviceCounters};
pub use devices::{Devices, DevicesError};
pub use place::device_at;
pub use provider::{Arrival, Verbs};
pub use report::{DeviceReport, Features, PortReport, Transport};
pub use survey::survey;
