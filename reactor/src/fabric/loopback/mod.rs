//! An in-memory fabric: several providers on one thread, joined by a [`Network`].
//!
//! It has the semantics of the [`super::Provider`] trait and no others: messages arrive in order,
//! at the receiving provider's [`super::DataPath::poll`], and bytes are copied once, from the
//! sender's slices to where they belong. There is no clock but the callers' `now`; with a latency
//! set, what one side sends is due at the other side so much later, and
//! [`super::DataPath::next_deadline`] says when. Nothing else happens by chance: keys come from a
//! seeded generator.
//!
//! With [`Faults`] set, things go wrong, and out of order where they may: what happens follows from
//! the seed alone, so a run that found something can be had again. [`Network::take_log`] tells what
//! happened.
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
