//! The pinned polling loop of one core, and the provider-neutral RDMA [`fabric`].
//!
//! A reactor is one thread, pinned to one core, that runs one [`Worker`] to its end: every turn of
//! the loop takes one time stamp, delivers messages, and lets the worker poll its sources, run its
//! tasks and flush. Nothing of a worker is shared with other threads; they communicate by messages
//! ([`ReactorHandle::send`]) and wakers ([`Alarm`]), and read its counters.
//!
//! The building blocks of workers need no reactor: [`task`], [`timer`], [`completion`].

pub mod accept;
mod activity;
mod alarm;
mod aside;
mod clock;
pub mod completion;
mod core;
mod counters;
pub mod fabric;
pub mod gather;
mod sleep;
mod spawn;
pub mod task;
pub mod timer;
mod watchdog;

pub use self::core::{Context, PollMode, Turn, Worker};
pub use activity::Activity;
pub use alarm::Alarm;
pub use aside::{Aside, helper_cores, run_on, step_aside};
pub use clock::{Clock, Sleep};
pub use counters::{CoreCounters, WorkSource};
pub use millrace_primitives as primitives;
pub use sleep::await_work;
pub use spawn::{ReactorConfig, ReactorHandle, SendError, SpawnError, allowed_cores, spawn};
pub use watchdog::{Stall, Watchdog};
