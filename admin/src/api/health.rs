//! `/healthz`, `/readyz` and `/metrics`, for monitoring.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::ask::{ask_health, in_time};
use super::context::AdminState;
use super::problem::problem;
use crate::control::Control;
use crate::metrics::CONTENT_TYPE;
use crate::status::{Health, Problem, Readiness, ReadinessStatus};

/// Reports whether all reactors make progress.
#[utoipa::path(
    get, path = "/healthz", tag = "health", operation_id = "get_health",
    responses(
        (status = 200, description = "All reactors make progress.", body = Health),
        (status = 503, content(
            (Health = "application/json"),
            (Problem = "application/problem+json"),
        ), description = "Some reactors are stalled, or there was no answer in time."),
    ),
)]
pub async fn healthz(State(state): State<AdminState>) -> Result<Response, Response> {
    let health = ask_health(&state, Control::health).await?;
    let status = match health.stalled.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((status, Json(health)).into_response())
}

/// Reports whether the service accepts clients.
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "get_readiness",
    responses(
        (status = 200, description = "Clients are served.", body = ReadinessStatus),
        (status = 503, content(
            (ReadinessStatus = "application/json"),
            (Problem = "application/problem+json"),
        ), description = "The server starts or drains, has no RDMA listener, or there was no answer in time."),
    ),
)]
pub async fn readyz(State(state): State<AdminState>) -> Result<Response, Response> {
    let readiness = ask_health(&state, Control::readiness).await?;
    let status = match readiness {
        Readiness::Ready => StatusCode::OK,
        Readiness::Starting | Readiness::Draining | Readiness::NoListener => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let body = ReadinessStatus {
        readiness,
        stage: None,
    };
    Ok((status, Json(body)).into_response())
}

/// Returns metrics for Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "health", operation_id = "get_metrics",
    responses((
        status = 200, description = "The text format of Prometheus.", body = String,
        content_type = "text/plain; version=0.0.4; charset=utf-8",
    )),
)]
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
