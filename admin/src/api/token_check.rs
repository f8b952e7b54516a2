//! Comparison of tokens, users and certificates with `admin.token_file` and `admin.roles_file`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::Response;

use super::problem::problem;
use super::socket::PeerCredentials;
use super::throttle::Throttle;
use super::tls::CertificateIdentity;
use crate::change::{Author, ConfigStore};
use crate::config::Admin;
use crate::control::Control;
use crate::roles::{self, Role};
use crate::token::{self, TokenError, TokenFile};

/// The state of token checks.
#[derive(Default)]
pub struct TokenCheck {
    throttle: Throttle,
    /// Whether the token's file was found to be readable by all users.
    exposed: AtomicBool,
}

/// What a request says of its client.
#[derive(Clone, Default)]
pub struct Claim {
    /// The token.
    pub token: Option<Vec<u8>>,
    /// The user of the Unix socket.
    pub peer: Option<PeerCredentials>,
    /// The verified certificate.
    pub certificate: Option<Arc<CertificateIdentity>>,
    /// The address.
    pub address: Option<IpAddr>,
}

impl Claim {
    /// Whether there is anything that could have a role.
    pub fn says_something(&self) -> bool {
        self.token.is_some() || self.peer.is_some() || self.certificate.is_some()
    }
}

/// A client with a role; an extension of requests that have one.
#[derive(Clone, Debug)]
pub struct RoleHolder {
    /// Its name; `None` for the token of `admin.token_file`.
    pub name: Option<String>,
    /// Its role.
    pub role: Role,
}

impl TokenCheck {
    /// Checks that a client has this role. Reads files.
    ///
    /// # Errors
    ///
    /// The reason of the refusal.
    pub fn check(
        &self,
        control: &dyn Control,
        config_store: &ConfigStore,
        claim: &Claim,
        needed: Role,
    ) -> Result<RoleHolder, Refusal> {
        let config = control.config();
        if config.admin.token_file.is_none() && config.admin.roles_file.is_none() {
            return Err(Refusal::ReadOnly);
        }
        if !claim.says_something() {
            return Err(Refusal::Missing);
        }
        let address = claim.address.map(|address| address.to_string());
        // A right token is not delayed by wrong ones from the same address.
        let Some(holder) = self.find(&config.admin, claim)? else {
            if claim.token.is_none() {
                return Err(Refusal::Missing);
            }
            let from = claim.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            if let Some(wait) = self.throttle.wait(from, Instant::now()) {
                return Err(Refusal::Throttled(from, wait));
            }
            self.throttle.wrong(from, Instant::now());
            let name = "unknown".to_owned();
            config_store.note(&Author { name, address }, "wrong token", "refused");
            return Err(Refusal::Wrong);
        };
        if holder.role < needed {
            let name = holder.name.unwrap_or_default();
            let what = format!("a request that needs the role {needed}");
            let author = Author {
                name: name.clone(),
                address,
            };
            config_store.note(&author, &what, "refused");
            return Err(Refusal::Role(name, holder.role, needed));
        }
        Ok(holder)
    }

    /// The role of a client, if it has one. Reads files.
    pub fn holder(&self, control: &dyn Control, claim: &Claim) -> Option<RoleHolder> {
        self.find(&control.config().admin, claim).ok().flatten()
    }

    fn find(&self, admin: &Admin, claim: &Claim) -> Result<Option<RoleHolder>, Refusal> {
        let mut failure = None;
        if let (Some(file), Some(said)) = (&admin.token_file, &claim.token) {
            match self.compare(file, said) {
                Ok(true) => {
                    let role = Role::Admin;
                    return Ok(Some(RoleHolder { name: None, role }));
                }
                Ok(false) => {}
                Err(error) => failure = Some(Refusal::NoToken("token_file", error)),
            }
        }
        if let Some(file) = &admin.roles_file {
            match roles::read(file) {
                Ok(roles) => {
                    let token = claim.token.as_ref().and_then(|said| roles.token(said));
                    let token = token.map(|(name, role)| (name.to_owned(), role));
                    let user = || {
                        let peer = claim.peer?;
                        Some((peer.name(), roles.user(peer.uid, peer.gid)?))
                    };
                    let certificate = || {
                        let certificate = claim.certificate.as_ref()?;
                        let (name, role) = roles.certificate(&certificate.entries)?;
                        Some((name.to_owned(), role))
                    };
                    // A token that is sent decides alone: with a wrong one a request has no
                    // role, and the attempt counts, whatever the user and the certificate are.
                    let found = match &claim.token {
                        Some(_) => token,
                        None => user().or_else(certificate),
                    };
                    if let Some((name, role)) = found {
                        let name = Some(name);
                        return Ok(Some(RoleHolder { name, role }));
                    }
                }
                Err(error) => {
                    failure.get_or_insert(Refusal::NoToken("roles_file", error));
                }
            }
        }
        failure.map_or(Ok(None), Err)
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
    NoToken(&'static str, TokenError),
    /// Name, role, and the role that is needed.
    Role(String, Role, Role),
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
                 admin.token_file as the token, or a token or client certificate with a role in \
                 admin.roles_file",
            ),
            Self::Wrong => unauthorized("the token is none that the server knows"),
            Self::Throttled(address, wait) => {
                let seconds = wait.as_secs() + 1;
                let mut answer = problem(
                    StatusCode::TOO_MANY_REQUESTS,
                    format!("too many wrong tokens from {address}; wait for {seconds} seconds"),
                );
                answer.headers_mut().insert(RETRY_AFTER, seconds.into());
                answer
            }
            Self::NoToken(key, error) => problem(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("admin.{key}: {error}"),
            ),
            Self::Role(name, has, needed) => problem(
                StatusCode::FORBIDDEN,
                format!(
                    "{name} has the role {has}, and this needs {needed}; roles are in \
                     admin.roles_file of the configuration"
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::hash;

    #[test]
    fn a_user_of_the_socket_has_the_role_of_the_file_or_of_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("roles");
        let token = "a-token-of-another-role";
        let text = format!(
            "user 4242 read\ngroup 77 operate\ntoken ci admin {}\n",
            hash(token)
        );
        std::fs::write(&file, text).unwrap();
        let admin = Admin {
            roles_file: Some(file),
            ..Admin::default()
        };
        let tokens = TokenCheck::default();
        let role = |uid, gid, token: Option<&str>| {
            let claim = Claim {
                token: token.map(|token| token.as_bytes().to_vec()),
                peer: Some(PeerCredentials { uid, gid }),
                ..Claim::default()
            };
            let found = tokens.find(&admin, &claim).unwrap_or_default();
            found.map(|holder| (holder.name.unwrap(), holder.role))
        };
        let user = "uid 4242".to_owned();
        assert_eq!(role(4242, 1, None), Some((user.clone(), Role::Read)));
        assert_eq!(role(4242, 77, None), Some((user, Role::Operate)));
        let by_token = Some(("ci".to_owned(), Role::Admin));
        assert_eq!(role(4242, 1, Some(token)), by_token);
        assert_eq!(role(4242, 1, Some("another token")), None);
        assert_eq!(role(5, 5, None), None);
    }
}
