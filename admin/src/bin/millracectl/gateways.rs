//! `gateways`: servers of the same files that act as one.

use std::process::ExitCode;

use clap::Subcommand;
use millrace_admin::client::{Method, Order};
use millrace_admin::status::{GatewayList, GatewayTakeover};

use super::context::{Context, encoded};
use super::failure::Failure;
use super::table::{Cell, Table};

const GATEWAYS: &str = "/api/v1/gateways";

const TAKE_OVER_HELP: &str = "\
For a gateway that is gone and whose address leads here from now on. Its sessions in the cluster are
ended, so that it can do no harm if it still runs. Its clients reclaim their opens and locks here; until
they have, at most for the time of a lease, no gateway grants new ones. If it fails because a third
gateway does not answer, and that one is gone, too, take its place first.

With exports of folders that others may change, this gateway cannot keep the other one from writing:
switch that host off, and say so with --fenced. Its clients reclaim nothing there unless it was stopped
in order.";

/// The commands on gateways.
#[derive(Subcommand)]
pub enum GatewayCommand {
    /// All gateways.
    List,
    /// Take the place of a gateway that is gone.
    #[command(after_help = TAKE_OVER_HELP)]
    TakeOver {
        /// Its name.
        name: String,
        /// Somebody has made sure that it is off.
        #[arg(long)]
        fenced: bool,
    },
}

/// Runs the command; without one, lists the gateways.
pub fn run(context: &Context<'_>, command: Option<&GatewayCommand>) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&GatewayCommand::List) {
        GatewayCommand::List => context.show(GATEWAYS, |list: GatewayList| gateways(&list)),
        GatewayCommand::TakeOver { name, fenced } => {
            let path = format!("{GATEWAYS}/{}/take-over?fenced={fenced}", encoded(name));
            let answer = context.ask(&Order::new(Method::Post, path))?;
            context.print_answer(&answer, |taken: GatewayTakeover| match taken.may_reclaim {
                true => format!(
                    "clients of {name} that may reclaim here: {}\n",
                    taken.clients
                ),
                false => format!(
                    "this gateway has the place of {name}; clients reclaim nothing, as others may \
                     have been granted in between what they had\n"
                ),
            })
        }
    }
}

fn gateways(list: &GatewayList) -> String {
    let mut table = Table::new(&["NAME", "STATE", "GRANTS"]);
    for one in &list.gateways {
        let state = match (one.replaced, one.recovers, one.this) {
            (true, ..) => "replaced",
            (_, true, _) => "recovering",
            (.., true) => "this one",
            _ => "other",
        };
        table.row(vec![
            Cell::word(&one.name),
            Cell::word(state),
            Cell::word(if one.grants { "yes" } else { "no" }),
        ]);
    }
    table.render("this server is alone")
}
