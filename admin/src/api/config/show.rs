//! The current configuration and those of earlier generations.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::precondition::is_known;
use crate::api::ask::ask_config;
use crate::api::context::AdminState;
use crate::api::problem::{problem, typed_problem};
use crate::change::{ChangeHistory, ConfigStore, Generation, Pending};
use crate::config::{Config, TagsText, to_yaml};
use crate::status::ProblemType;

/// The form of a configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    #[serde(default)]
    format: Format,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Yaml,
}

type FormResult = Result<Query<Form>, QueryRejection>;

/// Shows the configuration of the latest change.
///
/// The running one may differ in keys that need a restart; `/api/v1/config/pending` lists them.
#[utoipa::path(
    get, path = "/api/v1/config", tag = "configuration", operation_id = "get_config",
    params(
        ("format" = inline(Option<Format>), Query, description = "Which of the two text forms."),
        ("If-None-Match" = inline(Option<TagsText>), Header, description = "Tags that the client has."),
    ),
    responses(
        (status = 200, description = "The configuration.", content(
            (Config = "application/json"),
            (Config = "application/yaml"),
        ), headers(("ETag" = String, description = "Its tag, for `If-Match`."))),
        (status = 304, description = "It has a tag of `If-None-Match`."),
        (status = 400),
    ),
)]
pub async fn show(
    State(state): State<AdminState>,
    headers: HeaderMap,
    form: FormResult,
) -> Result<Response, Response> {
    let format = format(form)?;
    let current = ask_config(&state, ConfigStore::current).await?;
    let tag = [(header::ETAG, current.tag.to_string())];
    if is_known(&headers, &current.tag)? {
        return Ok((StatusCode::NOT_MODIFIED, tag).into_response());
    }
    Ok((tag, written(&current.config, format)).into_response())
}

/// Lists the changes of the configuration since the start.
#[utoipa::path(
    get, path = "/api/v1/config/history", tag = "configuration", operation_id = "get_config_history",
    responses((status = 200, description = "The latest 64 at most.", body = ChangeHistory)),
)]
pub async fn history(State(state): State<AdminState>) -> Result<Json<ChangeHistory>, Response> {
    let history = ask_config(&state, ConfigStore::history).await?;
    Ok(Json(ChangeHistory { history }))
}

/// Shows the configuration of a generation.
#[utoipa::path(
    get, path = "/api/v1/config/history/{generation}", tag = "configuration",
    operation_id = "get_config_generation",
    params(
        ("generation" = u64, Path, description = "A generation of the history."),
        ("format" = inline(Option<Format>), Query, description = "Which of the two text forms."),
    ),
    responses(
        (status = 200, description = "The configuration.", content(
            (Config = "application/json"),
            (Config = "application/yaml"),
        )),
        (status = 400),
        (status = 404, description = "It is not in the history."),
    ),
)]
pub async fn generation(
    State(state): State<AdminState>,
    generation: Result<Path<Generation>, PathRejection>,
    form: FormResult,
) -> Result<Response, Response> {
    let format = format(form)?;
    let generation = numbered(generation)?;
    let config = ask_config(&state, move |store| store.generation(generation)).await?;
    let config = config.ok_or_else(|| {
        let detail = format!("generation {generation} is not in the history");
        problem(StatusCode::NOT_FOUND, detail)
    })?;
    Ok(written(&config, format))
}

/// Lists the keys that wait for a restart, and those that differ from the file.
#[utoipa::path(
    get, path = "/api/v1/config/pending", tag = "configuration", operation_id = "get_config_pending",
    responses((status = 200, description = "All of them.", body = Pending)),
)]
pub async fn pending(State(state): State<AdminState>) -> Result<Json<Pending>, Response> {
    let pending = ask_config(&state, |store| {
        let current = store.current();
        Pending {
            generation: current.tag.generation,
            restart_required: current.restart_required,
            file: store.file_comparison(),
        }
    });
    Ok(Json(pending.await?))
}

/// The number in the path.
pub(super) fn numbered(
    generation: Result<Path<Generation>, PathRejection>,
) -> Result<Generation, Response> {
    let no_number = |_| problem(StatusCode::NOT_FOUND, "a generation is a whole number");
    Ok(generation.map_err(no_number)?.0)
}

fn format(form: FormResult) -> Result<Format, Response> {
    let wrong = |_| {
        let detail = "the query may be ?format=json or ?format=yaml";
        typed_problem(ProblemType::Query, detail)
    };
    Ok(form.map_err(wrong)?.0.format)
}

fn written(config: &Config, format: Format) -> Response {
    match format {
        Format::Json => Json(config).into_response(),
        Format::Yaml => {
            let kind = [(header::CONTENT_TYPE, "application/yaml")];
            (kind, to_yaml(config)).into_response()
        }
    }
}
