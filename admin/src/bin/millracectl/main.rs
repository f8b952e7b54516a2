//! `millracectl`: what a running `millraced` says of itself, in tables or JSON.

mod table;
mod views;
mod wait;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use millrace_admin::client::{Answer, Client, ClientError};
use millrace_admin::config::parse_duration;
use millrace_admin::status::{Connections, Exports, Pools, Problem, Reactors, Version};
use serde::de::DeserializeOwned;

const AFTER_HELP: &str = "\
Examples:
  millracectl connections                 who is connected, and how much they move
  millracectl reactors                    how busy each core is
  millracectl pools                       whether requests wait for buffers
  millracectl --json connections | jq .   the same for scripts
  millracectl config > now.yaml           the configuration in force, with all defaults
  millracectl wait-ready --timeout 20s    for scripts that start a server

The server's address is `admin.listen` of its configuration.
Exit status: 0 when all is well, 1 when the server is not healthy, not ready or refuses, 2 when it
cannot be asked or the command line is wrong.";

/// Show what a running millraced does: connections, reactors, buffers, exports, metrics.
#[derive(Parser)]
#[command(name = "millracectl", version, after_help = AFTER_HELP)]
struct Arguments {
    /// Where the server's management plane listens.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:9620"
    )]
    address: String,
    /// Print the server's answer as it is, for programs.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Which program answers.
    Version,
    /// The configuration in force, as YAML (or JSON with --json).
    Config,
    /// Connections of clients.
    #[command(after_help = "\
VERSION    version of RPC-over-RDMA of the latest call; - before the first
CREDITS    requests that the client may have in flight: granted to it
WANTED     the same, as it asks for
IN FLIGHT  requests that are not answered yet
EXPOSURES  replies in the server's memory that the client is to fetch (classic mode)
READ       bytes that went to the client by RDMA, apart from inline messages
WRITTEN    bytes that came from it by RDMA
")]
    Connections,
    /// The pinned loops: how busy, how long their longest turn.
    Reactors,
    /// Buffers of each loop: how many, how many in use, who waits.
    Pools,
    /// Exported trees: who may mount, how full.
    Exports,
    /// Metrics, as Prometheus reads them.
    Metrics,
    /// Whether the server works and serves; exit status 1 if not.
    Health,
    /// Wait until clients are served.
    WaitReady {
        /// How long, with us, ms or s.
        #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
        timeout: Duration,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("millracectl: {error}");
            ExitCode::from(2)
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let client = Client::new(&arguments.address)?;
    let json = arguments.json;
    match &arguments.command {
        Command::Version => show(&client, "/api/v1/version", json, |version: Version| {
            format!(
                "{} {} ({}, {}), API {}\n",
                table::plain(&version.name),
                table::plain(&version.version),
                table::plain(&version.profile),
                table::plain(&version.architecture),
                table::plain(&version.api)
            )
        }),
        Command::Config => {
            let format = if json { "json" } else { "yaml" };
            pass_on(&client.get(&format!("/api/v1/config?format={format}"))?)
        }
        Command::Connections => show(&client, "/api/v1/connections", json, |list: Connections| {
            views::connections(&list.connections)
        }),
        Command::Reactors => show(&client, "/api/v1/reactors", json, |list: Reactors| {
            views::reactors(&list.reactors)
        }),
        Command::Pools => show(&client, "/api/v1/pools", json, |list: Pools| {
            views::pools(&list.pools)
        }),
        Command::Exports => show(&client, "/api/v1/exports", json, |list: Exports| {
            views::exports(&list.exports)
        }),
        Command::Metrics => pass_on(&client.get("/metrics")?),
        Command::Health => wait::health(&client, json),
        Command::WaitReady { timeout } => wait::ready(&client, *timeout),
    }
}

/// Why a command has nothing to print.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("the answer of the server is not understood (is it of another version?): {0}")]
    Answer(#[from] serde_json::Error),
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Prints an answer as a table, or as it is for `--json`.
fn show<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    json: bool,
    view: impl FnOnce(T) -> String,
) -> Result<ExitCode, Failure> {
    let answer = client.get(path)?;
    if json || !answer.is_success() {
        return pass_on(&answer);
    }
    print(&view(serde_json::from_str(&answer.body)?))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints an answer as it is; a refusal goes to the error stream in words.
fn pass_on(answer: &Answer) -> Result<ExitCode, Failure> {
    if answer.is_success() {
        let end = if answer.body.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        print(&format!("{}{end}", answer.body))?;
        return Ok(ExitCode::SUCCESS);
    }
    let detail = match serde_json::from_str::<Problem>(&answer.body) {
        Ok(problem) => table::plain(&problem.detail),
        Err(_) => table::plain(answer.body.trim()),
    };
    eprintln!(
        "millracectl: the server answers {}: {detail}",
        answer.status
    );
    Ok(ExitCode::FAILURE)
}

/// Writes to the standard output; a reader that has gone away (`| head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_its_help_teaches() {
        Arguments::command().debug_assert();
        let help = Arguments::command().render_long_help().to_string();
        for word in [
            "connections",
            "--json",
            "--address",
            "Examples:",
            "Exit status:",
            "9620",
        ] {
            assert!(help.contains(word), "no {word} in:\n{help}");
        }
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [
            ["millracectl", "--json", "pools", "--address=http://[::1]:1"],
            ["millracectl", "--address=http://[::1]:1", "pools", "--json"],
        ] {
            let arguments = Arguments::try_parse_from(line).unwrap();
            assert!(arguments.json && arguments.address == "http://[::1]:1");
        }
        assert!(
            Arguments::try_parse_from(["millracectl", "wait-ready", "--timeout", "9"]).is_err()
        );
    }
}
