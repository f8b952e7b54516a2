//! Changes of the configuration as a whole.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::precondition::{Required, expected};
use super::show::numbered;
use crate::api::auth::Authorized;
use crate::api::change_request::{ChangeAnswer, ChangeOptions, IfMatch, IfMatchOptional, change};
use crate::api::context::AdminState;
use crate::api::problem::{problem, problem_with};
use crate::change::{Edit, Generation};
use crate::config::{Config, ConfigErrors, JsonError, from_json, parse};
use crate::status::FieldProblem;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Replaces the configuration; keys left out get their defaults.
///
/// When the answer is sent, all reactors apply it, except for keys that need a restart.
#[utoipa::path(
    put, path = "/api/v1/config", tag = "configuration", operation_id = "put_config",
    params(
        ChangeOptions,
        IfMatch,
    ),
    request_body(content(
        (Config = "application/json"),
        (Config = "application/yaml"),
    )),
    responses(
        ChangeAnswer,
        (status = 409),
        (status = 412),
        (status = 428),
    ),
)]
pub async fn put(
    State(state): State<AdminState>,
    who: Authorized,
    options: ChangeOptions,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let kind = kind(&headers, &[JSON, YAML])?;
    let expected = expected(&headers, Required::Yes)?;
    let body = whole(body)?;
    let config = match kind {
        YAML => of_yaml(&body)?,
        _ => of_json(&body)?,
    };
    let edit = Edit::Replace(Box::new(config));
    change(&state, options.request(edit, expected, who)).await
}

/// Changes keys of the configuration by a merge patch (RFC 7396).
///
/// `null` resets a key to its default, and lists are replaced as a whole. When the answer is sent,
/// all reactors apply it, except for keys that need a restart.
#[utoipa::path(
    patch, path = "/api/v1/config", tag = "configuration", operation_id = "patch_config",
    params(
        ChangeOptions,
        IfMatch,
    ),
    request_body(content(
        (Object = "application/merge-patch+json"),
        (Object = "application/json"),
    )),
    responses(
        ChangeAnswer,
        (status = 409),
        (status = 412),
        (status = 428),
    ),
)]
pub async fn patch(
    State(state): State<AdminState>,
    who: Authorized,
    options: ChangeOptions,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    kind(&headers, &[MERGE_PATCH, JSON])?;
    let expected = expected(&headers, Required::Yes)?;
    let patch = serde_json::from_slice(&whole(body)?).map_err(|error| {
        let detail = format!("the body is not JSON: {error}");
        problem(StatusCode::BAD_REQUEST, detail)
    })?;
    let edit = Edit::Merge(patch);
    change(&state, options.request(edit, expected, who)).await
}

/// Restores the configuration of an earlier generation, as a new one.
#[utoipa::path(
    post, path = "/api/v1/config/rollback/{generation}", tag = "configuration",
    operation_id = "rollback_config",
    params(
        ("generation" = u64, Path, description = "A generation of the history."),
        ChangeOptions,
        IfMatch,
    ),
    responses(
        ChangeAnswer,
        (status = 400),
        (status = 404),
        (status = 409),
        (status = 412),
        (status = 422),
        (status = 428),
    ),
)]
pub async fn rollback(
    State(state): State<AdminState>,
    who: Authorized,
    options: ChangeOptions,
    generation: Result<Path<Generation>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let generation = numbered(generation)?;
    let expected = expected(&headers, Required::Yes)?;
    let edit = Edit::Rollback(generation);
    change(&state, options.request(edit, expected, who)).await
}

/// Reads the configuration file again, like SIGHUP.
#[utoipa::path(
    post, path = "/api/v1/config/reload", tag = "configuration", operation_id = "reload_config",
    params(
        ("dry_run" = Option<bool>, Query, description = "Only check and compare."),
        ("force" = Option<bool>, Query, description = "Take away what is in use, too."),
        IfMatchOptional,
    ),
    responses(
        ChangeAnswer,
        (status = 400),
        (status = 409),
        (status = 412),
        (status = 422),
    ),
)]
pub async fn reload(
    State(state): State<AdminState>,
    who: Authorized,
    options: ChangeOptions,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let expected = expected(&headers, Required::No)?;
    change(&state, options.request(Edit::Reload, expected, who)).await
}

/// The media type of the body, if accepted.
fn kind(headers: &HeaderMap, accepted: &[&'static str]) -> Result<&'static str, Response> {
    let said = headers.get(CONTENT_TYPE);
    let said = said.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim();
    let mut kinds = accepted.iter();
    let found = kinds.find(|kind| essence.eq_ignore_ascii_case(kind));
    found.copied().ok_or_else(|| {
        let list = accepted.join(" or ");
        let detail = match said {
            "" => format!("the header Content-Type is missing; write {list}"),
            _ => format!(
                "a body of type {} is not read; write {list}",
                said.escape_debug()
            ),
        };
        let mut answer = problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
        let name = match accepted.contains(&MERGE_PATCH) {
            true => HeaderName::from_static("accept-patch"),
            false => ACCEPT,
        };
        if let Ok(list) = HeaderValue::from_str(&accepted.join(", ")) {
            answer.headers_mut().insert(name, list);
        }
        answer
    })
}

fn whole(body: Result<Bytes, BytesRejection>) -> Result<Bytes, Response> {
    body.map_err(|rejection| problem(rejection.status(), rejection.body_text()))
}

fn of_json(body: &[u8]) -> Result<Config, Response> {
    from_json(body).map_err(|error| match error {
        JsonError::Syntax(reason) => problem(
            StatusCode::BAD_REQUEST,
            format!("the body is not JSON: {reason}"),
        ),
        JsonError::Form(problem) => invalid(vec![problem.into()]),
    })
}

fn of_yaml(body: &[u8]) -> Result<Config, Response> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        problem(
            StatusCode::BAD_REQUEST,
            format!("byte {at} of the body is not UTF-8"),
        )
    })?;
    parse(text, "body").map_err(|errors| invalid(by_key(&errors)))
}

fn by_key(errors: &ConfigErrors) -> Vec<FieldProblem> {
    let errors = errors.iter().map(|error| FieldProblem {
        path: error.path.to_string(),
        message: match (error.line, error.column) {
            (Some(line), Some(column)) => {
                format!("line {line}, column {column}: {}", error.message)
            }
            _ => error.message.clone(),
        },
    });
    errors.collect()
}

fn invalid(errors: Vec<FieldProblem>) -> Response {
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    problem_with(
        status,
        "the body is not a configuration",
        errors,
        Vec::new(),
    )
}
