//! Comparison of tokens with that of `admin.token_file`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::Response;

use super::problem::problem;
use super::throttle::Throttle;
use crate::change::{Author, ConfigStore};
use crate::control::Control;
use crate::token::{self, TokenError, TokenFile};

/// The state of token checks.
#[derive(Default)]
pub struct TokenCheck {
    throttle: Throttle,
    /// Whether the token's file was found to be readable by all users.
    exposed: AtomicBool,
}

impl TokenCheck {
    /// Checks that a request with this token from this address may make changes. Reads files.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    pub fn check(
        &self,
        control: &dyn Control,
        config_store: &ConfigStore,
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
        // A right token is not delayed by wrong ones from the same address.
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
            config_store.note(&unknown, "wrong token", "refused");
            return Err(Refusal::Wrong);
        }
        Ok(())
    }

    /// Whether this is the token. Reads files.
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

/// The reason for refusing a request.
pub enum Refusal {
    ReadOnly,
    Missing,
    Wrong,
    Throttled(IpAddr, Duration),
    NoToken(TokenError),
}

impl Refusal {
    /// The response to send.
    pub fn answer(self) -> Response {
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
