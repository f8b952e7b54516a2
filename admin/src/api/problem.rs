//! Error responses (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::status::{FieldProblem, Problem, ReactorOutcome};

/// The response with this status and these details.
pub fn problem(status: StatusCode, detail: impl Into<String>) -> Response {
    problem_with(status, detail, Vec::new(), Vec::new())
}

/// The same with the invalid fields, and the results of reactors.
pub fn problem_with(
    status: StatusCode,
    detail: impl Into<String>,
    errors: Vec<FieldProblem>,
    reactors: Vec<ReactorOutcome>,
) -> Response {
    typed_problem("about:blank", status, detail, errors, reactors)
}

/// The same with a type that programs can distinguish.
pub fn typed_problem(
    kind: &str,
    status: StatusCode,
    detail: impl Into<String>,
    errors: Vec<FieldProblem>,
    reactors: Vec<ReactorOutcome>,
) -> Response {
    let body = Problem {
        kind: kind.to_owned(),
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        status: status.as_u16(),
        detail: detail.into(),
        errors,
        reactors,
    };
    let mut response = (status, axum::Json(body)).into_response();
    let kind = header::HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
