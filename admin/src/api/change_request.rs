//! Changes of the configuration by requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::{task, time};
use utoipa::{IntoParams, IntoResponses};

use super::auth::Authorized;
use super::context::AdminState;
use super::problem::{in_use, problem, problem_with, typed_problem};
use crate::change::{ChangeError, ChangeReport, ChangeRequest, Edit, Tag};
use crate::config::TagsText;
use crate::status::ProblemType;

/// The options of a change, from the query of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeOptions {
    /// Only check and compare.
    pub dry_run: bool,
    /// Write the configuration file, too.
    pub persist: bool,
    /// Take away what is in use, too.
    pub force: bool,
}

/// The header of a request that changes an expected configuration, for the description of the API.
#[derive(IntoParams)]
#[into_params(names("If-Match"), parameter_in = Header)]
pub struct IfMatch(
    /// Tags, one of which must be the current one, or `*`.
    #[param(inline)]
    TagsText,
);

/// The same where the header may be missing.
#[derive(IntoParams)]
#[into_params(names("If-Match"), parameter_in = Header)]
pub struct IfMatchOptional(
    /// Tags, one of which must be the current one, or `*`.
    #[param(inline)]
    #[expect(dead_code, reason = "it describes")]
    Option<TagsText>,
);

/// The answer to a change, for the description of the API.
#[derive(IntoResponses)]
#[response(
    status = 200, description = "The outcome, or what it would be.",
    headers(("ETag" = String, description = "The tag of the configuration now.")),
)]
pub struct ChangeAnswer(#[expect(dead_code, reason = "it describes")] ChangeReport);

impl ChangeOptions {
    /// The order for a change with these options.
    pub fn request(
        self,
        edit: Edit,
        expected: Option<Vec<Tag>>,
        Authorized(author): Authorized,
    ) -> ChangeRequest {
        let Self {
            dry_run,
            persist,
            force,
        } = self;
        ChangeRequest {
            edit,
            expected,
            author,
            dry_run,
            persist,
            force,
        }
    }
}

impl FromRequestParts<AdminState> for ChangeOptions {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, Response> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(options)| options)
            .map_err(|_| {
                let detail = "the query may have dry_run, persist and force, each true or false";
                typed_problem(ProblemType::Query, detail)
            })
    }
}

/// Makes a change and answers with its report, and the new tag as the header `ETag`.
///
/// # Errors
///
/// The response to send; see [`make`].
pub async fn change(state: &AdminState, request: ChangeRequest) -> Result<Response, Response> {
    let (tag, report) = make(state, request).await?;
    Ok(([(header::ETAG, tag.to_string())], Json(report)).into_response())
}

/// Makes a change. Returns its report and the tag of the new configuration. A change that has begun
/// is finished even if the client disconnects or the time for the response is over.
///
/// # Errors
///
/// The response to send if the change was refused or is not finished in time.
pub async fn make(
    state: &AdminState,
    request: ChangeRequest,
) -> Result<(Tag, ChangeReport), Response> {
    let limit = state.limits.change_time;
    // Further changes wait here, not on the threads that may block, which readers need.
    let turn = time::timeout(limit, Arc::clone(&state.turn).acquire_owned());
    let Ok(Ok(turn)) = turn.await else {
        let detail = format!("another change is not finished within {limit:?}; nothing was done");
        return Err(problem(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let config_store = Arc::clone(&state.config_store);
    let work = task::spawn_blocking(move || {
        let _turn = turn;
        let report = config_store.change(request)?;
        Ok((config_store.tag(report.generation), report))
    });
    match time::timeout(limit, work).await {
        Ok(Ok(result)) => result.map_err(refused),
        Ok(Err(error)) => {
            tracing::error!(%error, "a change of the configuration failed");
            let detail = "the change failed; see the log";
            Err(problem(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
        Err(_) => {
            let detail = format!(
                "the change is not finished within {limit:?} and continues; /api/v1/config/history \
                 will have its outcome"
            );
            Err(problem(StatusCode::SERVICE_UNAVAILABLE, detail))
        }
    }
}

/// The response for a refused change.
fn refused(error: ChangeError) -> Response {
    let detail = error.to_string();
    match error {
        ChangeError::Stale(tag) => {
            let mut answer = problem(StatusCode::PRECONDITION_FAILED, detail);
            if let Ok(tag) = HeaderValue::from_str(&tag.to_string()) {
                answer.headers_mut().insert(header::ETAG, tag);
            }
            answer
        }
        ChangeError::Invalid(errors) => {
            problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, errors, Vec::new())
        }
        ChangeError::InUse(uses) => in_use(detail, uses),
        ChangeError::NoGeneration(_) => problem(StatusCode::NOT_FOUND, detail),
        ChangeError::NoFile | ChangeError::FileChanged(_) => problem(StatusCode::CONFLICT, detail),
        ChangeError::FileDenied { .. } => typed_problem(ProblemType::FileDenied, detail),
        ChangeError::Persist { .. } => problem(StatusCode::SERVICE_UNAVAILABLE, detail),
        ChangeError::Apply(error) => {
            // A reactor that did not apply it may do so later; other obstacles, such as a port in
            // use, stay until an operator removes them.
            let status = match error.reactors.iter().all(|reactor| reactor.applied) {
                true => StatusCode::CONFLICT,
                false => StatusCode::SERVICE_UNAVAILABLE,
            };
            let errors = vec![crate::status::FieldProblem {
                path: error.path,
                message: error.reason,
            }];
            problem_with(status, detail, errors, error.reactors)
        }
    }
}
