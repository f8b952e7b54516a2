//! The HTTP API, on a thread of its own.
//!
//! | path | response |
//! | --- | --- |
//! | `/` | the dashboard, with the parts of the page at `/assets/` |
//! | `/metrics` | Prometheus metrics |
//! | `/healthz` | 200, or 503 with the reactors that are stalled |
//! | `/readyz` | 200, or 503 while starting or draining |
//! | `/api/v1/` | as described by `/api/v1/openapi.json` |
//!
//! A handler and its description are one function, and are added to the router together. Each
//! handler that changes something takes [`Authorized`] or [`Operator`] as an argument. Error
//! responses have a body of type `application/problem+json` ([`crate::status::Problem`]), except those about health.
//! Until the service has started, only `/healthz` and `/readyz` are served ([`serve_start`]).
//! Connections, rates, headers, bodies and times are limited by [`ApiLimits`]. With
//! [`Certificates`], HTTPS is served instead of HTTP.
#![allow(
    clippy::result_large_err,
    reason = "a failure is an answer, made once for a request"
)]

mod ask;
mod auth;
mod bans;
mod body;
mod capture;
mod change_request;
mod client_limits;
mod clients;
mod concurrency;
mod config;
mod connection;
mod connections;
mod context;
mod document;
mod drain;
mod editing;
mod ending;
mod events;
mod figures;
mod gate;
mod gateways;
mod gss;
mod health;
mod limits;
mod listeners;
mod log;
mod long;
mod named;
mod neighbour;
mod nfs4;
mod observe;
mod operator;
mod origin;
mod page;
mod places;
mod problem;
mod query;
mod routes;
mod server;
mod socket;
mod starting;
mod status;
mod throttle;
mod tls;
mod token_check;
mod upload;
mod whoami;
mod write_timeout;

pub use auth::{Authorized, Operator, PeerAddress, PeerIdentity};
pub use context::AdminState;
pub use limits::{ApiLimits, Rate};
pub(crate) use problem::problem;
pub use server::{AdminHandle, StartingAdmin, serve, serve_start, serve_with_socket};
pub use socket::{AdminSocket, PeerCredentials};
pub use tls::{CertificateIdentity, Certificates, TlsError};

#[cfg(test)]
mod tests;
