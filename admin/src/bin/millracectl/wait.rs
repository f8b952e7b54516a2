//! `health` and `wait-ready`.

use std::fmt::Write;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin::client::{Answer, Client, ClientError};
use millrace_admin::status::{Health, Readiness};
use serde::Deserialize;

use super::context::{Context, print, print_whole};
use super::failure::Failure;
use super::table::{plain, time};

/// The interval of polling a server that is not ready.
const PAUSE: Duration = Duration::from_millis(100);

/// The default timeout of waiting for a server.
const WAIT_TIME_DEFAULT: Duration = Duration::from_secs(30);

/// The body of `/readyz`.
#[derive(Deserialize)]
pub struct Ready {
    pub readiness: Readiness,
}

/// Prints both states; the exit status is 0 if both are good.
pub fn health(context: &Context<'_>) -> Result<ExitCode, Failure> {
    let client = &context.client;
    let health = client.get("/healthz")?;
    let ready = client.get("/readyz")?;
    let (Some(state), Some(readiness)) = (state_of::<Health>(&health), state_of::<Ready>(&ready))
    else {
        let refused = match state_of::<Health>(&health) {
            Some(_) => ready,
            None => health,
        };
        return Err(Failure::Refused(Box::new(refused)));
    };
    if context.json {
        let both = serde_json::json!({
            "healthy": state.stalled.is_empty(),
            "stalled": state.stalled,
            "readiness": readiness.readiness,
        });
        print_whole(&both.to_string())?;
    } else {
        let mut text = match state.stalled.is_empty() {
            true => "healthy: all reactors make progress\n".to_owned(),
            false => "NOT HEALTHY: reactors are stalled\n".to_owned(),
        };
        for one in &state.stalled {
            let (name, activity) = (plain(&one.name), plain(&one.activity));
            // Writing into a string has no way to fail.
            let _ = writeln!(text, "  {name}: in {activity} for {}", time(one.seconds));
        }
        text.push_str(match readiness.readiness {
            Readiness::Ready => "ready: clients are served\n",
            Readiness::Starting => "NOT READY: starting\n",
            Readiness::Draining => "NOT READY: draining or drained\n",
            Readiness::NoListener => "NOT READY: no RDMA listener; `listeners add` makes one\n",
        });
        print(&text)?;
    }
    let well = health.is_success() && ready.is_success();
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Polls until the server is ready; exit status 1 at the timeout.
pub fn ready(client: &Client, timeout: Option<Duration>) -> Result<ExitCode, Failure> {
    let timeout = timeout.unwrap_or(WAIT_TIME_DEFAULT);
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
        let last = client.clone().with_timeout(left).get("/readyz");
        let why = match last {
            Ok(answer) if answer.is_success() => return Ok(ExitCode::SUCCESS),
            Ok(answer) => match state_of::<Ready>(&answer) {
                Some(Ready {
                    readiness: Readiness::Draining,
                }) => "it is draining".to_owned(),
                Some(Ready {
                    readiness: Readiness::NoListener,
                }) => "it has no RDMA listener".to_owned(),
                Some(_) => "it is still starting".to_owned(),
                None => format!("it answers {}", answer.status),
            },
            Err(error @ (ClientError::Connect { .. } | ClientError::Time { .. })) => {
                error.to_string()
            }
            Err(error @ ClientError::Protocol { .. }) => error.to_string(),
            // Retrying does not help with these.
            Err(error) => return Err(error.into()),
        };
        if Instant::now() + PAUSE >= end {
            eprintln!("millracectl: not ready within {timeout:?}: {why}");
            return Ok(ExitCode::FAILURE);
        }
        thread::sleep(PAUSE);
    }
}

/// The state in an answer with success or 503; `None` for a refusal.
pub fn state_of<T: for<'de> Deserialize<'de>>(answer: &Answer) -> Option<T> {
    serde_json::from_str(&answer.body).ok()
}
