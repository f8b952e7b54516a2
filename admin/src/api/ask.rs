//! Asking the service without keeping the API from other answers.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use tokio::task;

use super::auth::Authorized;
use super::problem::problem;
use super::routes::AdminState;
use crate::control::{Control, ControlError};

/// Runs `question` on a thread that may block, and gives up after the answer time.
///
/// # Errors
///
/// The answer, ready to send, that says that there is none.
pub async fn ask<T, F>(state: &AdminState, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&dyn Control) -> T + Send + 'static,
{
    let control = Arc::clone(&state.control);
    in_time(state, move || question(&*control)).await
}

/// As [`ask`], for questions that may have no answer.
///
/// # Errors
///
/// The answer, ready to send, that says that there is none and why.
pub async fn try_ask<T, F>(state: &AdminState, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&dyn Control) -> Result<T, ControlError> + Send + 'static,
{
    ask(state, question).await?.map_err(|error| match error {
        ControlError::Unavailable(reason) => problem(StatusCode::SERVICE_UNAVAILABLE, reason),
        ControlError::Conflict(reason) => problem(StatusCode::CONFLICT, reason),
    })
}

/// Has the service do something, which is no change of the configuration, and leaves a record of
/// whose deed it was. `outcome` is the word for what became of it.
///
/// # Errors
///
/// As those of [`try_ask`].
pub async fn act<T, F>(
    state: &AdminState,
    Authorized(author): Authorized,
    what: String,
    outcome: fn(&T) -> &'static str,
    deed: F,
) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&dyn Control) -> Result<T, ControlError> + Send + 'static,
{
    let ledger = Arc::clone(&state.ledger);
    try_ask(state, move |control| {
        let result = deed(control);
        let word = match &result {
            Ok(value) => outcome(value).to_owned(),
            Err(error) => error.to_string(),
        };
        ledger.note(&author, &what, &word);
        result
    })
    .await
}

/// The word for a deed that may have found nothing to be done to.
pub fn found<T>(value: &Option<T>) -> &'static str {
    match value {
        Some(_) => "done",
        None => "not_found",
    }
}

/// Runs `work` on a thread that may block, and gives up after the answer time.
///
/// # Errors
///
/// The answer, ready to send, that says that there is none.
pub async fn in_time<T, F>(state: &AdminState, work: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let limit = state.limits.answer_time;
    match tokio::time::timeout(limit, task::spawn_blocking(work)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::error!(%error, "an answer of the management plane failed");
            let detail = "the answer could not be put together; the log says more";
            Err(problem(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
        Err(_) => {
            let detail = format!("the service did not answer within {limit:?}");
            Err(problem(StatusCode::SERVICE_UNAVAILABLE, detail))
        }
    }
}
