//! `/api/v1/whoami`: who the requester is, and what it may do.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::Response;

use super::auth::{bearer, certificate, role_holder};
use super::context::AdminState;
use super::socket::PeerCredentials;
use super::token_check::RoleHolder;
use crate::roles::Role;
use crate::status::{RequesterProof, RequesterStatus};

/// The path, which is read without a token in any case: it tells nothing but about the requester.
pub const PATH: &str = "/api/v1/whoami";

/// Shows the requester's name and role.
///
/// By its token, if it sends one, else by the user of the Unix socket or the client certificate. A
/// wrong token is refused, and counts as one. Without a role nothing can be changed; reading is open
/// to all then, unless `admin.read_token` requires a token.
#[utoipa::path(
    get, path = "/api/v1/whoami", tag = "api", operation_id = "get_requester",
    responses((status = 200, description = "The requester.", body = RequesterStatus)),
)]
pub async fn show(
    State(state): State<AdminState>,
    RequestParts(parts): RequestParts,
) -> Result<Json<RequesterStatus>, Response> {
    let status = |name: Option<String>, role, proof| {
        Json(RequesterStatus {
            name,
            role,
            by: proof,
        })
    };
    let peer = parts.extensions.get::<PeerCredentials>();
    if let Some(peer) = peer.filter(|peer| peer.may_change()) {
        let by = Some(RequesterProof::Socket);
        return Ok(status(Some(peer.name()), Some(Role::Admin), by));
    }
    if bearer(&parts.headers).is_some() {
        let RoleHolder { name, role } = role_holder(&parts, &state, Role::Read).await?;
        let name = name.unwrap_or_else(|| "token".to_owned());
        return Ok(status(Some(name), Some(role), Some(RequesterProof::Token)));
    }
    let identity = certificate(&parts.extensions);
    let by = match (peer, &identity) {
        (Some(_), _) => Some(RequesterProof::Socket),
        (None, Some(_)) => Some(RequesterProof::Certificate),
        (None, None) => None,
    };
    Ok(match parts.extensions.get::<RoleHolder>() {
        Some(RoleHolder { name, role }) => status(name.clone(), Some(*role), by),
        None => {
            let certified = identity.map(|identity| identity.name.clone());
            status(peer.map(|peer| peer.name()).or(certified), None, by)
        }
    })
}

/// All of a request but its body.
pub struct RequestParts(Parts);

impl FromRequestParts<AdminState> for RequestParts {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        Ok(Self(parts.clone()))
    }
}
