//! The HTTP API, on a thread of its own.
//!
//! | path | answer |
//! | --- | --- |
//! | `/` | the dashboard, with the parts of the page at `/assets/` |
//! | `/metrics` | Prometheus metrics |
//! | `/healthz` | 200, or 503 with the reactors that are stalled |
//! | `/readyz` | 200, or 503 while starting or draining |
//! | `/api/v1/version` | which program answers |
//! | `/api/v1/config` | the configuration in force, as JSON, or YAML with `?format=yaml` |
//! | `/api/v1/connections`, `reactors`, `pools`, `exports` | snapshots |
//!
//! Everything is read-only. Whatever is no success has a body of type
//! `application/problem+json` ([`crate::status::Problem`]); health answers keep their own.
//! Connections, headers, bodies and times are bounded by [`ApiLimits`].

mod ask;
mod auth;
mod config;
mod document;
mod health;
mod problem;
mod routes;
mod server;
mod status;
mod throttle;

pub use auth::{Authorized, PeerAddress, PeerIdentity};
pub(crate) use problem::problem;
pub use routes::AdminState;
pub use server::{AdminHandle, ApiLimits, serve};

#[cfg(test)]
mod tests;
