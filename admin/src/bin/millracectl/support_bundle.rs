//! `support-bundle`: what others need to understand a problem, in one archive that can be read before
//! it is sent.

use std::cmp::Reverse;
use std::fmt::{Display, Write as _};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use millrace_admin::client::Client;
use millrace_admin::status::Connections;
use serde_json::{Value, json};

use super::context::{Context, encoded, print, print_whole};
use super::failure::Failure;
use super::summary;
use super::table::{count, when};

pub const HELP: &str = "\
The archive has plain text and JSON: versions, configuration, its history and what waits for a
restart, status, metrics, exports, listeners, clients and connections, the clients of NFS version 4,
devices and the plan of memory, facts of this host, and the end of the log. `contents.txt` lists
what is in it, and what could not be had and why. It has no token, key or keytab, and nothing of the
exports' files; it has addresses of clients, and names of exports and users. Read it before you send
it. It is also made if the server does not answer.";

/// The most bytes of a file. Of longer ones the end is kept.
const BYTES_MAX: usize = 8 << 20;

/// Options of `support-bundle`.
#[derive(Args)]
pub struct SupportBundle {
    /// The archive, a .tar.gz [default: millrace-support-TIME.tar.gz]. It must not exist yet.
    file: Option<PathBuf>,
    /// The server's unit, for its log.
    #[arg(long, value_name = "NAME", default_value = "millrace")]
    unit: String,
}

/// What the server is asked: the file for each answer, its path, and what it is.
const QUESTIONS: [(&str, &str, &str); 22] = [
    ("version.json", "/api/v1/version", "version of the server"),
    ("config.yaml", "/api/v1/config?format=yaml", "configuration"),
    (
        "config-history.json",
        "/api/v1/config/history",
        "its changes since the start",
    ),
    (
        "config-pending.json",
        "/api/v1/config/pending",
        "what waits for a restart",
    ),
    ("health.json", "/healthz", "health"),
    ("readiness.json", "/readyz", "readiness"),
    ("metrics.txt", "/metrics", "metrics"),
    (
        "exports.json",
        "/api/v1/exports",
        "exports and their stores",
    ),
    ("listeners.json", "/api/v1/listeners", "listeners"),
    ("clients.json", "/api/v1/clients", "clients"),
    ("connections.json", "/api/v1/connections", "connections"),
    ("bans.json", "/api/v1/bans", "banned addresses"),
    ("reactors.json", "/api/v1/reactors", "reactors"),
    ("pools.json", "/api/v1/pools", "buffers"),
    (
        "operations.json",
        "/api/v1/operations",
        "requests by procedure",
    ),
    (
        "figures.json",
        "/api/v1/figures",
        "figures of the last hour",
    ),
    ("drain.json", "/api/v1/drain", "drain"),
    ("log-filter.json", "/api/v1/log", "filter of the log"),
    (
        "nfs4-clients.json",
        "/api/v1/nfs4/clients?limit=1000",
        "clients of NFS version 4",
    ),
    (
        "nfs4-grace.json",
        "/api/v1/nfs4/grace",
        "grace period of NFS version 4",
    ),
    ("gateways.json", "/api/v1/gateways", "gateways"),
    ("gss.json", "/api/v1/gss/contexts", "contexts of Kerberos"),
];

/// Lists of the server of which the figures of single items are asked: the file for them, the file of
/// the list, its field, the field of an item's name, the key of the query, and what it is.
const HISTORIES: [(&str, &str, &str, &str, &str, &str); 2] = [
    (
        "figures-exports.json",
        "exports.json",
        "exports",
        "path",
        "export",
        "figures of the busiest exports",
    ),
    (
        "figures-clients.json",
        "clients.json",
        "clients",
        "address",
        "client",
        "figures of the busiest clients",
    ),
];

/// Most items of such a list.
const HISTORIES_MAX: usize = 16;

/// Files of this host, with their names in the archive.
const FACTS: [(&str, &str, &str); 8] = [
    ("host/kernel.txt", "/proc/version", "kernel"),
    ("host/system.txt", "/etc/os-release", "distribution"),
    ("host/memory.txt", "/proc/meminfo", "memory and huge pages"),
    ("host/processors.txt", "/proc/cpuinfo", "processors"),
    (
        "host/processors-online.txt",
        "/sys/devices/system/cpu/online",
        "processors online",
    ),
    (
        "host/processors-isolated.txt",
        "/sys/devices/system/cpu/isolated",
        "isolated processors",
    ),
    ("host/load.txt", "/proc/loadavg", "load"),
    ("host/network.txt", "/proc/net/dev", "network devices"),
];

/// Makes the archive.
pub fn run(context: &Context<'_>, options: &SupportBundle) -> Result<ExitCode, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let digits: String = when(now as f64)
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    let name = format!("millrace-support-{digits}");
    let usual = || PathBuf::from(format!("{name}.tar.gz"));
    let path = options.file.clone().unwrap_or_else(usual);
    let refused = |error: io::Error| Failure::usage(format!("{}: {error}", path.display()));
    // Before anything is asked: it may not be possible.
    check_place(&path).map_err(refused)?;
    let mut bundle = Bundle {
        client: &context.client,
        parts: Vec::new(),
        missing: Vec::new(),
    };
    bundle.ask_server(context);
    if context.client.is_local() {
        bundle.ask_host(context.config_file(), &options.unit);
    } else {
        let reason = "the server is on another host; run this there";
        bundle.missing("host, devices, plan, log", &reason);
    }
    let contents = bundle.contents(context, now);
    bundle.parts.insert(
        0,
        Part {
            name: "contents.txt".to_owned(),
            what: "this list",
            bytes: contents.into_bytes(),
        },
    );
    // Only now, so that one who interrupts this leaves no part of an archive. It is for its owner
    // only.
    let mut made = OpenOptions::new();
    made.write(true).create_new(true).mode(0o600);
    let file = made.open(&path).map_err(refused)?;
    bundle.write(file, &name, now)?;
    bundle.report(context, &path)
}

/// Whether a file can be made there.
fn check_place(path: &Path) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
}

struct Bundle<'a> {
    client: &'a Client,
    parts: Vec<Part>,
    missing: Vec<(String, String)>,
}

struct Part {
    name: String,
    what: &'static str,
    bytes: Vec<u8>,
}

impl Bundle<'_> {
    fn add(&mut self, name: &str, what: &'static str, bytes: &[u8]) {
        let start = bytes.len().saturating_sub(BYTES_MAX);
        // Nothing of the server has the token; a log that others write to may.
        let text = String::from_utf8_lossy(&bytes[start..]);
        let text = self.client.without_token(&text);
        self.parts.push(Part {
            name: name.to_owned(),
            what,
            bytes: text.into_bytes(),
        });
    }

    fn missing(&mut self, name: &str, reason: &dyn Display) {
        self.missing.push((name.to_owned(), reason.to_string()));
    }

    fn ask_server(&mut self, context: &Context<'_>) {
        for (name, path, what) in QUESTIONS {
            match context.client.get(path) {
                // Health and readiness answer 503 with a state as well.
                Ok(answer) if answer.is_success() || answer.status == 503 => {
                    self.add(name, what, answer.body.as_bytes());
                }
                Ok(answer) => self.missing(name, &format!("the server answers {}", answer.status)),
                Err(error) => {
                    // One that does not answer is asked no further.
                    return self.missing(&format!("{name} and all else of the server"), &error);
                }
            }
        }
        for (name, list, field, key, query, what) in HISTORIES {
            let names = self.busiest(list, field, key);
            match self.histories(&names, query) {
                Ok(text) => self.add(name, what, text.as_bytes()),
                Err(reason) => self.missing(name, &reason),
            }
        }
        match summary::text(context) {
            Ok(text) => self.add("status.txt", "overview", text.as_bytes()),
            Err(failure) => self.missing("status.txt", &failure),
        }
    }

    /// The names of the items of a list with the most requests.
    fn busiest(&self, list: &str, field: &str, key: &str) -> Vec<String> {
        let part = self.parts.iter().find(|part| part.name == list);
        let list = part.and_then(|part| serde_json::from_slice::<Value>(&part.bytes).ok());
        let mut items = match list {
            Some(mut list) => match list[field].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            },
            None => Vec::new(),
        };
        items.sort_by_key(|item| Reverse(item["requests"].as_u64()));
        let names = items.iter().filter_map(|item| item[key].as_str());
        names.take(HISTORIES_MAX).map(str::to_owned).collect()
    }

    /// The figures of single items, by their names.
    fn histories(&self, names: &[String], query: &str) -> Result<String, String> {
        let mut all = serde_json::Map::new();
        for name in names {
            let path = format!("/api/v1/figures?{query}={}", encoded(name));
            let answer = self.client.get(&path).map_err(|error| error.to_string())?;
            if !answer.is_success() {
                return Err(format!("the server answers {}", answer.status));
            }
            let figures = serde_json::from_str(&answer.body).map_err(|error| error.to_string())?;
            all.insert(name.clone(), figures);
        }
        Ok(Value::Object(all).to_string())
    }

    fn ask_host(&mut self, config: &Path, unit: &str) {
        for (name, path, what) in FACTS {
            match fs::read(path) {
                Ok(bytes) => self.add(name, what, &bytes),
                Err(error) => self.missing(name, &format!("{path}: {error}")),
            }
        }
        let millraced = beside("millraced");
        let config = config.display().to_string();
        // The load that there is: 128 calls at once are the most of a Linux client.
        let connections = self
            .parts
            .iter()
            .find(|part| part.name == "connections.json");
        let connections = connections.map(|part| serde_json::from_slice(&part.bytes));
        let connections = match connections {
            Some(Ok(Connections { connections, .. })) => connections.len().max(1),
            _ => 1,
        };
        let connections = connections.to_string();
        for (name, what, program, arguments) in [
            (
                "millraced.txt",
                "program of the server",
                millraced.as_str(),
                &["--version"][..],
            ),
            ("devices.txt", "RDMA devices", &millraced, &["devices"]),
            (
                "plan.txt",
                "plan of memory",
                &millraced,
                &[
                    "plan",
                    "--connections",
                    &connections,
                    "--depth",
                    "128",
                    "--config",
                    &config,
                ],
            ),
            (
                "log.txt",
                "the last 2000 lines of the log",
                "journalctl",
                &[
                    "--no-pager",
                    "--output",
                    "short-iso",
                    "--unit",
                    unit,
                    "--lines",
                    "2000",
                ],
            ),
        ] {
            match output(program, arguments) {
                Ok(bytes) => self.add(name, what, &bytes),
                Err(reason) => self.missing(name, &reason),
            }
        }
    }

    fn contents(&self, context: &Context<'_>, now: u64) -> String {
        let (authority, version) = (context.client.authority(), env!("CARGO_PKG_VERSION"));
        let mut text = format!(
            "Made by millracectl {version} for the server at {authority}, {}.\n\n",
            when(now as f64)
        );
        for part in &self.parts {
            let (name, what, bytes) = (&part.name, part.what, part.bytes.len());
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<28} {bytes:>9} bytes  {what}");
        }
        for (name, reason) in &self.missing {
            let _ = writeln!(text, "{name:<28}   MISSING        {reason}");
        }
        text
    }

    fn write(&self, file: fs::File, folder: &str, now: u64) -> Result<(), Failure> {
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        for part in &self.parts {
            let mut header = tar::Header::new_gnu();
            header.set_size(part.bytes.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(now);
            let path = format!("{folder}/{}", part.name);
            archive.append_data(&mut header, path, part.bytes.as_slice())?;
        }
        let mut file = archive.into_inner()?.finish()?;
        file.flush()?;
        Ok(())
    }

    fn report(&self, context: &Context<'_>, path: &Path) -> Result<ExitCode, Failure> {
        if context.json {
            let files: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
            let missing = self.missing.iter();
            let missing: Vec<_> = missing
                .map(|(name, reason)| json!({ "file": name, "reason": reason }))
                .collect();
            let all = json!({ "archive": path, "files": files, "missing": missing });
            return print_whole(&all.to_string());
        }
        let files = count(self.parts.len() as u64, "file");
        let mut text = format!("{}: {files}\n", path.display());
        for (name, reason) in &self.missing {
            let _ = writeln!(text, "without {name}: {reason}");
        }
        text.push_str(
            "It has addresses of clients, and names of exports and users. Read it before you send \
             it.\n",
        );
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The program beside this one, as packages install them; else the one of `PATH`.
fn beside(name: &str) -> String {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.with_file_name(name);
    match beside.is_file() {
        true => beside.display().to_string(),
        false => name.to_owned(),
    }
}

/// What a program prints, or why it does not.
fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let mut command = Command::new(program);
    let ran = command.args(arguments).stdin(Stdio::null()).output();
    let output = ran.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("there is no program {program}"),
        _ => format!("{program}: {error}"),
    })?;
    let told = String::from_utf8_lossy(&output.stderr);
    // A plan that says that the configuration is too small ends with 1.
    match output.status.success() || !output.stdout.is_empty() {
        true => Ok(output.stdout),
        false => {
            let line = told.lines().next().unwrap_or("no reason given");
            Err(format!("{program} ends with {}: {line}", output.status))
        }
    }
}
