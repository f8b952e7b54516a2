//! `/api/v1/gss/contexts`: contexts of Kerberos.

use axum::Json;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;

use super::ask::try_ask;
use super::auth::{Operator, found};
use super::context::AdminState;
use super::problem::problem;
use crate::control::GssControl;
use crate::status::{GssContexts, GssFlushed};

/// Longest name of a principal in a query.
const PRINCIPAL_MAX: usize = 1024;

/// Whose contexts are meant: those of a principal, or all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushQuery {
    principal: Option<String>,
}

impl FromRequestParts<AdminState> for FlushQuery {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        let query = Query::try_from_uri(&parts.uri);
        let query = query.ok().map(|Query(query): Query<Self>| query);
        let within = |query: &Self| {
            let name = query.principal.as_deref();
            name.is_none_or(|name| (1..=PRINCIPAL_MAX).contains(&name.len()))
        };
        query.filter(within).ok_or_else(|| {
            let detail = "the query may have principal=NAME@REALM";
            problem(StatusCode::BAD_REQUEST, detail)
        })
    }
}

/// Lists the contexts of Kerberos.
///
/// Without Kerberos there are none.
#[utoipa::path(
    get, path = "/api/v1/gss/contexts", tag = "gss", operation_id = "list_gss_contexts",
    responses((status = 200, description = "The contexts used last.", body = GssContexts)),
)]
pub async fn list_contexts(State(state): State<AdminState>) -> Result<Json<GssContexts>, Response> {
    let list = try_ask(&state, |control| {
        Ok(control.gss().map(GssControl::contexts).unwrap_or_default())
    });
    Ok(Json(list.await?))
}

/// Ends contexts of Kerberos.
///
/// Those of a principal, or all. Clients make them again with their tickets, and users and groups are
/// looked up anew. Calls in service are finished.
#[utoipa::path(
    delete, path = "/api/v1/gss/contexts", tag = "gss", operation_id = "flush_gss_contexts",
    params((
        "principal" = Option<String>, Query, min_length = 1, max_length = 1024,
        description = "The principal, with its realm; all if left out.",
    )),
    responses(
        (status = 200, description = "They have ended.", body = GssFlushed),
        (status = 400),
        (status = 404, description = "Kerberos is not served."),
        (status = 409),
    ),
)]
pub async fn flush(
    State(state): State<AdminState>,
    who: Operator,
    query: FlushQuery,
) -> Result<Json<GssFlushed>, Response> {
    let principal = query.principal;
    let what = match &principal {
        Some(principal) => format!("end the Kerberos contexts of {}", principal.escape_debug()),
        None => "end all Kerberos contexts".to_owned(),
    };
    let ended = who.act(&state, what, found, move |control| {
        let ended = control.gss().map(|gss| gss.flush(principal.as_deref()));
        Ok(ended)
    });
    let ended = ended.await?.ok_or_else(|| {
        let detail = "Kerberos is not served: the configuration has no section gss";
        problem(StatusCode::NOT_FOUND, detail)
    })?;
    Ok(Json(GssFlushed { ended }))
}
