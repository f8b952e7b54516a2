//! `/api/v1/version`, `reactors`, `pools`, `exports`: snapshots.

use axum::Json;
use axum::extract::State;
use axum::response::Response;

use super::ask::{ask, try_ask};
use super::context::AdminState;
use super::page::PageQuery;
use crate::control::Control;
use crate::status::{Exports, Operations, Pools, ReactorList, Version};

/// Shows the program's version.
#[utoipa::path(
    get, path = "/api/v1/version", tag = "api", operation_id = "get_version",
    responses((status = 200, description = "The program.", body = Version)),
)]
pub async fn version() -> Json<Version> {
    Json(Version::current())
}

/// Lists the reactors: the pinned loops.
#[utoipa::path(
    get, path = "/api/v1/reactors", tag = "status", operation_id = "list_reactors",
    responses((status = 200, description = "All reactors.", body = ReactorList)),
)]
pub async fn reactors(State(state): State<AdminState>) -> Result<Json<ReactorList>, Response> {
    let reactors = try_ask(&state, Control::reactors).await?;
    Ok(Json(ReactorList { reactors }))
}

/// Lists the buffers of each reactor.
#[utoipa::path(
    get, path = "/api/v1/pools", tag = "status", operation_id = "list_pools",
    responses((status = 200, description = "Every class of every reactor.", body = Pools)),
)]
pub async fn pools(State(state): State<AdminState>) -> Result<Json<Pools>, Response> {
    let pools = try_ask(&state, Control::pools).await?;
    Ok(Json(Pools { pools }))
}

/// Lists the exported trees by path.
#[utoipa::path(
    get, path = "/api/v1/exports", tag = "status", operation_id = "list_exports",
    params(
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 1000, description = "Most exports of the page; all if left out."),
        ("cursor" = Option<String>, Query, description = "`next` of the page before."),
    ),
    responses((status = 200, description = "Exports.", body = Exports), (status = 400)),
)]
pub async fn exports(
    State(state): State<AdminState>,
    page: PageQuery<String>,
) -> Result<Json<Exports>, Response> {
    let exports = try_ask(&state, Control::exports).await?;
    let (exports, next) = page.of(exports, |one| one.path.clone(), String::clone);
    Ok(Json(Exports { exports, next }))
}

/// Lists the calls by procedure.
#[utoipa::path(
    get, path = "/api/v1/operations", tag = "status", operation_id = "list_operations",
    responses((status = 200, description = "Those with requests.", body = Operations)),
)]
pub async fn operations(State(state): State<AdminState>) -> Result<Json<Operations>, Response> {
    let operations = ask(&state, Control::operations).await?;
    Ok(Json(Operations { operations }))
}
