//! `events`: what happens, line by line.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millrace_admin::client::{Method, Order};
use millrace_admin::status::{Occurrence, ServiceEvent};

use super::context::Context;
use super::failure::Failure;
use super::table::{count, plain, when};

pub const HELP: &str = "\
Examples:
  millracectl events                        follow until Ctrl-C
  millracectl --json events | jq -r .event  one object per line, for programs
  millracectl --json events --after ID      go on after an event, by its `id`

Shown are changes of the configuration and their authors, drains, bans and other orders, clients that
come and go, and trouble of reactors, listeners and exports. The server keeps the last 1024 events
for --after; of changes and orders also those while nobody followed.";

/// The longest line of a stream.
const LINE_MAX: usize = 1 << 20;

/// Options of `events`.
#[derive(Args)]
pub struct Events {
    /// Begin after this event.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

/// Prints events until the server ends the stream.
pub fn run(context: &Context<'_>, options: &Events) -> Result<ExitCode, Failure> {
    let mut order = Order::new(Method::Get, "/api/v1/events");
    if let Some(id) = &options.after {
        order = order.after_event(id);
    }
    let mut lines = EventLines {
        line: Vec::new(),
        json: context.json,
        gone: false,
    };
    let streamed = context
        .client
        .stream(&order, Duration::MAX, u64::MAX, &mut lines);
    let (answer, _) = match streamed {
        Err(_) if lines.gone => return Ok(ExitCode::SUCCESS),
        streamed => streamed?,
    };
    if !answer.is_success() {
        return Err(Failure::Refused(Box::new(answer)));
    }
    Err(Failure::no("the server has ended the stream"))
}

/// Reads a stream of events and prints each.
struct EventLines {
    /// The beginning of a line.
    line: Vec<u8>,
    json: bool,
    /// The reader of the standard output has closed it.
    gone: bool,
}

impl EventLines {
    fn print(&mut self, data: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let text = match self.json {
            true => String::from_utf8_lossy(data).into_owned(),
            false => match serde_json::from_slice(data) {
                Ok(event) => words(&event),
                // Of a later version.
                Err(_) => plain(&String::from_utf8_lossy(data)),
            },
        };
        let written = writeln!(out, "{text}").and_then(|()| out.flush());
        self.gone = matches!(&written, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        written
    }
}

impl Write for EventLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > LINE_MAX {
                return Err(io::Error::other("an event is too long"));
            }
            let Some(line) = self.line.strip_suffix(b"\n") else {
                continue;
            };
            let data = line.strip_prefix(b"data: ").map(<[u8]>::to_vec);
            self.line.clear();
            if let Some(data) = data {
                self.print(&data)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn words(event: &ServiceEvent) -> String {
    let by = |author: &String, address: &Option<String>| {
        let from = address.as_ref().map(|address| format!(" from {address}"));
        format!("by {author}{}", from.unwrap_or_default())
    };
    let said = match &event.what {
        Occurrence::Configuration {
            author,
            address,
            action,
            outcome,
            generation,
            keys,
        } => {
            let by = by(author, address);
            let keys = match keys.is_empty() {
                true => String::new(),
                false => format!(": {}", keys.join(", ")),
            };
            format!("generation {generation}, {action} {outcome} {by}{keys}")
        }
        Occurrence::Action {
            author,
            address,
            action,
            outcome,
        } => format!("{action}: {outcome}, {}", by(author, address)),
        Occurrence::ClientConnected {
            address,
            connections,
        } => format!("{address} with {}", count(*connections, "connection")),
        Occurrence::ClientGone { address } | Occurrence::BanEnded { address } => address.clone(),
        Occurrence::BanBegun { address, seconds } => format!("{address} for {seconds} s"),
        Occurrence::Readiness { readiness } => format!("{readiness:?}").to_lowercase(),
        Occurrence::Drain { phase } => format!("{phase:?}").to_lowercase(),
        Occurrence::Grace { active } => (if *active {
            "it has begun"
        } else {
            "it has ended"
        })
        .to_owned(),
        Occurrence::ReactorStalled { name, activity } => format!("{name} in {activity}"),
        Occurrence::ReactorRecovered { name } => name.clone(),
        Occurrence::ListenerOpened { address, provider }
        | Occurrence::ListenerClosed { address, provider } => format!("{address} ({provider})"),
        Occurrence::ExportTrouble { path, trouble } => format!("{path}: {trouble}"),
        Occurrence::ExportRecovered { path } => path.clone(),
        Occurrence::Lost { count: Some(count) } => format!("{count} events are not kept any more"),
        Occurrence::Lost { count: None } => "the server has been restarted".to_owned(),
    };
    let kind = event.what.kind().replace('_', " ");
    format!("{}  {kind:<17}  {}", when(event.time_seconds), plain(&said))
}
