//! `/api/v1/gateways`: servers of the same files that act as one.

use axum::Json;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;

use super::ask::try_ask;
use super::auth::{Operator, found};
use super::context::AdminState;
use super::named::{Name, Named};
use super::problem::problem;
use crate::config::{GatewayNameText, is_gateway_name};
use crate::control::GatewayControl;
use crate::status::{GatewayList, GatewayTakeover};

/// How sure it is that the gateway is off.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeoverQuery {
    #[serde(default)]
    fenced: bool,
}

impl FromRequestParts<AdminState> for TakeoverQuery {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        let query = Query::try_from_uri(&parts.uri);
        let query = query.ok().map(|Query(query): Query<Self>| query);
        query.ok_or_else(|| {
            let detail = "the query may have fenced=true or fenced=false";
            problem(StatusCode::BAD_REQUEST, detail)
        })
    }
}

/// The name of a gateway.
pub struct GatewayName(String);

impl Name for GatewayName {
    const WHAT: &'static str = "name of a gateway";

    fn read(text: &str) -> Option<Self> {
        is_gateway_name(text).then(|| Self(text.to_owned()))
    }
}

/// Lists the gateways to the same files.
///
/// None if this server is alone.
#[utoipa::path(
    get, path = "/api/v1/gateways", tag = "gateways", operation_id = "list_gateways",
    responses((status = 200, description = "The gateways.", body = GatewayList)),
)]
pub async fn list(State(state): State<AdminState>) -> Result<Json<GatewayList>, Response> {
    let list = try_ask(&state, |control| {
        let list = control.gateways().map(GatewayControl::list);
        list.transpose().map(Option::unwrap_or_default)
    });
    Ok(Json(list.await?))
}

/// Takes the place of another gateway.
///
/// That one must be gone: its sessions in the cluster are ended, and it stops if it still runs. Its
/// clients reclaim here what they had there, once its address leads here; until then no gateway
/// grants new opens and locks, at most for the time of a lease.
#[utoipa::path(
    post, path = "/api/v1/gateways/{name}/take-over", tag = "gateways",
    operation_id = "take_over_gateway",
    params(
        ("name" = inline(GatewayNameText), Path, description = "The gateway that is gone."),
        (
            "fenced" = Option<bool>, Query,
            description = "Somebody has made sure that it is off. Needed with exports of folders.",
        ),
    ),
    responses(
        (status = 200, description = "This one has its place.", body = GatewayTakeover),
        (status = 400),
        (status = 404, description = "There is no such gateway."),
        (status = 409, description = "Not now: the reason says what to do."),
    ),
)]
pub async fn take_over(
    State(mut state): State<AdminState>,
    who: Operator,
    Named(GatewayName(name)): Named<GatewayName>,
    TakeoverQuery { fenced }: TakeoverQuery,
) -> Result<Json<GatewayTakeover>, Response> {
    // The other gateways are waited for.
    state.limits.answer_time = state.limits.change_time;
    let what = format!("take the place of gateway {name}");
    let of = name.clone();
    let taken = who.act(&state, what, found, move |control| {
        let taken = control.gateways().map(|all| all.take_over(&of, fenced));
        taken.transpose().map(Option::flatten)
    });
    taken.await?.map(Json).ok_or_else(|| {
        let detail = format!("there is no gateway {name}; /api/v1/gateways lists them");
        problem(StatusCode::NOT_FOUND, detail)
    })
}
