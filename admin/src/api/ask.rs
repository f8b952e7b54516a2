//! Asking the service without keeping the API from other answers.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::Semaphore;
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
    let lane = match OPERATOR.try_with(|operator| *operator) {
        Ok(true) => &state.lanes.operator,
        _ => &state.lanes.questions,
    };
    in_lane(state, lane, work).await
}

/// As [`ask`], for the questions whether the service is well, which no other question may delay.
///
/// # Errors
///
/// The answer, ready to send, that says that there is none.
pub async fn ask_health<T, F>(state: &AdminState, question: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce(&dyn Control) -> T + Send + 'static,
{
    let control = Arc::clone(&state.control);
    in_lane(state, &state.lanes.health, move || question(&*control)).await
}

/// How many questions may be put to the service at once.
#[derive(Debug)]
pub struct Lanes {
    questions: Arc<Semaphore>,
    health: Arc<Semaphore>,
    operator: Arc<Semaphore>,
    tokens: Arc<Semaphore>,
}

tokio::task_local! {
    /// Whether the request in service is one of an operator.
    static OPERATOR: bool;
}

/// Answers a request, whose questions do not wait behind those of others if it is an operator's.
pub async fn answering<T>(operator: bool, answer: impl Future<Output = T>) -> T {
    OPERATOR.scope(operator, answer).await
}

/// As [`in_time`], for the question whether a token is the right one.
///
/// # Errors
///
/// The answer, ready to send, that says that there is none.
pub async fn ask_token<T, F>(state: &AdminState, work: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    in_lane(state, &state.lanes.tokens, work).await
}

impl Lanes {
    /// Questions about the service's health at once.
    pub const HEALTH: u32 = 2;
    /// Questions of operators at once, beside those of everybody.
    pub const OPERATOR: u32 = 2;
    /// Tokens that are compared at once.
    pub const TOKENS: u32 = 2;

    /// With so many other questions at once.
    pub fn new(questions: u32) -> Self {
        let lane = |places: u32| Arc::new(Semaphore::new(places.max(1) as usize));
        Self {
            questions: lane(questions),
            health: lane(Self::HEALTH),
            operator: lane(Self::OPERATOR),
            tokens: lane(Self::TOKENS),
        }
    }
}

async fn in_lane<T, F>(state: &AdminState, lane: &Arc<Semaphore>, work: F) -> Result<T, Response>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let limit = state.limits.answer_time;
    let lane = Arc::clone(lane);
    let answer = async move {
        // A lane is never closed. The place is given back when the work is done, not when nobody
        // waits for it any more: a service that does not answer is not asked more and more.
        let place = lane.acquire_owned().await;
        task::spawn_blocking(move || {
            let _place = place;
            work()
        })
        .await
    };
    match tokio::time::timeout(limit, answer).await {
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
