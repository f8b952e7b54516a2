//! Requests that come before others: an operator gets through where strangers have to wait.

use std::sync::Arc;

use hyper::Request;

use super::ask::ask_token;
use super::auth::{ValidToken, bearer};
use super::context::AdminState;
use super::gate::RequestKind;
use super::socket::PeerCredentials;

/// Where a request stands when there is not enough for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStanding {
    /// Whoever may ask.
    Stranger,
    /// A look at the health.
    Health,
    /// It has a valid token, or comes from root or the server's own user over the Unix socket.
    Operator,
}

/// Finds out where a request stands. A token that it has is compared, and nothing is held against
/// a wrong one: that is for those who ask for more than anybody may have. While the service starts
/// there is no state, and no token counts.
pub async fn standing<B>(state: Option<&AdminState>, request: &mut Request<B>) -> RequestStanding {
    let credentials = request.extensions().get::<PeerCredentials>();
    if credentials.is_some_and(|peer| peer.may_change()) {
        return RequestStanding::Operator;
    }
    if let Some(state) = state
        && let Some(said) = bearer(request.headers())
    {
        let (control, tokens) = (Arc::clone(&state.control), Arc::clone(&state.tokens));
        let compared = ask_token(state, move || tokens.is_token(&*control, &said)).await;
        if matches!(compared, Ok(true)) {
            request.extensions_mut().insert(ValidToken);
            return RequestStanding::Operator;
        }
    }
    match RequestKind::of(request.uri().path()) {
        RequestKind::Health => RequestStanding::Health,
        RequestKind::Other => RequestStanding::Stranger,
    }
}
