//! Responses before the service has started: that the process is alive, and the stage of the start.

use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::context::AdminState;
use super::problem::problem;
use super::routes;
use crate::status::{Health, Readiness, ReadinessStatus};

/// Names the current stage of the start.
pub type Stage = Arc<dyn Fn() -> String + Send + Sync>;

/// The current routes: those of the start, then those of the service.
#[derive(Clone)]
pub struct Answers {
    starting: Router,
    serving: Arc<OnceLock<ServiceAnswers>>,
}

struct ServiceAnswers {
    router: Router,
    state: AdminState,
}

impl Answers {
    /// Routes of a service that is starting.
    pub fn of_start(stage: &Stage) -> Self {
        Self {
            starting: router(stage),
            serving: Arc::default(),
        }
    }

    /// Routes of a service that has started.
    pub fn of_service(state: AdminState) -> Self {
        Self::with_router(routes::router(state.clone()), state)
    }

    /// A service that has started, with other routes.
    pub fn with_router(router: Router, state: AdminState) -> Self {
        Self {
            starting: Router::new(),
            serving: Arc::new(ServiceAnswers { router, state }.into()),
        }
    }

    /// Switches to the routes of the service.
    pub fn serve(&self, state: AdminState) {
        let router = routes::router(state.clone());
        // A service starts once.
        let _ = self.serving.set(ServiceAnswers { router, state });
    }

    /// The routes for a request that arrives now, and the state of the service once it has started.
    pub fn now(&self) -> (Router, Option<AdminState>) {
        match self.serving.get() {
            Some(service) => (service.router.clone(), Some(service.state.clone())),
            None => (self.starting.clone(), None),
        }
    }
}

fn router(stage: &Stage) -> Router {
    let (ready, other) = (Arc::clone(stage), Arc::clone(stage));
    Router::new()
        .route("/healthz", get(|| async { Json(Health::default()) }))
        .route("/readyz", get(move || async move { not_ready(ready()) }))
        .fallback(move || async move {
            let detail = format!("the server starts: {}", other());
            problem(StatusCode::SERVICE_UNAVAILABLE, detail)
        })
}

fn not_ready(stage: String) -> Response {
    let body = ReadinessStatus {
        readiness: Readiness::Starting,
        stage: Some(stage),
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}
