//! Authorization of changes: by the token of `admin.token_file`, or over the Unix socket for root
//! and the server's own user.
//!
//! A handler that changes something takes [`Authorized`] as an argument, so it runs for authorized
//! requests only.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::Response;

use super::ask::{in_time, try_ask};
use super::context::AdminState;
use super::socket::PeerCredentials;
use super::token_check::Refusal;
use crate::change::Author;
use crate::control::{Control, ControlError};

/// The address that a request came from; an extension of every request over TCP.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// The name in the client's verified certificate; an extension of requests over TLS.
#[derive(Clone, Debug, Default)]
pub struct PeerIdentity(pub Option<String>);

/// Proof that the client may make changes, with its identity. As an argument of a handler it
/// refuses the request if the token is missing (401), wrong (401, and 429 after several wrong
/// ones), cannot be read (503), or not configured (403).
#[derive(Clone, Debug)]
pub struct Authorized(pub Author);

/// An extension of requests with a valid token.
#[derive(Clone, Copy, Debug)]
pub struct ValidToken;

impl FromRequestParts<AdminState> for Authorized {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, Response> {
        let address = parts.extensions.get::<PeerAddress>();
        let address = address.map(|PeerAddress(address)| address.ip().to_canonical());
        let identity = parts.extensions.get::<PeerIdentity>().cloned();
        let credentials = parts.extensions.get::<PeerCredentials>();
        if let Some(peer) = credentials.filter(|peer| peer.may_change()) {
            return Ok(Self(Author {
                name: peer.name(),
                address: None,
            }));
        }
        let said = bearer(&parts.headers);
        if parts.extensions.get::<ValidToken>().is_none() {
            let context = state.clone();
            in_time(state, move || {
                let AdminState {
                    control,
                    config_store,
                    tokens,
                    ..
                } = &context;
                tokens.check(&**control, config_store, said.as_deref(), address)
            })
            .await?
            .map_err(Refusal::answer)?;
        }
        let name = identity.and_then(|PeerIdentity(name)| name);
        Ok(Self(Author {
            name: name.unwrap_or_else(|| "token".to_owned()),
            address: address.map(|address| address.to_string()),
        }))
    }
}

impl Authorized {
    /// Lets the service perform an action that does not change the configuration, and writes an
    /// audit record. `outcome` names the result in this record.
    ///
    /// # Errors
    ///
    /// The response to send if the service refuses or does not answer in time.
    pub async fn act<T, F>(
        self,
        state: &AdminState,
        what: String,
        outcome: fn(&T) -> &'static str,
        action: F,
    ) -> Result<T, Response>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Control) -> Result<T, ControlError> + Send + 'static,
    {
        let config_store = Arc::clone(&state.config_store);
        try_ask(state, move |control| {
            let result = action(control);
            let word = match &result {
                Ok(value) => outcome(value).to_owned(),
                Err(error) => error.to_string(),
            };
            config_store.note(&self.0, &what, &word);
            result
        })
        .await
    }
}

/// The result of an action whose object may not exist, for the audit record.
pub fn found<T>(value: &Option<T>) -> &'static str {
    match value {
        Some(_) => "done",
        None => "not_found",
    }
}

/// The token of the header `Authorization`, which must be present exactly once. The scheme is
/// case-insensitive (RFC 9110 section 11.4).
pub(super) fn bearer(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else {
        return None;
    };
    let space = value.iter().position(|&byte| byte == b' ')?;
    let (scheme, token) = value.split_at(space);
    scheme
        .eq_ignore_ascii_case(b"Bearer")
        .then(|| token.trim_ascii().to_vec())
}
