//! What tests of those who use providers are made of.
//!
//! A test that asks for a [`Wire`] runs on whatever carries it: the loopback network, or RDMA
//! devices where `MILLRACE_TEST_FABRIC=verbs:ADDRESS` names an address of one. What needs the
//! powers of the loopback network (latency, deferred revocations, single steps) asks for it by
//! [`loopback`]. Where the environment says anything, each test says on what it ran.

mod ledger;
mod rest;
mod wire;
mod wrapper;

pub use rest::Rest;
#[cfg(feature = "verbs")]
pub use wire::devices;
pub use wire::{Here, Wire, WireEnd, Wired, deferring, loopback, registry};
pub use wrapper::Wrapper;
