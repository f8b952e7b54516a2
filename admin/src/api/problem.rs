//! Error responses (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::status::{FieldProblem, Problem, ProblemType, ReactorOutcome, ResourceUse};

/// The response with this status, its usual type and these details.
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
    let kind = ProblemType::of_status(status.as_u16());
    answer(Problem {
        errors,
        reactors,
        ..body(kind, status, detail.into())
    })
}

/// The response of this type.
pub fn typed_problem(kind: ProblemType, detail: impl Into<String>) -> Response {
    answer(body_of(kind, detail))
}

/// The response to a request that takes away what is in use, and is not forced.
pub fn in_use(detail: impl Into<String>, uses: Vec<ResourceUse>) -> Response {
    answer(Problem {
        uses,
        ..body_of(ProblemType::InUse, detail)
    })
}

/// The body of a response of this type.
pub fn body_of(kind: ProblemType, detail: impl Into<String>) -> Problem {
    let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    body(kind, status, detail.into())
}

fn body(kind: ProblemType, status: StatusCode, detail: String) -> Problem {
    Problem {
        kind: kind.uri().to_owned(),
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
