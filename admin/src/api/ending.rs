//! Orders that end what clients use: refused while it is in use, unless they are forced.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;

use super::ask::try_ask;
use super::context::AdminState;
use super::problem::{in_use, typed_problem};
use crate::control::{Control, ControlError};
use crate::status::{ProblemType, ResourceUse};

/// Whether a request is forced. As an argument of a handler it answers 400 to another query.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Force {
    force: bool,
}

impl FromRequestParts<AdminState> for Force {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        let query = Query::try_from_uri(&parts.uri);
        query.map(|Query(force)| force).map_err(|_| {
            let detail = "the query may have force=true or false";
            typed_problem(ProblemType::Query, detail)
        })
    }
}

/// Refuses a request for what is in use, unless it is forced.
///
/// # Errors
///
/// The response to send.
pub async fn unused<F>(state: &AdminState, Force { force }: Force, uses: F) -> Result<(), Response>
where
    F: FnOnce(&dyn Control) -> Result<Vec<ResourceUse>, ControlError> + Send + 'static,
{
    if force {
        return Ok(());
    }
    let uses = try_ask(state, uses).await?;
    if uses.is_empty() {
        return Ok(());
    }
    let detail = "it is in use, so nothing was done; to do it all the same, force it (`--force` of \
                  millracectl, `?force=true`)";
    Err(in_use(detail, uses))
}
