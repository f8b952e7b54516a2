//! `/api/v1/figures`: the last hour.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use tokio::task;
use tokio::time::{self, MissedTickBehavior};

use super::context::AdminState;
use super::named::address;
use super::problem::typed_problem;
use super::starting::Answers;
use crate::config::AddressText;
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
    export: Option<String>,
    client: Option<String>,
}

/// What the figures are of.
enum FiguresSubject {
    Service,
    Export(String),
    Client(IpAddr),
}

impl FiguresQuery {
    fn subject(&self) -> Result<FiguresSubject, Response> {
        Ok(match (&self.export, &self.client) {
            (None, None) => FiguresSubject::Service,
            (Some(path), None) => FiguresSubject::Export(path.clone()),
            (None, Some(text)) => FiguresSubject::Client(address(text)?),
            (Some(_), Some(_)) => {
                let detail = "there are no figures of a client on one export; ask for one of them";
                return Err(typed_problem(ProblemType::Invalid, detail));
            }
        })
    }
}

/// Shows the figures of the last hour by intervals of five seconds.
///
/// Rates, latencies and the load of reactors, from the start of the service on. With `export` or
/// `client` those of one export or client, without reactors, and for clients without latencies. The
/// 64 busiest clients have a history, also after they have left. There are no intervals where there
/// is no history.
#[utoipa::path(
    get, path = "/api/v1/figures", tag = "status", operation_id = "list_figures",
    params(
        ("after" = Option<u64>, Query, minimum = 0, maximum = 9007199254740991u64, description = "Only intervals that end after this time: `unix_milliseconds` of the last one known."),
        ("export" = Option<String>, Query, description = "Those of this export only."),
        ("client" = inline(Option<AddressText>), Query, description = "Those of the client at this address only; not together with `export`."),
    ),
    responses((status = 200, description = "The intervals.", body = Figures), (status = 400), (status = 422)),
)]
pub async fn list(
    State(state): State<AdminState>,
    query: Result<Query<FiguresQuery>, QueryRejection>,
) -> Result<Json<Figures>, Response> {
    let asked = query.ok().map(|Query(query)| query);
    let asked = asked.filter(|query| query.after <= TIME_MAX);
    let query = asked.ok_or_else(|| {
        let detail = "the query may have after=MILLISECONDS since 1970, and export=PATH or \
                      client=ADDRESS";
        typed_problem(ProblemType::Query, detail)
    })?;
    let after = query.after;
    let figures = &state.figures;
    Ok(Json(Figures {
        interval_seconds: INTERVAL.as_secs_f64(),
        points: match query.subject()? {
            FiguresSubject::Service => figures.after(after),
            FiguresSubject::Export(path) => figures.of_export(&path, after),
            FiguresSubject::Client(address) => figures.of_client(address, after),
        },
    }))
}

/// Notes the figures of each interval, once the service has started.
pub(super) async fn note_intervals(answers: &Answers) {
    let mut interval = time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if let (_, Some(state)) = answers.now() {
            let control = Arc::clone(&state.control);
            // Many exports take a few milliseconds, in which others shall be answered.
            let read = task::spawn_blocking(move || (control.totals(), control.item_samples()));
            if let Ok((totals, samples)) = read.await {
                let (now, time) = (Instant::now(), SystemTime::now());
                state.figures.note(now, time, totals, samples);
            }
        }
    }
}
