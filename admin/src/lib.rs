//! The management plane: configuration, metrics and the HTTP API.
//!
//! Nothing here runs on a reactor. The service fills metric families through
//! [`metrics::MetricsSource`] and reports its state through [`control::Control`], so this crate
//! knows neither connections nor reactors, only their snapshots in [`status`].
//!
//! - [`config`]: the file of `millraced`, parsed and checked.
//! - [`metrics`]: the catalogue of metrics, and the scrape.
//! - [`status`], [`control`]: the state of the service, as values.
//! - [`change`]: every change of the configuration, checked, applied and recorded.
//! - [`token`]: the file whose content allows changes. [`roles`]: tokens and users with less rights.
//! - [`api`]: HTTP on a thread of its own.
//! - `events`: what happened lately, for those who follow.
//! - `dashboard`: the page at `/`. `guide`: that for operators, at `/docs/`.
//! - [`client`]: the requester of `millracectl` and of tests.
#![forbid(unsafe_code)]

pub mod api;
pub mod change;
pub mod client;
pub mod config;
pub mod control;
mod dashboard;
mod events;
pub mod figures;
mod guide;
pub mod metrics;
mod regular;
pub mod roles;
pub mod status;
pub mod token;
