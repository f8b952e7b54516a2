//! `/api/v1/clients/{address}/limits`: an entry of `limits` for exactly one address.

use std::net::IpAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::ask::ask_config;
use super::body::{Body, invalid};
use super::change_request::{ChangeAnswer, ChangeOptions, IfMatchOptional};
use super::context::AdminState;
use super::editing::Editing;
use super::named::Named;
use super::problem::problem;
use crate::change::ConfigStore;
use crate::config::{AddressText, Bandwidth, ClientLimits, Config, Network};
use crate::status::{FieldProblem, RateLimits};

/// Sets the limits of a client.
///
/// Puts an entry for exactly this address first in `limits` of the configuration, replacing an
/// existing one. It overrides entries of networks that contain the address. The client need not be
/// connected.
#[utoipa::path(
    put, path = "/api/v1/clients/{address}/limits", tag = "clients", operation_id = "put_limits",
    params(
        ("address" = inline(AddressText), Path, description = "The client's address."),
        ChangeOptions,
        IfMatchOptional,
    ),
    request_body(content = RateLimits, example = json!({"iops": 50000})),
    responses(
        ChangeAnswer,
        (status = 400),
        (status = 404),
        (status = 409),
        (status = 412),
    ),
)]
pub async fn put(
    State(state): State<AdminState>,
    editing: Editing,
    Named(address): Named<IpAddr>,
    Body(limits): Body<RateLimits>,
) -> Result<Response, Response> {
    let entry = entry(address, limits).map_err(invalid)?;
    let edit = move |config: &mut Config| {
        config.limits.retain(|one| one.clients != entry.clients);
        config.limits.insert(0, entry);
        Ok(())
    };
    editing.make(&state, "limits", edit).await
}

/// Removes the limits of a client.
///
/// Removes the entry for exactly this address from `limits` of the configuration. Entries of
/// networks that contain the address then apply to it.
#[utoipa::path(
    delete, path = "/api/v1/clients/{address}/limits", tag = "clients",
    operation_id = "delete_limits",
    params(
        ("address" = inline(AddressText), Path, description = "The client's address."),
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
pub async fn delete(
    State(state): State<AdminState>,
    editing: Editing,
    Named(address): Named<IpAddr>,
) -> Result<Response, Response> {
    let clients = vec![Network::of_one(address)];
    let config = ask_config(&state, ConfigStore::current).await?.config;
    if !config.limits.iter().any(|one| one.clients == clients) {
        let detail = format!("the configuration has no limits for exactly {address}");
        return Err(problem(StatusCode::NOT_FOUND, detail));
    }
    let edit = move |config: &mut Config| {
        config.limits.retain(|one| one.clients != clients);
        Ok(())
    };
    editing.make(&state, "limits", edit).await
}

/// These limits as an entry of the configuration.
fn entry(address: IpAddr, limits: RateLimits) -> Result<ClientLimits, Vec<FieldProblem>> {
    let RateLimits {
        iops,
        bandwidth_bytes,
    } = limits;
    let problem = |path: &str, message: &str| FieldProblem {
        path: path.to_owned(),
        message: message.to_owned(),
    };
    let mut errors = Vec::new();
    if iops.is_none() && bandwidth_bytes.is_none() {
        let message = "has no limit; write iops, bandwidth_bytes or both, or DELETE the limits";
        errors.push(problem("", message));
    }
    for (path, number) in [("iops", iops), ("bandwidth_bytes", bandwidth_bytes)] {
        if number == Some(0) {
            errors.push(problem(
                path,
                "0 would stop the client; accepted is 1 or more",
            ));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(ClientLimits {
        clients: vec![Network::of_one(address)],
        iops,
        bandwidth: bandwidth_bytes.map(Bandwidth),
    })
}
