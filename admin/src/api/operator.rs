//! Priority of requests: operators get through when other clients have to wait.

use std::sync::Arc;

use hyper::Request;

use super::ask::ask_token;
use super::auth::{bearer, certificate};
use super::context::AdminState;
use super::gate::RequestKind;
use super::socket::PeerCredentials;
use super::token_check::Claim;
use crate::roles::Role;

/// The priority of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStanding {
    /// Any client.
    Stranger,
    /// A health check.
    Health,
    /// It has a token or a certificate of a role above `read`, or comes from root or the server's
    /// own user over the Unix socket.
    Operator,
}

/// Determines the priority of a request. Its token is compared, and a wrong one is not counted:
/// that is done where a token is required. Before the service has started there is no state, and no
/// token is valid.
pub async fn standing<B>(state: Option<&AdminState>, request: &mut Request<B>) -> RequestStanding {
    let credentials = request.extensions().get::<PeerCredentials>();
    if credentials.is_some_and(|peer| peer.may_change()) {
        return RequestStanding::Operator;
    }
    let claim = Claim {
        token: bearer(request.headers()),
        peer: credentials.copied(),
        certificate: certificate(request.extensions()),
        address: None,
    };
    if let Some(state) = state
        && claim.says_something()
    {
        let (control, tokens) = (Arc::clone(&state.control), Arc::clone(&state.tokens));
        let found = ask_token(state, move || tokens.holder(&*control, &claim)).await;
        if let Ok(Some(holder)) = found {
            let operates = holder.role >= Role::Operate;
            request.extensions_mut().insert(holder);
            if operates {
                return RequestStanding::Operator;
            }
        }
    }
    match RequestKind::of(request.uri().path()) {
        RequestKind::Health => RequestStanding::Health,
        RequestKind::Other => RequestStanding::Stranger,
    }
}
