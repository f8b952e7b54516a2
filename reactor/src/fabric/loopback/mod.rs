//! An in-memory fabric: several providers on one thread, joined by a [`Network`].
//!
//! It has the semantics of the [`super::Provider`] trait and no others: messages arrive in order,
//! at the receiving provider's [`super::DataPath::poll`], and bytes are copied once, from the
//! sender's slices to their destination. There is no clock but the callers' `now`; with a latency
//! set, frames are due at the other side after that time, and [`super::DataPath::next_deadline`]
//! reports when. Everything is deterministic: keys come from a seeded generator.
//!
//! With [`Faults`] set, errors and reordering occur within the guarantees: all events follow from
//! the seed alone, so a failing run can be reproduced. [`Network::take_log`] returns the events.
//!
//! It serves the tests of this crate and of everything above the fabric. Only the feature `testing`
//! compiles it, so that no program contains it.

mod data_path;
mod delivery;
mod end;
mod faults;
mod log;
mod network;
mod pair;
mod provider;
mod scatter;

pub use faults::{CERTAIN, Faults};
pub use log::Record;
pub use network::Network;
pub use pair::Pair;
pub use provider::Loopback;
