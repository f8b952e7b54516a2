//! Who may change things: whoever says the token of `admin.token_file`, and root and the server's
//! own user over the Unix socket.
//!
//! A handler that changes anything takes [`Authorized`] as one of its arguments; it does not run
//! without.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::ask::in_time;
use super::operator::ValidToken;
use super::problem::problem;
use super::routes::AdminState;
use super::socket::PeerCredentials;
use super::throttle::Throttle;
use crate::change::{Author, Ledger};
use crate::control::Control;
use crate::token::{self, TokenError, TokenFile};

/// The address that a request came from; an extension of every request over TCP.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// The name in the certificate that the client proved to have; an extension of requests over TLS.
#[derive(Clone, Debug, Default)]
pub struct PeerIdentity(pub Option<String>);

/// Proof that the one who asks may change things, and who it is. As an argument of a handler it
/// answers for the handler when the token is missing (401), wrong (401, and 429 after several wrong ones),
/// not to be had (503), or when there are no tokens (403).
#[derive(Clone, Debug)]
pub struct Authorized(pub Author);

/// What the checks of tokens remember.
#[derive(Default)]
pub(super) struct Guard {
    throttle: Throttle,
    /// Whether the token's file was seen to be readable for everybody.
    exposed: AtomicBool,
}

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
        let (control, ledger) = (Arc::clone(&state.control), Arc::clone(&state.ledger));
        let guard = Arc::clone(&state.guard);
        if parts.extensions.get::<ValidToken>().is_none() {
            in_time(state, move || {
                guard.check(&*control, &ledger, said.as_deref(), address)
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

impl Guard {
    /// Reads files.
    fn check(
        &self,
        control: &dyn Control,
        ledger: &Ledger,
        said: Option<&[u8]>,
        address: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let config = control.config();
        let file = config
            .admin
            .token_file
            .as_deref()
            .ok_or(Refusal::ReadOnly)?;
        let said = said.ok_or(Refusal::Missing)?;
        // The right token is never made to wait for what others at the same address say.
        if !self.compare(file, said).map_err(Refusal::NoToken)? {
            let from = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            if let Some(wait) = self.throttle.wait(from, Instant::now()) {
                return Err(Refusal::Throttled(from, wait));
            }
            self.throttle.wrong(from, Instant::now());
            let unknown = Author {
                name: "unknown".to_owned(),
                address: address.map(|address| address.to_string()),
            };
            ledger.note(&unknown, "wrong token", "refused");
            return Err(Refusal::Wrong);
        }
        Ok(())
    }

    /// Whether it is the token. Reads files.
    pub fn is_token(&self, control: &dyn Control, said: &[u8]) -> bool {
        let config = control.config();
        let file = config.admin.token_file.as_deref();
        file.is_some_and(|file| self.compare(file, said).unwrap_or(false))
    }

    fn compare(&self, file: &Path, said: &[u8]) -> Result<bool, TokenError> {
        let TokenFile { token, exposed } = token::read(file)?;
        if exposed && !self.exposed.swap(exposed, Ordering::Relaxed) {
            let file = file.display();
            tracing::warn!("admin.token_file: every user of this host can read {file}");
        }
        self.exposed.store(exposed, Ordering::Relaxed);
        Ok(token.is(said))
    }
}

/// Why there is no authority.
enum Refusal {
    ReadOnly,
    Missing,
    Wrong,
    Throttled(IpAddr, Duration),
    NoToken(TokenError),
}

impl Refusal {
    fn answer(self) -> Response {
        let unauthorized = |detail| {
            let mut answer = problem(StatusCode::UNAUTHORIZED, detail);
            let scheme = HeaderValue::from_static("Bearer realm=\"millrace\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            answer
        };
        match self {
            Self::ReadOnly => problem(
                StatusCode::FORBIDDEN,
                "the API is read-only, as the configuration names no admin.token_file; write the \
                 path of a file with a token there, and send SIGHUP",
            ),
            Self::Missing => unauthorized(
                "this needs the header `Authorization: Bearer TOKEN`, with the content of \
                 admin.token_file as the token",
            ),
            Self::Wrong => unauthorized("the token is not that of admin.token_file"),
            Self::Throttled(address, wait) => {
                let seconds = wait.as_secs() + 1;
                let mut answer = problem(
                    StatusCode::TOO_MANY_REQUESTS,
                    format!("too many wrong tokens from {address}; wait for {seconds} seconds"),
                );
                answer.headers_mut().insert(RETRY_AFTER, seconds.into());
                answer
            }
            Self::NoToken(error) => problem(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("admin.token_file: {error}"),
            ),
        }
    }
}

/// The token of the one header `Authorization`, whose scheme is a word in any case (RFC 9110
/// section 11.4).
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
