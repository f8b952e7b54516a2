//! RDMA devices, through libibverbs and librdmacm: InfiniBand, RoCE and iWARP adapters, and the
//! kernel's software devices (`rdma_rxe`, `siw`).
//!
//! [`Devices`] holds the devices of the process, with one protection domain each, in which every
//! arena is registered once. [`Verbs`] owns the queue pairs of one reactor, with completion queues
//! of its own on each device, and polls them. What may block (tearing down, registering arenas,
//! watching for devices that come and go) runs on a thread of [`Devices`].
//!
//! All foreign calls, and all `unsafe`, stand in `sys`.

mod arrival;
mod census;
mod common;
mod completion;
mod config;
mod connection;
mod counters;
mod device;
mod device_counters;
mod devices;
mod end;
mod exposure_table;
mod exposures;
mod keys;
mod lane;
mod listener;
mod manage;
mod numa;
#[cfg(test)]
mod on_device;
mod phase;
mod place;
mod poll;
mod post;
mod provider;
mod reaper;
mod receive_queue;
mod report;
mod send_queue;
mod setup;
mod shared_receives;
mod slots;
mod survey;
mod sys;
mod token;
mod watch;
mod windows;

pub use arrival::Arrival;
pub use config::VerbsConfig;
pub use counters::VerbsCounters;
pub use device_counters::{DEVICE_EVENTS, DeviceCounters};
pub use devices::{Devices, DevicesError};
pub use place::device_at;
pub use provider::Verbs;
pub use report::{DeviceReport, Features, PortReport, Transport};
pub use survey::survey;
