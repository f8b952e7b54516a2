//! `/api/v1/clients` and the paths below it: clients by address, summed over their connections.

use std::net::{IpAddr, SocketAddr};

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
use crate::config::AddressText;
use crate::control::{Control, ControlError};
use crate::status::{ClientStatus, Clients, Evicted};

/// Lists the clients by address.
#[utoipa::path(
    get, path = "/api/v1/clients", tag = "clients", operation_id = "list_clients",
    params(
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "Most clients of the page; all if left out."),
        ("cursor" = Option<String>, Query, description = "`next` of the page before."),
    ),
    responses(
        (status = 200, description = "Addresses with connections.", body = Clients),
        (status = 400),
    ),
)]
pub async fn list(
    State(state): State<AdminState>,
    page: PageQuery<String>,
) -> Result<Json<Clients>, Response> {
    let clients = try_ask(&state, Control::clients).await?;
    let key = |one: &ClientStatus| one.address.clone();
    let (clients, next) = page.of(clients, key, |address| {
        (address.parse::<IpAddr>().ok(), address.clone())
    });
    Ok(Json(Clients { clients, next }))
}

/// Shows a client.
#[utoipa::path(
    get, path = "/api/v1/clients/{address}", tag = "clients", operation_id = "get_client",
    params(("address" = inline(AddressText), Path, description = "The client's address.")),
    responses((status = 200, description = "The client.", body = ClientStatus), (status = 404)),
)]
pub async fn show(
    State(state): State<AdminState>,
    Named(address): Named<IpAddr>,
) -> Result<Json<ClientStatus>, Response> {
    let clients = try_ask(&state, Control::clients).await?;
    let mut clients = clients.into_iter();
    let own = clients.find(|client| is_address(&client.address, address));
    own.map(Json).ok_or_else(|| none(address))
}

/// Closes all connections of a client.
///
/// The client may connect again at once; see `/api/v1/clients/{address}/ban`. Connections in use are
/// closed by force only.
#[utoipa::path(
    delete, path = "/api/v1/clients/{address}", tag = "clients", operation_id = "evict_client",
    params(
        ("address" = inline(AddressText), Path, description = "The client's address."),
        ("force" = Option<bool>, Query, description = "Also if they are in use."),
    ),
    responses(
        (status = 200, description = "They are closed.", body = Evicted),
        (status = 400),
        (status = 404),
        (status = 409),
    ),
)]
pub async fn evict(
    State(state): State<AdminState>,
    who: Operator,
    Named(address): Named<IpAddr>,
    force: Force,
) -> Result<Json<Evicted>, Response> {
    unused(&state, force, move |control| {
        in_use::of_client(control, address)
    })
    .await?;
    let what = format!("close the connections of {address}");
    let evicted = who.act(&state, what, found, move |control| {
        evict_all(control, address)
    });
    let connections = evicted.await?.ok_or_else(|| none(address))?;
    Ok(Json(Evicted { connections }))
}

/// Closes the current connections of a client; `None` if it has none.
pub(super) fn evict_all(
    control: &dyn Control,
    address: IpAddr,
) -> Result<Option<u64>, ControlError> {
    let connections = control.connections()?;
    let own = connections.iter().filter(|one| is_peer(&one.peer, address));
    let mut found = None;
    for connection in own {
        // It may have ended by itself in the meantime.
        let closed = control.evict(connection.id)?;
        *found.get_or_insert(0) += u64::from(closed);
    }
    Ok(found)
}

fn is_peer(text: &str, address: IpAddr) -> bool {
    text.parse::<SocketAddr>()
        .is_ok_and(|peer| peer.ip().to_canonical() == address)
}

fn is_address(text: &str, address: IpAddr) -> bool {
    text.parse::<IpAddr>()
        .is_ok_and(|client| client.to_canonical() == address)
}

fn none(address: IpAddr) -> Response {
    let detail = format!("{address} has no connections; /api/v1/clients lists connected clients");
    problem(StatusCode::NOT_FOUND, detail)
}
