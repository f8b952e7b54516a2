//! `/api/v1/listeners`: addresses of listeners, and the entries of `fabric`.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::ask::{ask_config, try_ask};
use super::body::Body;
use super::change_request::{ChangeAnswer, ChangeOptions, IfMatchOptional};
use super::context::AdminState;
use super::editing::Editing;
use super::named::Named;
use super::problem::problem;
use crate::change::ConfigStore;
use crate::config::{Config, Fabric, SocketText};
use crate::control::{Control, ControlError};
use crate::status::{ListenerStatus, Listeners};

/// Lists the addresses of listeners.
#[utoipa::path(
    get, path = "/api/v1/listeners", tag = "control", operation_id = "list_listeners",
    responses((status = 200, description = "All listeners.", body = Listeners)),
)]
pub async fn list(State(state): State<AdminState>) -> Result<Json<Listeners>, Response> {
    let listeners = try_ask(&state, Control::listeners).await?;
    Ok(Json(Listeners { listeners }))
}

/// Shows a listener.
#[utoipa::path(
    get, path = "/api/v1/listeners/{address}", tag = "control", operation_id = "get_listener",
    params(("address" = inline(SocketText), Path, description = "Address and port as bound.")),
    responses((status = 200, description = "The listener.", body = ListenerStatus), (status = 404)),
)]
pub async fn show(
    State(state): State<AdminState>,
    Named(address): Named<SocketAddr>,
) -> Result<Json<ListenerStatus>, Response> {
    let listeners = try_ask(&state, Control::listeners).await?;
    let mut listeners = listeners.into_iter();
    let own = listeners.find(|one| is_at(one, address));
    own.map(Json).ok_or_else(|| none(address))
}

/// Adds a listener.
///
/// Appends the body to `fabric` of the configuration.
#[utoipa::path(
    post, path = "/api/v1/listeners", tag = "control", operation_id = "add_listener",
    params(
        ChangeOptions,
        IfMatchOptional,
    ),
    request_body(
        content = Fabric,
        example = json!({"provider": "iwarp", "listen": "127.0.0.1:20050"}),
    ),
    responses(
        ChangeAnswer,
        (status = 409, description = "The address cannot be used."),
        (status = 412),
    ),
)]
pub async fn add(
    State(state): State<AdminState>,
    editing: Editing,
    Body(fabric): Body<Fabric>,
) -> Result<Response, Response> {
    let edit = move |config: &mut Config| {
        config.fabric.push(fabric);
        Ok(())
    };
    editing.make(&state, "listeners", edit).await
}

/// Removes a listener.
///
/// Removes the entry from `fabric` of the configuration. Connections that were accepted there
/// stay open.
#[utoipa::path(
    delete, path = "/api/v1/listeners/{address}", tag = "control", operation_id = "remove_listener",
    params(
        (
            "address" = inline(SocketText), Path,
            description = "Address and port as configured or, for port 0, as bound.",
        ),
        ChangeOptions,
        IfMatchOptional,
    ),
    responses(
        ChangeAnswer,
        (status = 400),
        (status = 404),
        (status = 409),
        (status = 412),
        (status = 422),
    ),
)]
pub async fn remove(
    State(state): State<AdminState>,
    editing: Editing,
    Named(address): Named<SocketAddr>,
) -> Result<Response, Response> {
    let config = ask_config(&state, ConfigStore::current).await?.config;
    let mut entries = config.fabric.iter();
    let entry = match entries.find(|fabric| fabric.listen == address) {
        Some(entry) => entry.clone(),
        // A listener with port 0 is known by its actual port.
        None => {
            let bound = try_ask(&state, move |control| bound(control, address)).await?;
            let known = bound.filter(|entry| config.fabric.contains(entry));
            known.ok_or_else(|| none(address))?
        }
    };
    let edit = move |config: &mut Config| {
        let place = config.fabric.iter().position(|fabric| *fabric == entry);
        place.map(|place| config.fabric.remove(place));
        Ok(())
    };
    editing.make(&state, "listeners", edit).await
}

/// The entry of the configuration for the listener at this address.
fn bound(control: &dyn Control, address: SocketAddr) -> Result<Option<Fabric>, ControlError> {
    let listeners = control.listeners()?;
    let own = listeners.iter().find(|one| is_at(one, address));
    let place = own.and_then(|one| one.index);
    Ok(place.and_then(|place| control.config().fabric.get(place).cloned()))
}

fn is_at(listener: &ListenerStatus, address: SocketAddr) -> bool {
    listener.address.parse() == Ok(address)
}

fn none(address: SocketAddr) -> Response {
    let detail = format!("there is no listener at {address}; /api/v1/listeners lists all");
    problem(StatusCode::NOT_FOUND, detail)
}
