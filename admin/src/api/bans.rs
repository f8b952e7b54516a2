//! `/api/v1/bans` and `/api/v1/clients/{address}/ban`: addresses that may not connect for a time.

use std::net::IpAddr;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::ask::try_ask;
use super::auth::{Operator, found};
use super::body::{Body, invalid};
use super::clients::evict_all;
use super::context::AdminState;
use super::ending::{Force, unused};
use super::named::Named;
use super::problem::problem;
use crate::change::in_use;
use crate::config::AddressText;
use crate::status::{BanOrder, Bans, Evicted, FieldProblem};

/// The longest ban.
const SECONDS_MAX: u64 = 30 * 24 * 60 * 60;

/// Lists the banned addresses.
#[utoipa::path(
    get, path = "/api/v1/bans", tag = "clients", operation_id = "list_bans",
    responses((status = 200, description = "All banned addresses.", body = Bans)),
)]
pub async fn list(State(state): State<AdminState>) -> Result<Json<Bans>, Response> {
    let bans = try_ask(&state, |control| Ok(control.bans())).await?;
    Ok(Json(Bans { bans }))
}

/// Bans a client for a time.
///
/// Its connections are closed, and new ones of its address are refused until then. The client need
/// not be connected. A ban replaces an earlier one, and ends when the server does. A client whose
/// connections are in use is banned by force only.
#[utoipa::path(
    put, path = "/api/v1/clients/{address}/ban", tag = "clients", operation_id = "ban_client",
    params(
        ("address" = inline(AddressText), Path, description = "The client's address."),
        ("force" = Option<bool>, Query, description = "Also if its connections are in use."),
    ),
    request_body(content = BanOrder, example = json!({"seconds": 600})),
    responses(
        (status = 200, description = "It is banned.", body = Evicted),
        (status = 400),
        (status = 404),
        (status = 409, description = "Its connections are in use, or too many addresses are banned."),
    ),
)]
pub async fn ban(
    State(state): State<AdminState>,
    who: Operator,
    Named(address): Named<IpAddr>,
    force: Force,
    Body(order): Body<BanOrder>,
) -> Result<Json<Evicted>, Response> {
    if order.seconds == 0 || order.seconds > SECONDS_MAX {
        return Err(invalid(vec![FieldProblem {
            path: "seconds".to_owned(),
            message: format!("has to be from 1 to {SECONDS_MAX}"),
        }]));
    }
    unused(&state, force, move |control| {
        in_use::of_client(control, address)
    })
    .await?;
    let what = format!("ban {address} for {} s", order.seconds);
    let banned = who.act(
        &state,
        what,
        |_| "done",
        move |control| {
            control.ban(address, Duration::from_secs(order.seconds))?;
            evict_all(control, address)
        },
    );
    let connections = banned.await?.unwrap_or(0);
    Ok(Json(Evicted { connections }))
}

/// Lifts the ban of a client.
#[utoipa::path(
    delete, path = "/api/v1/clients/{address}/ban", tag = "clients", operation_id = "lift_ban",
    params(("address" = inline(AddressText), Path, description = "The client's address.")),
    responses((status = 204, description = "It is lifted."), (status = 404)),
)]
pub async fn lift(
    State(state): State<AdminState>,
    who: Operator,
    Named(address): Named<IpAddr>,
) -> Result<StatusCode, Response> {
    let what = format!("lift the ban of {address}");
    let lifted = who.act(&state, what, found, move |control| {
        Ok(control.lift_ban(address).then_some(()))
    });
    lifted.await?.ok_or_else(|| {
        let detail = format!("{address} is not banned; /api/v1/bans lists banned addresses");
        problem(StatusCode::NOT_FOUND, detail)
    })?;
    Ok(StatusCode::NO_CONTENT)
}
