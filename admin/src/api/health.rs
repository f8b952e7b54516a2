//! `/healthz`, `/readyz` and `/metrics`: for machines that watch.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::ask::{ask_health, in_time};
use super::problem::problem;
use super::routes::AdminState;
use crate::control::Control;
use crate::metrics::CONTENT_TYPE;
use crate::status::Readiness;

pub async fn healthz(State(state): State<AdminState>) -> Result<Response, Response> {
    let health = ask_health(&state, Control::health).await?;
    let status = match health.stalled.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((status, Json(health)).into_response())
}

pub async fn readyz(State(state): State<AdminState>) -> Result<Response, Response> {
    let readiness = ask_health(&state, Control::readiness).await?;
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        Readiness::Starting | Readiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((status, Json(serde_json::json!({ "readiness": readiness }))).into_response())
}

pub async fn metrics(State(state): State<AdminState>) -> Result<Response, Response> {
    let metrics = state.metrics.clone();
    match in_time(&state, move || metrics.render()).await? {
        Ok(text) => Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()),
        Err(error) => Err(problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
        )),
    }
}
