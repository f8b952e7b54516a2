//! `/api/v1/connections` and the paths below it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::ask::try_ask;
use super::auth::{Operator, found};
use super::context::AdminState;
use super::ending::{Force, unused};
use super::named::Named;
use super::page::PageQuery;
use super::problem::problem;
use crate::change::in_use;
use crate::control::Control;
use crate::status::{ConnectionStatus, Connections, Evicted};

/// Lists the connections of clients by identifier.
#[utoipa::path(
    get, path = "/api/v1/connections", tag = "clients", operation_id = "list_connections",
    params(
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "Most connections of the page; all if left out."),
        ("cursor" = Option<u64>, Query, description = "`next` of the page before."),
    ),
    responses(
        (status = 200, description = "Connections of the moment.", body = Connections),
        (status = 400),
    ),
)]
pub async fn list(
    State(state): State<AdminState>,
    page: PageQuery<u64>,
) -> Result<Json<Connections>, Response> {
    let connections = try_ask(&state, Control::connections).await?;
    let (connections, next) = page.of(connections, |one| one.id, |&id| id);
    Ok(Json(Connections { connections, next }))
}

/// Shows a connection.
#[utoipa::path(
    get, path = "/api/v1/connections/{id}", tag = "clients", operation_id = "get_connection",
    params(("id" = u64, Path, description = "The connection's identifier.", example = 7)),
    responses(
        (status = 200, description = "The connection.", body = ConnectionStatus),
        (status = 404),
    ),
)]
pub async fn show(
    State(state): State<AdminState>,
    Named(id): Named<u64>,
) -> Result<Json<ConnectionStatus>, Response> {
    let connections = try_ask(&state, Control::connections).await?;
    let own = connections.into_iter().find(|one| one.id == id);
    own.map(Json).ok_or_else(|| none(id))
}

/// Closes a connection.
///
/// The client may connect again at once. A connection in use is closed by force only.
#[utoipa::path(
    delete, path = "/api/v1/connections/{id}", tag = "clients", operation_id = "evict_connection",
    params(
        ("id" = u64, Path, description = "The connection's identifier.", example = 7),
        ("force" = Option<bool>, Query, description = "Also if it is in use."),
    ),
    responses(
        (status = 200, description = "It is closed.", body = Evicted),
        (status = 400),
        (status = 404),
        (status = 409),
    ),
)]
pub async fn evict(
    State(state): State<AdminState>,
    who: Operator,
    Named(id): Named<u64>,
    force: Force,
) -> Result<Json<Evicted>, Response> {
    unused(&state, force, move |control| {
        in_use::of_connection(control, id)
    })
    .await?;
    let what = format!("close connection {id}");
    let evicted = who.act(&state, what, found, move |control| {
        Ok(control.evict(id)?.then_some(()))
    });
    evicted.await?.ok_or_else(|| none(id))?;
    Ok(Json(Evicted { connections: 1 }))
}

/// The response for a connection that does not exist.
pub fn none(id: u64) -> Response {
    let detail = format!("there is no connection {id}; /api/v1/connections lists the open ones");
    problem(StatusCode::NOT_FOUND, detail)
}
