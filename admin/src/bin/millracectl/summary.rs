//! `status`: an overview on one page.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_admin::change::Pending;
use millrace_admin::status::{
    Clients, Exports, Health, OperationStatus, Operations, ReactorList, Readiness, Version,
};
use serde_json::Value;

use super::context::{Context, print, print_whole};
use super::failure::Failure;
use super::table::{bytes, count, plain, time};
use super::wait::{Ready, state_of};

/// The metric with the start time of the server.
const START: &str = "millrace_process_start_time_seconds";

/// Prints the page. Its exit status is that of `health`.
pub fn run(context: &Context<'_>) -> Result<ExitCode, Failure> {
    let page = Page::fetch(context)?;
    let well = page.health.stalled.is_empty() && page.readiness == Readiness::Ready;
    match context.json {
        true => print_whole(&page.json().to_string())?,
        false => {
            print(&page.text())?;
            ExitCode::SUCCESS
        }
    };
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The page as text.
pub fn text(context: &Context<'_>) -> Result<String, Failure> {
    Ok(Page::fetch(context)?.text())
}

struct Page {
    authority: String,
    version: Version,
    readiness: Readiness,
    health: Health,
    uptime: Option<f64>,
    reactors: ReactorList,
    clients: Clients,
    exports: Exports,
    operations: Vec<OperationStatus>,
    pending: Pending,
}

impl Page {
    fn fetch(context: &Context<'_>) -> Result<Self, Failure> {
        let client = &context.client;
        let version = context.value("/api/v1/version")?;
        // These two answer 503 with a state as well.
        let refused = |answer| Failure::Refused(Box::new(answer));
        let answer = client.get("/readyz")?;
        let ready: Ready = state_of(&answer).ok_or_else(|| refused(answer))?;
        let answer = client.get("/healthz")?;
        let health = state_of(&answer).ok_or_else(|| refused(answer))?;
        let metrics = context.get("/metrics")?.body;
        let operations: Operations = context.value("/api/v1/operations")?;
        Ok(Self {
            authority: client.authority().to_owned(),
            version,
            readiness: ready.readiness,
            health,
            uptime: uptime(&metrics),
            reactors: context.value("/api/v1/reactors")?,
            clients: context.whole_list("/api/v1/clients", "clients")?.value()?,
            exports: context.whole_list("/api/v1/exports", "exports")?.value()?,
            operations: operations.operations,
            pending: context.value("/api/v1/config/pending")?,
        })
    }

    /// Requests and bytes of one procedure of NFS.
    fn moved(&self, procedure: &str) -> (u64, u64) {
        let all = self.operations.iter();
        let of = all.filter(|one| one.program == "nfs" && one.procedure == procedure);
        of.fold((0, 0), |sum, one| (sum.0 + one.requests, sum.1 + one.bytes))
    }

    fn text(&self) -> String {
        let version = &self.version;
        let mut lines = vec![format!(
            "{} {} ({}) at {}{}",
            plain(&version.name),
            plain(&version.version),
            plain(&version.profile),
            self.authority,
            self.uptime
                .map_or(String::new(), |up| format!(", up {}", time(up)))
        )];
        lines.push(format!(
            "state       {}",
            match self.readiness {
                Readiness::Ready => "ready: clients are served",
                Readiness::Starting => "NOT READY: starting",
                Readiness::Draining => "NOT READY: draining or drained",
                Readiness::NoListener => "NOT READY: no RDMA listener; `listeners add` makes one",
            }
        ));
        for one in &self.health.stalled {
            let (name, activity) = (plain(&one.name), plain(&one.activity));
            let since = time(one.seconds);
            lines.push(format!("STALLED     {name}: in {activity} for {since}"));
        }
        let reactors = &self.reactors.reactors;
        let busy: Vec<String> = reactors
            .iter()
            .map(|one| {
                let all = one.busy_seconds + one.idle_seconds;
                let share = if all > 0.0 {
                    one.busy_seconds / all * 100.0
                } else {
                    0.0
                };
                format!("{share:.0}%")
            })
            .collect();
        lines.push(format!(
            "reactors    {}, busy {} since the start",
            reactors.len(),
            busy.join(" ")
        ));
        let clients = &self.clients.clients;
        let sum = |of: fn(&millrace_admin::status::ClientStatus) -> u64| -> u64 {
            clients.iter().map(of).sum()
        };
        lines.push(format!(
            "clients     {} with {}; {} in flight, {} held back",
            clients.len(),
            count(sum(|one| one.connections), "connection"),
            count(sum(|one| one.credits_used), "request"),
            sum(|one| one.waiting),
        ));
        let paths: Vec<String> = self
            .exports
            .exports
            .iter()
            .map(|one| plain(&one.path))
            .collect();
        lines.push(format!(
            "exports     {}",
            match paths.is_empty() {
                true => "none".to_owned(),
                false => paths.join(" "),
            }
        ));
        for one in &self.exports.exports {
            if one.folder.as_ref().is_some_and(|it| it.acts_as == "server") {
                lines.push(format!(
                    "IDENTITY    {}: all callers act as the server's own user (identity: server)",
                    plain(&one.path)
                ));
            }
        }
        let ((reads, read), (writes, written)) = (self.moved("read"), self.moved("write"));
        let all: u64 = self.operations.iter().map(|one| one.requests).sum();
        let errors: u64 = self.operations.iter().map(|one| one.errors).sum();
        lines.push(format!(
            "requests    {all} since the start{}; {errors} with an error",
            self.rate(all as f64, |rate| format!("{rate:.0}/s"))
        ));
        lines.push(format!(
            "read        {} in {}{}",
            bytes(read),
            count(reads, "request"),
            self.rate(read as f64, |rate| format!("{}/s", bytes(rate as u64)))
        ));
        lines.push(format!(
            "written     {} in {}{}",
            bytes(written),
            count(writes, "request"),
            self.rate(written as f64, |rate| format!("{}/s", bytes(rate as u64)))
        ));
        let pending = &self.pending.restart_required;
        lines.push(match pending.is_empty() {
            true => "restart     nothing waits for one".to_owned(),
            false => {
                let keys: Vec<String> = pending.iter().map(|one| plain(&one.path)).collect();
                format!("RESTART     needed by {}", keys.join(", "))
            }
        });
        if let Some(file) = &self.pending.file {
            let keys: Vec<String> = file.unsaved.iter().map(|one| plain(&one.path)).collect();
            let path = plain(&file.path);
            if let Some(error) = &file.error {
                lines.push(format!("FILE        {path}: {}", plain(error)));
            } else if file.edited {
                lines.push(format!(
                    "FILE        {path}: edited since the server read it"
                ));
            }
            if !keys.is_empty() {
                let keys = keys.join(", ");
                lines.push(format!(
                    "UNSAVED     a restart changes {keys}; see `config diff`"
                ));
            }
        }
        lines.join("\n") + "\n"
    }

    /// The mean since the start, if it is known.
    fn rate(&self, amount: f64, show: impl Fn(f64) -> String) -> String {
        match self.uptime {
            Some(up) if up > 0.0 => format!(" ({} on average)", show(amount / up)),
            _ => String::new(),
        }
    }

    fn json(&self) -> Value {
        let ((reads, read), (writes, written)) = (self.moved("read"), self.moved("write"));
        serde_json::json!({
            "version": self.version,
            "readiness": self.readiness,
            "stalled": self.health.stalled,
            "uptime_seconds": self.uptime,
            "reactors": self.reactors.reactors,
            "clients": self.clients.clients,
            "exports": self.exports.exports,
            "reads": reads,
            "bytes_read": read,
            "writes": writes,
            "bytes_written": written,
            "restart_required": self.pending.restart_required,
            "file": self.pending.file,
        })
    }
}

/// Seconds since the server's start, by its metrics.
fn uptime(metrics: &str) -> Option<f64> {
    let value = metrics.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == START).then(|| value.trim().parse::<f64>().ok())?
    })?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()?
        .as_secs_f64();
    Some((now - value).max(0.0))
}
