//! The HTTP API, on a thread of its own.
//!
//! | path | answer |
//! | --- | --- |
//! | `/` | the dashboard, with the parts of the page at `/assets/` |
//! | `/metrics` | Prometheus metrics |
//! | `/healthz` | 200, or 503 with the reactors that are stalled |
//! | `/readyz` | 200, or 503 while starting or draining |
//! | `/api/v1/version` | which program answers |
//! | `/api/v1/config` | the configuration, as JSON, or YAML with `?format=yaml`; PUT and PATCH change it |
//! | `/api/v1/config/history`, `pending` | its changes, and what of them waits for a restart |
//! | `/api/v1/config/rollback`, `reload` | POST goes back to an earlier one, or reads the file |
//! | `/api/v1/connections`, `reactors`, `pools`, `exports` | snapshots |
//!
//! Whatever changes something needs the token ([`crate::token`]). Whatever is no success has a body of type
//! `application/problem+json` ([`crate::status::Problem`]); health answers keep their own.
//! Connections, headers, bodies and times are bounded by [`ApiLimits`].
#![allow(
    clippy::result_large_err,
    reason = "an answer that ends a request early is moved a few times per request at most"
)]

mod ask;
mod auth;
mod changing;
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
