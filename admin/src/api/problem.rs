//! Answers that are no success (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::status::Problem;

/// The answer with this status and these details.
pub fn problem(status: StatusCode, detail: impl Into<String>) -> Response {
    let body = Problem {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        status: status.as_u16(),
        detail: detail.into(),
        errors: Vec::new(),
        reactors: Vec::new(),
    };
    let mut response = (status, axum::Json(body)).into_response();
    let kind = header::HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
