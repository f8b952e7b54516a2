//! Which path is answered by what, and what holds for every answer.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ask::Lanes;
use super::auth::{Authorized, Guard};
use super::limits::ApiLimits;
use super::origin;
use super::problem::problem;
use super::tls::Certificates;
use super::upload::received;
use super::{
    capture, client_limits, clients, config, connections, document, drain, health, listeners, log,
    status,
};
use crate::change::Ledger;
use crate::config::ReadToken;
use crate::control::Control;
use crate::dashboard;
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
    /// Places for captures.
    pub(super) captures: Arc<Semaphore>,
    pub(super) lanes: Arc<Lanes>,
    pub(super) certificates: Option<Arc<Certificates>>,
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
            captures: Arc::new(Semaphore::new(capture::CAPTURES)),
            lanes: Arc::new(Lanes::new(ApiLimits::default().questions)),
            certificates: None,
        }
    }

    /// With other limits.
    #[must_use]
    pub fn with_limits(self, limits: ApiLimits) -> Self {
        Self {
            lanes: Arc::new(Lanes::new(limits.questions)),
            limits,
            ..self
        }
    }

    /// With HTTPS in place of HTTP.
    #[must_use]
    pub fn with_certificates(self, certificates: Arc<Certificates>) -> Self {
        Self {
            certificates: Some(certificates),
            ..self
        }
    }
}

/// Every endpoint, and the description of all.
pub fn table() -> OpenApiRouter<AdminState> {
    OpenApiRouter::with_openapi(document::frame())
        .routes(routes!(dashboard::page))
        .routes(routes!(dashboard::asset))
        .routes(routes!(health::metrics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(document::openapi))
        .routes(routes!(status::version))
        .routes(routes!(config::show, config::put, config::patch))
        .routes(routes!(config::history))
        .routes(routes!(config::generation))
        .routes(routes!(config::pending))
        .routes(routes!(config::rollback))
        .routes(routes!(config::reload))
        .routes(routes!(clients::list))
        .routes(routes!(clients::show, clients::evict))
        .routes(routes!(client_limits::put, client_limits::delete))
        .routes(routes!(connections::list))
        .routes(routes!(connections::show, connections::evict))
        .routes(routes!(capture::capture))
        .routes(routes!(status::reactors))
        .routes(routes!(status::pools))
        .routes(routes!(status::exports))
        .routes(routes!(status::operations))
        .routes(routes!(listeners::list, listeners::add))
        .routes(routes!(listeners::show, listeners::remove))
        .routes(routes!(log::show, log::put))
        .routes(routes!(drain::show, drain::start, drain::cancel))
}

/// The router of all endpoints.
pub fn router(state: AdminState) -> Router {
    let (router, _) = table().split_for_parts();
    router
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
        format!("nothing at {path}; / links to what there is"),
    )
}

/// What a path has no handler for. The router adds the header `Allow`.
async fn not_allowed(method: Method, uri: Uri) -> Response {
    if method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let path = uri.path();
    let detail = format!("{path} is not there for {method}; the header Allow says for what it is");
    problem(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// Whether the request may be answered, as far as that is the same for all of them.
async fn admitted(state: &AdminState, request: Request) -> Result<Request, Response> {
    let config = state.ledger.config();
    origin::check(&request, &config.admin.hosts)?;
    // The page has no figures of its own, and those that watch the health have no token.
    let path = request.uri().path();
    let open = matches!(path, "/" | "/healthz" | "/readyz") || path.starts_with("/assets/");
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if config.admin.read_token == ReadToken::None || open || !reads {
        return Ok(request);
    }
    let (mut parts, body) = request.into_parts();
    Authorized::from_request_parts(&mut parts, state).await?;
    Ok(Request::from_parts(parts, body))
}

/// Refuses requests that are not for this server or come from another site's page, and bodies that
/// are announced too long before anything is read; reads the others, and forbids browsers to guess
/// types and caches to keep answers.
async fn guard(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let mut response = match admitted(&state, request).await {
        Ok(request) => answered(&state, request, next).await,
        Err(refused) => refused,
    };
    let headers = response.headers_mut();
    let fixed = header::HeaderValue::from_static;
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(header::CACHE_CONTROL, fixed("no-store"));
    response
}

async fn answered(state: &AdminState, request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
        .unwrap_or(0);
    let most = state.limits.body_bytes;
    match length > most as u64 {
        true => {
            let detail = format!("a body of {length} bytes; at most {most} are accepted");
            problem(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        false => match received(request, &state.limits).await {
            Ok(request) => next.run(request).await,
            Err(refused) => refused,
        },
    }
}
