//! `health` and `wait-ready`.

use std::fmt::Write;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use millrace_admin::client::{Answer, Client, ClientError};
use millrace_admin::status::{Health, Readiness};
use serde::Deserialize;

use super::table::{plain, time};
use super::{Failure, pass_on, print};

/// How often a server that is not ready is asked again.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
struct Ready {
    readiness: Readiness,
}

/// Prints both states; the exit status says whether all is well.
pub fn health(client: &Client, json: bool) -> Result<ExitCode, Failure> {
    let health = client.get("/healthz")?;
    let ready = client.get("/readyz")?;
    let (Some(state), Some(readiness)) = (state_of::<Health>(&health), state_of::<Ready>(&ready))
    else {
        let refused = if state_of::<Health>(&health).is_some() {
            &ready
        } else {
            &health
        };
        return pass_on(refused);
    };
    if json {
        let both = serde_json::json!({
            "healthy": state.stalled.is_empty(),
            "stalled": state.stalled,
            "readiness": readiness.readiness,
        });
        print(&format!("{both}\n"))?;
    } else {
        let mut text = match state.stalled.is_empty() {
            true => "healthy: all reactors turn\n".to_owned(),
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
            Readiness::Draining => "NOT READY: draining, the server is about to end\n",
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

/// Asks until the server is ready; exit status 1 if it is not in time.
pub fn ready(client: &Client, timeout: Duration) -> Result<ExitCode, Failure> {
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
                Some(_) => "it is still starting".to_owned(),
                None => format!("it answers {}", answer.status),
            },
            Err(error @ (ClientError::Address(_) | ClientError::Lookup { .. })) => {
                return Err(error.into());
            }
            Err(error) => error.to_string(),
        };
        if Instant::now() + PAUSE >= end {
            eprintln!("millracectl: not ready within {timeout:?}: {why}");
            return Ok(ExitCode::FAILURE);
        }
        thread::sleep(PAUSE);
    }
}

/// The state an answer of success or of 503 carries; `None` for a refusal.
fn state_of<T: for<'de> Deserialize<'de>>(answer: &Answer) -> Option<T> {
    serde_json::from_str(&answer.body).ok()
}
