//! `nfs4`: clients of NFS version 4, their opens, locks and delegations, and the grace period.

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use millrace_admin::client::{Method, Order};
use millrace_admin::status::{
    GraceStatus, Nfs4Access, Nfs4Callbacks, Nfs4Client, Nfs4Clients, Nfs4Revocation, Nfs4State,
    Nfs4StateKind, Nfs4States,
};

use super::context::{Context, encoded};
use super::failure::Failure;
use super::table::{Cell, Table, count, fields, plain, time};

/// The paths of the API.
const CLIENTS: &str = "/api/v1/nfs4/clients";
const STATES: &str = "/api/v1/nfs4/states";
const GRACE: &str = "/api/v1/nfs4/grace";

const CLIENTS_HELP: &str = "\
CALLBACKS  whether the server can call the client: up, down, faulty, never offered
LEASE      what is left of it; `silent 5min` since it ran out: others may take the state then
LOCKS      locked ranges
REVOKED    state taken away, of which the client has not taken note
";

const STATES_HELP: &str = "\
Examples:
  millracectl nfs4 states --kind lock --export /data
  millracectl nfs4 states --client 5f2a9c0000000001

FILE is the file as the export's store names it. ALLOWS is what an open or a delegation allows, DENIES
what an open denies to others. RANGES are bytes, such as 0-99w (exclusive) and 100-r (shared, to the
end).";

const END_HELP: &str = "\
The client's sessions, opens, locks and delegations are gone at once, and others may have what they
blocked. A client that still lives begins anew, without its locks: its programs get errors where they
had some.";

const REVOKE_HELP: &str = "\
An open and its locks are revoked together. The client is told with its next request; its programs get
errors where they use what is revoked.";

/// The commands on the state of NFS version 4's clients.
#[derive(Subcommand)]
pub enum Nfs4Command {
    /// Clients: who they are, and how much they have.
    #[command(after_help = CLIENTS_HELP)]
    Clients(Page),
    /// One client.
    Client {
        /// Its ID, as `nfs4 clients` shows it.
        id: String,
    },
    /// Opens, locks and delegations: who has them, on what, since when.
    #[command(after_help = STATES_HELP)]
    States(States),
    /// End a client with all it has.
    #[command(after_help = END_HELP)]
    End {
        /// Its ID, as `nfs4 clients` shows it.
        id: String,
        /// Also if it has open files, locks or delegations, without asking.
        #[arg(long)]
        force: bool,
    },
    /// Revoke an open with its locks, or a delegation.
    #[command(after_help = REVOKE_HELP)]
    Revoke {
        /// Its stateid, as `nfs4 states` shows it.
        stateid: String,
    },
    /// The grace period after a start: how long, and which clients it waits for.
    Grace,
    /// End the grace period. What has not been reclaimed is lost.
    EndGrace,
}

/// A part of a list.
#[derive(Args, Default)]
pub struct Page {
    /// Where to go on, as the list before says.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: u32,
    /// The most lines.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: u16,
}

/// Which states are listed.
#[derive(Args)]
pub struct States {
    /// Of this client only.
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Of this kind only.
    #[arg(long)]
    kind: Option<Kind>,
    /// Of this export only.
    #[arg(long, value_name = "PATH")]
    export: Option<String>,
    #[command(flatten)]
    page: Page,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Open,
    Lock,
    Delegation,
    Revoked,
}

/// Runs the command; without one, lists the clients.
pub fn run(context: &Context<'_>, command: Option<&Nfs4Command>) -> Result<ExitCode, Failure> {
    let usual = Nfs4Command::Clients(Page {
        after: 0,
        limit: 100,
    });
    match command.unwrap_or(&usual) {
        Nfs4Command::Clients(page) => {
            let path = format!("{CLIENTS}?{}", page.query());
            context.show(&path, |list: Nfs4Clients| clients(&list))
        }
        Nfs4Command::Client { id } => {
            let path = format!("{CLIENTS}/{}", encoded(id));
            context.show(&path, |one: Nfs4Client| client(&one))
        }
        Nfs4Command::States(wanted) => {
            let path = format!("{STATES}?{}", wanted.query());
            context.show(&path, |list: Nfs4States| states(&list))
        }
        Nfs4Command::End { id, force } => {
            let path = format!("{CLIENTS}/{}", encoded(id));
            context.ask_or_force(&Order::new(Method::Delete, path), &mut { *force })?;
            context.done(&format!("client {id} is gone\n"))
        }
        Nfs4Command::Revoke { stateid } => {
            context.ask(&Order::new(
                Method::Delete,
                format!("{STATES}/{}", encoded(stateid)),
            ))?;
            context.done(&format!("{stateid} is revoked\n"))
        }
        Nfs4Command::Grace => context.show(GRACE, |status: GraceStatus| grace(&status)),
        Nfs4Command::EndGrace => {
            context.ask(&Order::new(Method::Delete, GRACE))?;
            context.done("the grace period has ended\n")
        }
    }
}

impl Page {
    fn query(&self) -> String {
        format!("after={}&limit={}", self.after, self.limit)
    }
}

impl States {
    fn query(&self) -> String {
        let mut query = self.page.query();
        let kind = self.kind.map(|kind| match kind {
            Kind::Open => "open",
            Kind::Lock => "lock",
            Kind::Delegation => "delegation",
            Kind::Revoked => "revoked",
        });
        for (name, value) in [
            ("client", self.client.as_deref()),
            ("kind", kind),
            ("export", self.export.as_deref()),
        ] {
            if let Some(value) = value {
                let _ = write!(query, "&{name}={}", encoded(value));
            }
        }
        query
    }
}

fn clients(list: &Nfs4Clients) -> String {
    let mut table = Table::new(&[
        "ID",
        "ADDRESS",
        "MINOR",
        "CALLBACKS",
        "LEASE",
        "AGE",
        "OPENS",
        "LOCKS",
        "DELEGATIONS",
        "REVOKED",
        "OWNER",
    ]);
    for one in &list.clients {
        table.row(vec![
            Cell::word(&one.id),
            Cell::word(one.address.as_deref().unwrap_or("-")),
            Cell::maybe(one.minor_version),
            Cell::word(callbacks(one.callbacks)),
            Cell::word(&lease(one)),
            Cell::number(time(one.age_seconds)),
            Cell::number(one.opens),
            Cell::number(one.locked_ranges),
            Cell::number(one.delegations),
            Cell::number(one.revoked),
            Cell::word(&one.owner),
        ]);
    }
    table.render("no clients") + &more(list.next)
}

fn more(next: Option<u32>) -> String {
    next.map_or_else(String::new, |next| format!("more with --after {next}\n"))
}

fn lease(one: &Nfs4Client) -> String {
    match one.silent_seconds {
        Some(silent) => format!("silent {}", time(silent)),
        None => time(one.lease_left_seconds),
    }
}

fn callbacks(state: Nfs4Callbacks) -> &'static str {
    match state {
        Nfs4Callbacks::Up => "up",
        Nfs4Callbacks::Down => "down",
        Nfs4Callbacks::Faulty => "faulty",
        Nfs4Callbacks::Never => "never",
    }
}

fn client(one: &Nfs4Client) -> String {
    let yes = |is: bool| (if is { "yes" } else { "no" }).to_owned();
    let connections: Vec<String> = one.connections.iter().map(u64::to_string).collect();
    let courtesy = one.courtesy_left_seconds;
    fields(&[
        ("id", plain(&one.id)),
        ("owner", plain(&one.owner)),
        ("address", plain(one.address.as_deref().unwrap_or("-"))),
        (
            "version",
            one.minor_version
                .map_or_else(|| "-".to_owned(), |minor| format!("4.{minor}")),
        ),
        ("confirmed", yes(one.confirmed)),
        ("age", time(one.age_seconds)),
        ("lease", lease(one)),
        ("state kept", courtesy.map_or_else(|| "-".to_owned(), time)),
        ("callbacks", callbacks(one.callbacks).to_owned()),
        ("sessions", one.sessions.to_string()),
        ("connections", connections.join(" ")),
        ("reclaims", yes(one.reclaims)),
        ("recorded", yes(one.recorded)),
        ("opens", one.opens.to_string()),
        (
            "locks",
            format!(
                "{} of {}",
                count(one.locked_ranges, "range"),
                count(one.lock_owners, "owner")
            ),
        ),
        ("delegations", one.delegations.to_string()),
        ("revoked", one.revoked.to_string()),
    ])
}

fn states(list: &Nfs4States) -> String {
    let mut table = Table::new(&[
        "STATEID", "KIND", "CLIENT", "ADDRESS", "AGE", "ALLOWS", "DENIES", "RANGES", "EXPORT",
        "FILE", "OWNER",
    ]);
    for one in &list.states {
        table.row(vec![
            Cell::word(&one.stateid),
            Cell::word(kind(one)),
            Cell::word(&one.client),
            Cell::word(one.address.as_deref().unwrap_or("-")),
            Cell::number(time(one.age_seconds)),
            Cell::word(one.access.map_or("-", access)),
            Cell::word(one.deny.map_or("-", access)),
            Cell::word(&ranges(one)),
            Cell::word(one.export.as_deref().unwrap_or("-")),
            Cell::word(&one.file),
            Cell::word(one.owner.as_deref().unwrap_or("-")),
        ]);
    }
    table.render("no state") + &more(list.next)
}

fn kind(one: &Nfs4State) -> &'static str {
    match (one.kind, one.recalled_seconds, one.revocation) {
        (Nfs4StateKind::Open, ..) => "open",
        (Nfs4StateKind::Lock, ..) => "lock",
        (Nfs4StateKind::Delegation, None, _) => "delegation",
        (Nfs4StateKind::Delegation, Some(_), _) => "delegation, recalled",
        (Nfs4StateKind::Revoked, _, Some(Nfs4Revocation::LeaseExpired)) => "revoked, lease expired",
        (Nfs4StateKind::Revoked, _, Some(Nfs4Revocation::NotReturned)) => "revoked, not returned",
        (Nfs4StateKind::Revoked, ..) => "revoked",
    }
}

fn access(mode: Nfs4Access) -> &'static str {
    match mode {
        Nfs4Access::None => "none",
        Nfs4Access::Read => "read",
        Nfs4Access::Write => "write",
        Nfs4Access::Both => "both",
    }
}

/// The first ranges, as people read them.
fn ranges(one: &Nfs4State) -> String {
    const SHOWN: usize = 3;
    if one.kind != Nfs4StateKind::Lock {
        return "-".to_owned();
    }
    let mut words: Vec<String> = one
        .ranges
        .iter()
        .take(SHOWN)
        .map(|range| {
            let mode = if range.exclusive { 'w' } else { 'r' };
            let last = range.length.map(|length| {
                let last = range.offset.saturating_add(length.saturating_sub(1));
                last.to_string()
            });
            format!("{}-{}{mode}", range.offset, last.unwrap_or_default())
        })
        .collect();
    let rest = one.range_count.saturating_sub(words.len() as u64);
    if rest > 0 {
        words.push(format!("and {rest} more"));
    }
    if one.waiting > 0 {
        words.push(format!("({} waiting)", one.waiting));
    }
    words.join(" ")
}

fn grace(status: &GraceStatus) -> String {
    if !status.active {
        return "no grace period: new opens and locks are granted\n".to_owned();
    }
    let mut text = format!(
        "grace period: {} left at most, waits for {}\n",
        time(status.left_seconds),
        count(status.waits_for, "client")
    );
    for one in &status.awaited {
        let state = one.client.as_ref().map_or_else(
            || "has not returned".to_owned(),
            |id| format!("reclaims as {}", plain(id)),
        );
        let _ = writeln!(text, "  {}: {state}", plain(&one.owner));
    }
    let rest = status.waits_for.saturating_sub(status.awaited.len() as u64);
    if rest > 0 {
        let _ = writeln!(text, "  and {rest} more");
    }
    text
}
