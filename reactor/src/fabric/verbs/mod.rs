//! RDMA devices, through libibverbs and librdmacm: InfiniBand, RoCE and iWARP adapters, and the
//! kernel's software devices (`rdma_rxe`, `siw`).
//!
//! [`Devices`] holds the devices of the process, with one protection domain each, in which every
//! arena is registered once. [`Verbs`] owns the queue pairs of one reactor, with completion queues
//! of its own on each device, and polls them. Blocking operations (destruction, registering arenas,
//! monitoring devices) run on a thread of [`Devices`].
//!
//! All foreign calls are in `sys`. Passing memory to a device remains unsafe: `post` explains for
//! each queue why its memory stays in place.

mod address_lookup;
mod arrival;
mod common;
mod completion;
mod config;
mod connection;
mod control_thread;
mod counters;
mod data_path;
mod device;
mod device_counters;
mod device_queues;
mod device_set;
mod devices;
mod end;
mod exposure_table;
mod exposures;
mod keys;
mod listener;
mod manage;
mod numa;
#[cfg(test)]
mod on_device;
mod phase;
mod poll;
mod post;
mod probe;
mod provider;
mod reaper;
mod receive_queue;
mod report;
mod send_queue;
mod setup;
mod shared_receives;
mod slots;
mod sys;
mod token;
mod windows;

pub use address_lookup::device_at;
pub use config::VerbsConfig;
pub use counters::VerbsCounters;
pub use device_counters::{DEVICE_EVENTS, DeviceCounters};
pub use devices::{Devices, DevicesError};
pub use probe::survey;
pub use provider::Verbs;
pub use report::{DeviceReport, Features, PortReport, Transport};
