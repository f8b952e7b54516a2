//! `/api/v1/log`: the filter of the log.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::ask::ask_config;
use super::body::Body;
use super::change_request::{ChangeAnswer, ChangeOptions, IfMatchOptional};
use super::context::AdminState;
use super::editing::Editing;
use crate::change::ConfigStore;
use crate::config::Config;
use crate::status::LogFilter;

/// Shows the filter of the log.
#[utoipa::path(
    get, path = "/api/v1/log", tag = "control", operation_id = "get_log",
    responses((
        status = 200, description = "The filter.", body = LogFilter,
        headers(("ETag" = String, description = "The tag of the configuration that has it.")),
    )),
)]
pub async fn show(State(state): State<AdminState>) -> Result<Response, Response> {
    let current = ask_config(&state, ConfigStore::current).await?;
    let filter = current.config.log.clone();
    let tag = [(header::ETAG, current.tag.to_string())];
    Ok((tag, Json(LogFilter { filter })).into_response())
}

/// Sets the filter of the log.
#[utoipa::path(
    put, path = "/api/v1/log", tag = "control", operation_id = "put_log",
    params(
        ChangeOptions,
        IfMatchOptional,
    ),
    request_body(content = LogFilter),
    responses(
        ChangeAnswer,
        (status = 409),
        (status = 412),
    ),
)]
pub async fn put(
    State(state): State<AdminState>,
    editing: Editing,
    Body(LogFilter { filter }): Body<LogFilter>,
) -> Result<Response, Response> {
    let edit = move |config: &mut Config| {
        config.log = filter;
        Ok(())
    };
    editing.make(&state, "log", edit).await
}
