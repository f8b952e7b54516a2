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
//! Connections, rates, headers, bodies and times are bounded by [`ApiLimits`]. With
//! [`Certificates`], HTTPS is spoken in place of HTTP.

mod ask;
mod auth;
mod body;
mod config;
mod connection;
mod document;
mod gate;
mod health;
mod limits;
mod neighbour;
mod patience;
mod places;
mod problem;
mod routes;
mod server;
mod status;
mod throttle;
mod tls;

pub use auth::{Authorized, PeerAddress, PeerIdentity};
pub use limits::{ApiLimits, Rate};
pub(crate) use problem::problem;
pub use routes::AdminState;
pub use server::{AdminHandle, serve};
pub use tls::{Certificates, TlsError};

#[cfg(test)]
mod tests;
