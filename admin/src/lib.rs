//! The management plane: configuration, metrics and the HTTP API.
//!
//! Nothing here runs on a reactor. The service hands in what it wants shown: it fills metric
//! families through a trait and answers for its state through another, so this crate knows
//! neither connections nor reactors, only their snapshots.
#![forbid(unsafe_code)]

pub mod config;
pub mod metrics;
