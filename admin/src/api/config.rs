//! `/api/v1/config`: the configuration in force.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;

use super::ask::in_time;
use super::problem::problem;
use super::routes::AdminState;
use crate::config::{Config, to_yaml};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    #[serde(default)]
    format: Format,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Yaml,
}

/// Shows the configuration that was asked for last.
#[utoipa::path(
    get, path = "/api/v1/config", tag = "configuration", operation_id = "get_config",
    params(("format" = inline(Option<Format>), Query, description = "Which of the two text forms.")),
    responses(
        (status = 200, description = "The configuration.", content(
            (Config = "application/json"),
            (Config = "application/yaml"),
        )),
        (status = 400),
    ),
)]
pub async fn show(
    State(state): State<AdminState>,
    form: Result<Query<Form>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(form) = form.map_err(|_| {
        problem(
            StatusCode::BAD_REQUEST,
            "the query may be ?format=json or ?format=yaml",
        )
    })?;
    let ledger = std::sync::Arc::clone(&state.ledger);
    let config = in_time(&state, move || ledger.current()).await?.config;
    Ok(match form.format {
        Format::Json => Json(&*config).into_response(),
        Format::Yaml => (
            [(header::CONTENT_TYPE, "application/yaml")],
            to_yaml(&config),
        )
            .into_response(),
    })
}
