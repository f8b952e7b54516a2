//! Authorization: by the token of `admin.token_file`, over the Unix socket for root and the server's
//! own user, and by the roles of `admin.roles_file` for other tokens, users and certificates.
//!
//! A handler that changes the configuration takes [`Authorized`] as an argument, and one that does
//! something else [`Operator`], so that they run for authorized requests only.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use axum::response::Response;

use super::ask::{in_time, try_ask};
use super::context::AdminState;
use super::socket::PeerCredentials;
use super::tls::CertificateIdentity;
use super::token_check::{Claim, Refusal, RoleHolder};
use crate::change::Author;
use crate::control::{Control, ControlError};
use crate::roles::Role;

/// The address that a request came from; an extension of every request over TCP.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// Who the client is by its verified certificate; an extension of requests over TLS.
#[derive(Clone, Debug, Default)]
pub struct PeerIdentity(pub Option<Arc<CertificateIdentity>>);

/// Proof that the client may make changes, with its identity. As an argument of a handler it
/// refuses the request if the token is missing (401), wrong (401, and 429 after several wrong
/// ones), cannot be read (503), not configured, or of a lower role (403).
#[derive(Clone, Debug)]
pub struct Authorized(pub Author);

/// The same for requests that do not change the configuration: drains, bans and the like.
#[derive(Clone, Debug)]
pub struct Operator(pub Author);

impl FromRequestParts<AdminState> for Authorized {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, Response> {
        author(parts, state, Role::Admin).await.map(Self)
    }
}

impl FromRequestParts<AdminState> for Operator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, Response> {
        author(parts, state, Role::Operate).await.map(Self)
    }
}

/// Whether a request is known to be one of an operator, without a look at files.
pub(super) fn is_operator(extensions: &Extensions) -> bool {
    let peer = extensions.get::<PeerCredentials>();
    let holder = extensions.get::<RoleHolder>();
    peer.is_some_and(|peer| peer.may_change())
        || holder.is_some_and(|holder| holder.role >= Role::Operate)
}

/// The client of a request, which has this role.
///
/// # Errors
///
/// The response to send.
pub(super) async fn author(
    parts: &Parts,
    state: &AdminState,
    needed: Role,
) -> Result<Author, Response> {
    let identity = certificate(&parts.extensions);
    let credentials = parts.extensions.get::<PeerCredentials>();
    if let Some(peer) = credentials.filter(|peer| peer.may_change()) {
        return Ok(Author {
            name: peer.name(),
            address: None,
        });
    }
    let holder = role_holder(parts, state, needed).await?;
    let name = holder
        .name
        .or_else(|| identity.map(|identity| identity.name.clone()));
    Ok(Author {
        name: name.unwrap_or_else(|| "token".to_owned()),
        address: address(&parts.extensions).map(|address| address.to_string()),
    })
}

/// Who a request is from, by a token, a user or a certificate with this role.
///
/// # Errors
///
/// The response to send.
pub(super) async fn role_holder(
    parts: &Parts,
    state: &AdminState,
    needed: Role,
) -> Result<RoleHolder, Response> {
    let known = parts.extensions.get::<RoleHolder>().cloned();
    if let Some(holder) = known.filter(|holder| holder.role >= needed) {
        return Ok(holder);
    }
    let claim = Claim {
        token: bearer(&parts.headers),
        peer: parts.extensions.get::<PeerCredentials>().copied(),
        certificate: certificate(&parts.extensions),
        address: address(&parts.extensions),
    };
    let context = state.clone();
    let checked = in_time(state, move || {
        let AdminState {
            control,
            config_store,
            tokens,
            ..
        } = &context;
        tokens.check(&**control, config_store, &claim, needed)
    });
    checked.await?.map_err(Refusal::answer)
}

/// The address that a request came from over TCP.
fn address(extensions: &Extensions) -> Option<IpAddr> {
    let address = extensions.get::<PeerAddress>();
    address.map(|PeerAddress(address)| address.ip().to_canonical())
}

/// The verified certificate of the client of a request.
pub(super) fn certificate(extensions: &Extensions) -> Option<Arc<CertificateIdentity>> {
    let PeerIdentity(identity) = extensions.get()?;
    identity.clone()
}

impl Operator {
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
