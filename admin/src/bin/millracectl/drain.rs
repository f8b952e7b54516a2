//! `drain`: takes the server out of service without interrupting calls in progress.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Subcommand;
use millrace_admin::client::{Method, Order};
use millrace_admin::status::{DrainOrder, DrainPhase, DrainStatus};

use super::context::{Context, print, print_whole};
use super::failure::Failure;
use super::options::duration;
use super::table::count;

/// The path of the drain.
const PATH: &str = "/api/v1/drain";

/// The interval of polling a drain, and of printing it.
const PAUSE: Duration = Duration::from_millis(200);

const START_HELP: &str = "\
Examples:
  millracectl drain start --deadline 30s --wait && systemctl stop millraced
  millracectl drain start --deadline 0s          close all connections now

New connections and calls are refused, calls in progress are finished, and connections are closed
when idle. At the deadline all of them are closed. The server continues to run; `drain cancel`
lets it serve again. Ctrl-C while waiting ends the wait, not the drain.";

/// The commands on the drain.
#[derive(Subcommand)]
pub enum DrainCommand {
    /// Refuse new clients, and finish calls in progress.
    #[command(after_help = START_HELP)]
    Start {
        /// After this time all connections are closed, even with calls in progress; with s or m.
        #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
        deadline: Duration,
        /// Wait until no connections are left, and show the progress.
        #[arg(long)]
        wait: bool,
    },
    /// The progress of a drain.
    Status,
    /// Serve again.
    Cancel,
}

/// Runs the command; without one, shows the progress.
pub fn run(context: &Context<'_>, command: Option<&DrainCommand>) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&DrainCommand::Status) {
        DrainCommand::Status => context.show(PATH, |status: DrainStatus| line(&status)),
        DrainCommand::Cancel => {
            let answer = context.ask(&Order::new(Method::Delete, PATH))?;
            context.print_answer(&answer, |status: DrainStatus| line(&status))
        }
        DrainCommand::Start {
            deadline,
            wait: waits,
        } => {
            let body = DrainOrder {
                deadline_seconds: deadline.as_secs_f64(),
            };
            let order = Order::new(Method::Post, PATH)
                .with_body("application/json", serde_json::to_vec(&body)?);
            let answer = context.ask(&order)?;
            match waits {
                true => wait(context, answer.value()?),
                false => context.print_answer(&answer, |status: DrainStatus| line(&status)),
            }
        }
    }
}

/// Shows the progress until the drain is complete.
fn wait(context: &Context<'_>, mut status: DrainStatus) -> Result<ExitCode, Failure> {
    // On a terminal the progress is overwritten in one line.
    let terminal = io::stderr().is_terminal();
    let mut told = String::new();
    while status.phase == DrainPhase::Draining {
        let now = line(&status);
        match terminal {
            true => eprint!("\r\x1b[K{}", now.trim_end()),
            // A change of the remaining seconds alone is not printed.
            false if counts(&status) != told => eprint!("{now}"),
            false => {}
        }
        told = counts(&status);
        thread::sleep(PAUSE);
        status = context.value(PATH)?;
    }
    if terminal {
        eprint!("\r\x1b[K");
    }
    match context.json {
        true => print_whole(&serde_json::to_string(&status)?)?,
        false => {
            print(&line(&status))?;
            ExitCode::SUCCESS
        }
    };
    Ok(match status.phase {
        DrainPhase::Drained => ExitCode::SUCCESS,
        // The drain was cancelled.
        DrainPhase::Serving | DrainPhase::Draining => ExitCode::FAILURE,
    })
}

fn line(status: &DrainStatus) -> String {
    let counts = counts(status);
    match (status.phase, status.remaining_seconds) {
        (DrainPhase::Serving, _) => format!("serving clients: {counts}\n"),
        (DrainPhase::Drained, _) => "drained: no connections are left\n".to_owned(),
        (DrainPhase::Draining, Some(left)) => {
            format!("draining, {left:.0} s until connections are closed: {counts}\n")
        }
        (DrainPhase::Draining, None) => format!("draining: {counts}\n"),
    }
}

fn counts(status: &DrainStatus) -> String {
    [
        count(status.connections, "connection"),
        format!("{} in flight", count(status.requests_in_flight, "request")),
        count(status.exposures, "exposure"),
    ]
    .join(", ")
}
