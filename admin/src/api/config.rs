//! `/api/v1/config`: the configuration in force.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::ask::in_time;
use super::problem::problem;
use super::routes::AdminState;
use crate::config::to_yaml;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    #[serde(default)]
    format: Format,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Yaml,
}

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
