//! Which path is answered by what, and what holds for every answer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use super::auth::Guard;
use super::problem::problem;
use super::server::ApiLimits;
use super::{config, health, index, status};
use crate::change::Ledger;
use crate::control::Control;
use crate::metrics::Metrics;

/// What the API answers from.
#[derive(Clone)]
pub struct AdminState {
    pub(super) control: Arc<dyn Control>,
    pub(super) metrics: Metrics,
    pub(super) ledger: Arc<Ledger>,
    pub(super) limits: ApiLimits,
    pub(super) guard: Arc<Guard>,
    /// Held by the change that is being made.
    pub(super) turn: Arc<Semaphore>,
}

impl AdminState {
    /// With the usual limits.
    pub fn new(control: Arc<dyn Control>, metrics: Metrics, ledger: Arc<Ledger>) -> Self {
        Self {
            control,
            metrics,
            ledger,
            limits: ApiLimits::default(),
            guard: Arc::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// With other limits.
    #[must_use]
    pub fn with_limits(self, limits: ApiLimits) -> Self {
        Self { limits, ..self }
    }
}

/// The router of all endpoints.
pub fn router(state: AdminState) -> Router {
    let v1 = Router::new()
        .route("/version", get(status::version))
        .route(
            "/config",
            get(config::show).put(config::put).patch(config::patch),
        )
        .route("/config/history", get(config::history))
        .route("/config/history/{generation}", get(config::generation))
        .route("/config/pending", get(config::pending))
        .route("/config/rollback/{generation}", post(config::rollback))
        .route("/config/reload", post(config::reload))
        .route("/connections", get(status::connections))
        .route("/reactors", get(status::reactors))
        .route("/pools", get(status::pools))
        .route("/exports", get(status::exports));
    Router::new()
        .route("/", get(index::index))
        .route("/metrics", get(health::metrics))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .nest("/api/v1", v1)
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(state.limits.body_bytes))
        .layer(middleware::from_fn_with_state(state.clone(), guard))
        .with_state(state)
}

async fn not_found(uri: Uri) -> Response {
    let path = uri.path();
    problem(
        StatusCode::NOT_FOUND,
        format!("nothing at {path}; / lists what there is"),
    )
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let detail = format!("{path} does not answer {method}; the header Allow says what it does");
    problem(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Refuses bodies that are announced too long before anything is read, and forbids browsers to
/// guess types and caches to keep answers.
async fn guard(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
        .unwrap_or(0);
    let most = state.limits.body_bytes;
    let mut response = match length > most as u64 {
        true => {
            let detail = format!("a body of {length} bytes; at most {most} are accepted");
            problem(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    let fixed = header::HeaderValue::from_static;
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(header::CACHE_CONTROL, fixed("no-store"));
    response
}
