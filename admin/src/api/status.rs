//! `/api/v1/version`, `connections`, `reactors`, `pools`, `exports`: snapshots.

use axum::Json;
use axum::extract::State;
use axum::response::Response;

use super::ask::try_ask;
use super::routes::AdminState;
use crate::control::Control;
use crate::status::{Connections, Exports, Pools, Reactors, Version};

pub async fn version() -> Json<Version> {
    Json(Version::current())
}

pub async fn connections(State(state): State<AdminState>) -> Result<Json<Connections>, Response> {
    let connections = try_ask(&state, Control::connections).await?;
    Ok(Json(Connections { connections }))
}

pub async fn reactors(State(state): State<AdminState>) -> Result<Json<Reactors>, Response> {
    let reactors = try_ask(&state, Control::reactors).await?;
    Ok(Json(Reactors { reactors }))
}

pub async fn pools(State(state): State<AdminState>) -> Result<Json<Pools>, Response> {
    let pools = try_ask(&state, Control::pools).await?;
    Ok(Json(Pools { pools }))
}

pub async fn exports(State(state): State<AdminState>) -> Result<Json<Exports>, Response> {
    let exports = try_ask(&state, Control::exports).await?;
    Ok(Json(Exports { exports }))
}
