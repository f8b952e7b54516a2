//! `gss`: contexts of Kerberos.

use std::process::ExitCode;

use clap::Subcommand;
use millrace_admin::client::{Method, Order};
use millrace_admin::status::{GssContexts, GssFlushed};

use super::context::{Context, encoded};
use super::failure::Failure;
use super::table::{Cell, Table, time};

const CONTEXTS: &str = "/api/v1/gss/contexts";

const FLUSH_HELP: &str = "\
Clients make contexts again with their tickets; users and groups are looked up anew then. Calls in
service are finished.";

/// The commands on contexts of Kerberos.
#[derive(Subcommand)]
pub enum GssCommand {
    /// Contexts: principals, the users that they are here, and how long they last.
    List,
    /// End the contexts of a principal, or all.
    #[command(after_help = FLUSH_HELP)]
    Flush {
        /// The principal with its realm, as `gss list` shows it; all if left out.
        principal: Option<String>,
    },
}

/// Runs the command; without one, lists the contexts.
pub fn run(context: &Context<'_>, command: Option<&GssCommand>) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&GssCommand::List) {
        GssCommand::List => context.show(CONTEXTS, |list: GssContexts| contexts(&list)),
        GssCommand::Flush { principal } => {
            let path = match principal {
                Some(principal) => format!("{CONTEXTS}?principal={}", encoded(principal)),
                None => CONTEXTS.to_owned(),
            };
            let answer = context.ask(&Order::new(Method::Delete, path))?;
            context.print_answer(&answer, |flushed: GssFlushed| {
                format!("{} contexts have ended\n", flushed.ended)
            })
        }
    }
}

fn contexts(list: &GssContexts) -> String {
    let mut table = Table::new(&[
        "PRINCIPAL",
        "UID",
        "GROUPS",
        "CLIENT",
        "ENCTYPE",
        "IDLE",
        "LEFT",
    ]);
    for one in &list.contexts {
        table.row(vec![
            Cell::word(&one.principal),
            Cell::maybe(one.uid),
            Cell::number(one.groups),
            Cell::word(&one.client),
            Cell::word(&one.enctype),
            Cell::number(time(one.idle_seconds)),
            Cell::number(time(one.left_seconds)),
        ]);
    }
    let shown = list.contexts.len() as u64;
    let more = match list.total - shown.min(list.total) {
        0 => String::new(),
        more => format!("and {more} that have been idle for longer\n"),
    };
    table.render("no contexts") + &more
}
