//! Calls from handlers into the service, on threads that may block and within a time limit.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::Semaphore;
use tokio::task;

use super::context::AdminState;
use super::problem::problem;
use crate::change::ConfigStore;
use crate::control::{Control, ControlError};

/// Runs `question` on a thread that may block, with the timeout of an answer.
///
/// # Errors
///
/// The response to send if the service did not answer in time.
pub async fn ask<T, F>(state: &AdminState, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&dyn Control) -> T + Send + 'static,
{
    let control = Arc::clone(&state.control);
    in_time(state, move || question(&*control)).await
}

/// As [`ask`], for fallible questions.
///
/// # Errors
///
/// The response to send, with the reason.
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

/// As [`ask`], for questions about the configuration and its history.
///
/// # Errors
///
/// The response to send if there was no answer in time.
pub async fn ask_config<T, F>(state: &AdminState, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&ConfigStore) -> T + Send + 'static,
{
    let config_store = Arc::clone(&state.config_store);
    in_time(state, move || question(&config_store)).await
}

/// Runs `work` on a thread that may block, with the timeout of an answer.
///
/// # Errors
///
/// The response to send if it did not end in time.
pub async fn in_time<T, F>(state: &AdminState, work: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let limit = match OPERATOR.try_with(|operator| *operator) {
        Ok(true) => &state.concurrency.operator,
        _ => &state.concurrency.questions,
    };
    run_within(state, limit, work).await
}

/// As [`ask`], for questions about the service's health, which other questions do not delay.
///
/// # Errors
///
/// The response to send if there was no answer in time.
pub async fn ask_health<T, F>(state: &AdminState, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&dyn Control) -> T + Send + 'static,
{
    let control = Arc::clone(&state.control);
    run_within(state, &state.concurrency.health, move || {
        question(&*control)
    })
    .await
}

tokio::task_local! {
    /// Whether the current request is an operator's.
    static OPERATOR: bool;
}

/// Serves a request. An operator's questions do not wait behind those of other clients.
pub async fn answering<T>(operator: bool, answer: impl Future<Output = T>) -> T {
    OPERATOR.scope(operator, answer).await
}

/// As [`in_time`], for the comparison of a token.
///
/// # Errors
///
/// The response to send if it did not end in time.
pub async fn ask_token<T, F>(state: &AdminState, work: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    run_within(state, &state.concurrency.tokens, work).await
}

async fn run_within<T, F>(
    state: &AdminState,
    limit: &Arc<Semaphore>,
    work: F,
) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let time = state.limits.answer_time;
    let limit = Arc::clone(limit);
    let answer = async move {
        // The semaphore is never closed. The permit is released when the work is done, not at its
        // timeout: a service that does not answer does not get more and more questions.
        let permit = limit.acquire_owned().await;
        task::spawn_blocking(move || {
            let _permit = permit;
            work()
        })
        .await
    };
    match tokio::time::timeout(time, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            tracing::error!(%error, "an answer of the management plane failed");
            let detail = "the answer could not be composed; see the log";
            Err(problem(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
        Err(_) => {
            let detail = format!("the service did not answer within {time:?}");
            Err(problem(StatusCode::SERVICE_UNAVAILABLE, detail))
        }
    }
}
