//! Request bodies in JSON.

use std::fmt::Display;
use std::ops::RangeInclusive;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::problem::{problem, problem_with};
use crate::status::FieldProblem;

/// The body of a request, decoded from JSON. As an argument of a handler it refuses a request whose
/// body has another type (415), is too long (413), is not JSON (400), or does not decode as `T`
/// (422, with the field).
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let kind = media_type(request.headers());
        if kind.as_deref() != Some("application/json") {
            let found = kind.map_or("none".to_owned(), |kind| kind.escape_debug().to_string());
            let detail =
                format!("the body's Content-Type is {found}; it has to be application/json");
            return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let bytes = whole(request, state).await?;
        read(&bytes).map(Self)
    }
}

/// All bytes of a body.
///
/// # Errors
///
/// The response to send if the body is too long or ends early.
pub async fn whole<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Response> {
    let bytes = Bytes::from_request(request, state).await;
    bytes.map_err(|rejection| problem(rejection.status(), rejection.body_text()))
}

/// The media type of a body without parameters, in lower case; `None` without the header.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?;
    let text = String::from_utf8_lossy(value.as_bytes());
    let kind = text.split(';').next().unwrap_or_default().trim();
    Some(kind.to_ascii_lowercase())
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Response> {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    let not_json = |error: &serde_json::Error| {
        let detail = format!("the body is not JSON: {error}");
        problem(StatusCode::BAD_REQUEST, detail)
    };
    let value = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        let inner = error.inner();
        let message = inner.to_string();
        // The number is valid JSON, but does not fit any of our types.
        let too_large = message.starts_with("number out of range");
        match inner.classify() {
            Category::Data => field(&error, &message),
            _ if too_large => field(&error, &message),
            Category::Syntax | Category::Eof | Category::Io => not_json(inner),
        }
    })?;
    input.end().map_err(|error| not_json(&error))?;
    Ok(value)
}

fn field(error: &serde_path_to_error::Error<serde_json::Error>, message: &str) -> Response {
    let message = message.split(" at line ").next().unwrap_or(message);
    let path = error.path().to_string();
    let field = FieldProblem {
        // The library's name for the root.
        path: if path == "." { String::new() } else { path },
        message: message.to_owned(),
    };
    invalid(vec![field])
}

/// The response that names the invalid fields of the body.
pub fn invalid(errors: Vec<FieldProblem>) -> Response {
    let detail = "the body has values that are not possible";
    problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, errors, Vec::new())
}

/// Adds an error if a field's number is out of range.
pub fn within<T: PartialOrd + Display + Copy>(
    errors: &mut Vec<FieldProblem>,
    path: &str,
    number: T,
    range: RangeInclusive<T>,
) {
    if !range.contains(&number) {
        let (least, most) = range.into_inner();
        errors.push(FieldProblem {
            path: path.to_owned(),
            message: format!("{number} is out of range; accepted are {least} to {most}"),
        });
    }
}
