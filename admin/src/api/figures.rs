//! `/api/v1/figures`: the last hour.

use std::time::{Instant, SystemTime};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use tokio::time::{self, MissedTickBehavior};

use super::context::AdminState;
use super::problem::typed_problem;
use super::starting::Answers;
use crate::figures::INTERVAL;
use crate::status::{Figures, ProblemType};

/// The latest time that a JSON number holds exactly for all clients, in milliseconds since 1970.
const TIME_MAX: u64 = (1 << 53) - 1;

/// Which points are asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiguresQuery {
    #[serde(default)]
    after: u64,
}

/// Shows the figures of the last hour by intervals of five seconds.
///
/// Rates, latencies and the load of reactors, from the start of the service on.
#[utoipa::path(
    get, path = "/api/v1/figures", tag = "status", operation_id = "list_figures",
    params(("after" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991u64, description = "Only intervals that end after this time: `unix_milliseconds` of the last one known.")),
    responses((status = 200, description = "The intervals.", body = Figures), (status = 400)),
)]
pub async fn list(
    State(state): State<AdminState>,
    query: Result<Query<FiguresQuery>, QueryRejection>,
) -> Result<Json<Figures>, Response> {
    let asked = query.ok().map(|Query(FiguresQuery { after })| after);
    let after = asked.filter(|after| *after <= TIME_MAX).ok_or_else(|| {
        let detail = "the query may have after=MILLISECONDS since 1970";
        typed_problem(ProblemType::Query, detail)
    })?;
    Ok(Json(Figures {
        interval_seconds: INTERVAL.as_secs_f64(),
        points: state.figures.after(after),
    }))
}

/// Notes the figures of each interval, once the service has started.
pub(super) async fn note_intervals(answers: &Answers) {
    let mut interval = time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if let (_, Some(state)) = answers.now() {
            let totals = state.control.totals();
            state
                .figures
                .note(Instant::now(), SystemTime::now(), totals);
        }
    }
}
