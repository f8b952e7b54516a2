//! `connections`: single connections.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use millrace_admin::client::{Method, Order};
use millrace_admin::config::ByteSize;
use millrace_admin::status::{CaptureBounds, ConnectionStatus, Connections, Evicted};

use super::capture::Destination;
use super::context::Context;
use super::failure::Failure;
use super::options::duration;
use super::views;

/// The path of the connections.
const PATH: &str = "/api/v1/connections";

/// The meaning of the columns.
pub const COLUMNS: &str = "\
VERSION    version of RPC-over-RDMA of the latest call; - before the first
CREDITS    requests that the client may have in flight, as granted
WANTED     the same, as requested
IN FLIGHT  requests without an answer: the most at once in the latest one to two seconds
EXPOSURES  replies exposed in the server's memory for the client to fetch (classic mode)
READ       bytes of READ
WRITTEN    bytes of WRITE
";

const CAPTURE_HELP: &str = "\
Examples:
  millracectl connections capture 7 -o calls.pcap --messages 1000
  millracectl connections capture 7 -o - --seconds 10s | tshark -r -

The file has the RPC-over-RDMA messages of the connection, both ways. The first limit reached ends
the capture: --messages, --bytes, --seconds or Ctrl-C.";

/// The commands on connections.
#[derive(Subcommand)]
pub enum ConnectionsCommand {
    /// Connections: credits, requests, bytes.
    #[command(after_help = COLUMNS)]
    List,
    /// One connection.
    Show {
        /// The number in `connections list`.
        id: u64,
    },
    /// Close a connection. The client may connect again.
    Evict {
        /// The number in `connections list`.
        id: u64,
        /// Also if it is in use, without asking.
        #[arg(long)]
        force: bool,
    },
    /// Write the messages of a connection to a file, from now on.
    #[command(after_help = CAPTURE_HELP)]
    Capture(Capture),
}

/// Options of a capture.
#[derive(Args)]
pub struct Capture {
    /// The number in `connections list`.
    id: u64,
    /// The file, in the pcap format; - for the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The maximum number of messages.
    #[arg(long, default_value_t = CaptureBounds::default().messages)]
    messages: u64,
    /// The maximum size of the file.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    bytes: ByteSize,
    /// The maximum duration, with s or m.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    seconds: Duration,
}

/// Runs the command; without one, lists the connections.
pub fn run(
    context: &Context<'_>,
    command: Option<&ConnectionsCommand>,
) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&ConnectionsCommand::List) {
        ConnectionsCommand::List => context.show_list(PATH, "connections", |list: Connections| {
            views::connections(&list.connections)
        }),
        ConnectionsCommand::Show { id } => context
            .show(&format!("{PATH}/{id}"), |one: ConnectionStatus| {
                views::connection(&one)
            }),
        ConnectionsCommand::Evict { id, force } => {
            let order = Order::new(Method::Delete, format!("{PATH}/{id}"));
            let answer = context.ask_or_force(&order, &mut { *force })?;
            context.print_answer(&answer, |_: Evicted| format!("connection {id} is closed\n"))
        }
        ConnectionsCommand::Capture(capture) => copy(context, capture),
    }
}

fn copy(context: &Context<'_>, capture: &Capture) -> Result<ExitCode, Failure> {
    let bounds = CaptureBounds {
        messages: capture.messages,
        bytes: capture.bytes.bytes(),
        seconds: capture.seconds.as_secs_f64(),
    };
    let mut destination = Destination::new(&capture.output)?;
    let order = Order::new(Method::Post, format!("{PATH}/{}/capture", capture.id))
        .with_body("application/json", serde_json::to_vec(&bounds)?);
    // The server ends it in time; this is the fallback.
    let longest = capture.seconds + Duration::from_secs(60);
    let most = bounds.bytes.saturating_add(1 << 20);
    let streamed = context
        .changing()?
        .stream(&order, longest, most, &mut destination);
    let (answer, count) = match streamed {
        Err(_) if destination.reader_has_gone() => return Ok(ExitCode::SUCCESS),
        streamed => streamed?,
    };
    if !answer.is_success() {
        return Err(Failure::Refused(Box::new(answer)));
    }
    eprintln!("{count} bytes in {}", destination.name());
    Ok(ExitCode::SUCCESS)
}
