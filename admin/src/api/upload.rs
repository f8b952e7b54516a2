//! Bodies of requests, read completely before a handler runs.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::limits::ApiLimits;
use super::problem::problem;

/// The request with its body in memory, so that no handler waits for a client.
///
/// # Errors
///
/// The response to send if the body is too long, by its header or its bytes, too slow, or
/// truncated.
pub async fn received(request: Request, limits: &ApiLimits) -> Result<Request, Response> {
    let (parts, body) = request.into_parts();
    if body.is_end_stream() {
        return Ok(Request::from_parts(parts, body));
    }
    let most = limits.body_bytes;
    let length = body.size_hint().lower();
    if length > most as u64 {
        let detail = format!("a body of {length} bytes; at most {most} are accepted");
        return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let read = timeout(limits.body_time, Limited::new(body, most).collect());
    let (status, detail) = match read.await {
        Ok(Ok(body)) => return Ok(Request::from_parts(parts, Body::from(body.to_bytes()))),
        Ok(Err(error)) if error.is::<LengthLimitError>() => (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body of more than {most} bytes, the most accepted"),
        ),
        Ok(Err(error)) => (
            StatusCode::BAD_REQUEST,
            format!("the body is not terminated properly: {error}"),
        ),
        Err(_) => {
            let time = limits.body_time;
            let detail = format!("the body did not arrive within {time:?}");
            (StatusCode::REQUEST_TIMEOUT, detail)
        }
    };
    Err(problem(status, detail))
}
