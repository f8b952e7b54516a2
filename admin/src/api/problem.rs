//! Error responses (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::status::{FieldProblem, IN_USE, Problem, ReactorOutcome, ResourceUse};

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

/// The response to a request that takes away what is in use, and is not forced.
pub fn in_use(detail: impl Into<String>, uses: Vec<ResourceUse>) -> Response {
    let status = StatusCode::CONFLICT;
    answer(Problem {
        uses,
        ..body(IN_USE, status, detail.into())
    })
}

/// The same with a type that programs can distinguish.
pub fn typed_problem(
    kind: &str,
    status: StatusCode,
    detail: impl Into<String>,
    errors: Vec<FieldProblem>,
    reactors: Vec<ReactorOutcome>,
) -> Response {
    answer(Problem {
        errors,
        reactors,
        ..body(kind, status, detail.into())
    })
}

fn body(kind: &str, status: StatusCode, detail: String) -> Problem {
    Problem {
        kind: kind.to_owned(),
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        status: status.as_u16(),
        detail,
        errors: Vec::new(),
        reactors: Vec::new(),
        uses: Vec::new(),
    }
}

fn answer(body: Problem) -> Response {
    let status = StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, axum::Json(body)).into_response();
    let kind = header::HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
