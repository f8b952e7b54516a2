//! Building blocks for tests of users of providers.
//!
//! A test with a [`Wire`] runs on any fabric: the loopback network, or RDMA devices if
//! `MILLRACE_TEST_FABRIC=verbs:ADDRESS` names an address of one. A test that needs features of the
//! loopback network (latency, deferred revocations, single steps) requests it by [`loopback`]. If
//! the environment selects a fabric, each test prints the one used.

mod ledger;
mod rest;
mod wire;
mod wrapper;

pub use rest::Rest;
#[cfg(feature = "verbs")]
pub use wire::devices;
pub use wire::{Here, Wire, WireEnd, Wired, deferring, loopback, registry};
pub use wrapper::Wrapper;
