//! `/api/v1/drain`: refuses new clients and ends connections, until the drain is ended.

use axum::Json;
use axum::extract::State;
use axum::response::Response;

use super::ask::try_ask;
use super::auth::Operator;
use super::body::{Body, invalid, within};
use super::context::AdminState;
use crate::control::Control;
use crate::status::{DrainOrder, DrainStatus};

const SECONDS: f64 = 86_400.0;

/// Shows the progress of a drain.
#[utoipa::path(
    get, path = "/api/v1/drain", tag = "control", operation_id = "get_drain",
    responses((status = 200, description = "The state of the drain.", body = DrainStatus)),
)]
pub async fn show(State(state): State<AdminState>) -> Result<Json<DrainStatus>, Response> {
    let status = try_ask(&state, Control::drain_status).await?;
    Ok(Json(status))
}

/// Refuses new clients and ends the existing connections.
///
/// Calls in progress are finished. A connection is closed when it is idle, and all are closed at
/// the deadline. A second request sets a new deadline. The server process keeps running.
#[utoipa::path(
    post, path = "/api/v1/drain", tag = "control", operation_id = "start_drain",
    request_body(content = DrainOrder, example = json!({"deadline_seconds": 30.0})),
    responses((status = 200, description = "It has begun.", body = DrainStatus), (status = 409)),
)]
pub async fn start(
    State(state): State<AdminState>,
    who: Operator,
    Body(order): Body<DrainOrder>,
) -> Result<Json<DrainStatus>, Response> {
    let mut errors = Vec::new();
    within(
        &mut errors,
        "deadline_seconds",
        order.deadline_seconds,
        0.0..=SECONDS,
    );
    if !errors.is_empty() {
        return Err(invalid(errors));
    }
    let what = format!("drain within {} s", order.deadline_seconds);
    let begun = who.act(
        &state,
        what,
        |_| "done",
        move |control| control.drain(order),
    );
    Ok(Json(begun.await?))
}

/// Accepts clients again.
#[utoipa::path(
    delete, path = "/api/v1/drain", tag = "control", operation_id = "cancel_drain",
    responses((status = 200, description = "Clients are served.", body = DrainStatus), (status = 409)),
)]
pub async fn cancel(
    State(state): State<AdminState>,
    who: Operator,
) -> Result<Json<DrainStatus>, Response> {
    let what = "end the drain".to_owned();
    let ended = who.act(&state, what, |_| "done", Control::cancel_drain);
    Ok(Json(ended.await?))
}
