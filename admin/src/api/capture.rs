//! `/api/v1/connections/{id}/capture`: the messages of a connection, as a file for packet
//! analyzers.
//!
//! A capture may take an hour. Each has a thread of its own, so that other requests keep theirs,
//! and the number of captures is bounded. A capture ends when its client disconnects.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::auth::{Authorized, Operator, found};
use super::body::{Body, invalid, within};
use super::connections::none;
use super::context::{AdminState, CAPTURES};
use super::long::LongAnswer;
use super::named::Named;
use super::problem::problem;
use crate::control::CaptureStream;
use crate::status::CaptureBounds;

/// The most pieces of a capture that wait to be sent.
const PIECES: usize = 8;
/// Time between two checks whether the client is still connected, while there are no messages.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

const MESSAGES: u64 = 1_000_000;
const BYTES: (u64, u64) = (1024, 1 << 30);
const SECONDS: f64 = 3600.0;

/// Captures the messages of a connection.
///
/// The file is sent as it grows, and ends at the first of the limits, with the connection, or when
/// the client disconnects.
#[utoipa::path(
    post, path = "/api/v1/connections/{id}/capture", tag = "clients",
    operation_id = "capture_connection",
    params(("id" = u64, Path, description = "The connection's identifier.", example = 7)),
    request_body(content = CaptureBounds, example = json!({"messages": 100, "seconds": 5.0})),
    responses(
        (
            status = 200, description = "A capture file of libpcap.", body = Vec<u8>,
            content_type = "application/vnd.tcpdump.pcap",
            headers(("Content-Disposition" = String, description = "A name for the file.")),
        ),
        (status = 404),
        (status = 409, description = "The connection cannot be captured, or is captured already."),
    ),
)]
pub async fn capture(
    State(state): State<AdminState>,
    Authorized(who): Authorized,
    Named(id): Named<u64>,
    long: Option<Extension<LongAnswer>>,
    Body(bounds): Body<CaptureBounds>,
) -> Result<Response, Response> {
    check(&bounds)?;
    let place = Arc::clone(&state.captures).try_acquire_owned();
    let place = place.map_err(|_| {
        let detail = format!("{CAPTURES} captures are in progress, the most at a time");
        let mut answer = problem(StatusCode::TOO_MANY_REQUESTS, detail);
        let headers = answer.headers_mut();
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("10"));
        answer
    })?;
    let question = bounds.clone();
    let what = format!("capture connection {id}");
    let begun = Operator(who).act(&state, what, found, move |control| {
        control.capture(id, &question)
    });
    let captured = begun.await?.ok_or_else(|| none(id))?;
    let (sender, mut pieces) = mpsc::channel(PIECES);
    let carried = thread::Builder::new()
        .name("millrace-capture".to_owned())
        .spawn(move || carry(captured, &sender, place));
    carried.map_err(|error| {
        let detail = format!("cannot start a thread for a capture: {error}");
        problem(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    // The connection to the client may live longer than others.
    if let Some(Extension(long)) = long {
        long.allow(Duration::from_secs_f64(bounds.seconds));
    }
    let name = format!("attachment; filename=\"millrace-connection-{id}.pcap\"");
    let headers = [
        (
            header::CONTENT_TYPE,
            "application/vnd.tcpdump.pcap".to_owned(),
        ),
        (header::CONTENT_DISPOSITION, name),
    ];
    // An error aborts the response, so that the client sees that the file is incomplete.
    let pieces = stream::poll_fn(move |context| pieces.poll_recv(context));
    Ok((headers, HttpBody::from_stream(pieces)).into_response())
}

fn check(bounds: &CaptureBounds) -> Result<(), Response> {
    let mut errors = Vec::new();
    within(&mut errors, "messages", bounds.messages, 1..=MESSAGES);
    within(&mut errors, "bytes", bounds.bytes, BYTES.0..=BYTES.1);
    within(&mut errors, "seconds", bounds.seconds, 0.0..=SECONDS);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(invalid(errors)),
    }
}

/// Sends the pieces until the capture ends or the client has disconnected.
fn carry(
    mut stream: Box<dyn CaptureStream>,
    sender: &mpsc::Sender<io::Result<Bytes>>,
    _place: OwnedSemaphorePermit,
) {
    loop {
        let piece = match stream.next(CLIENT_CHECK_INTERVAL) {
            Ok(Some(piece)) => Ok(Bytes::from(piece)),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let last = piece.is_err();
        let empty = piece.as_ref().is_ok_and(Bytes::is_empty);
        let gone = match empty {
            true => sender.is_closed(),
            false => sender.blocking_send(piece).is_err(),
        };
        if gone || last {
            return;
        }
    }
}
