//! `log`: the filter of the server's log.

use std::process::ExitCode;

use clap::Subcommand;
use millrace_admin::client::{Method, Order};
use millrace_admin::status::LogFilter;

use super::context::{CommandChangeOptions, Context};
use super::failure::Failure;
use super::table::plain;

/// The path of the filter.
const PATH: &str = "/api/v1/log";

const SET_HELP: &str = "\
Examples:
  millracectl log set info,millrace::nfs3=debug
  millracectl log set info";

/// The commands on the log.
#[derive(Subcommand)]
pub enum LogCommand {
    /// The filter of the log.
    Show,
    /// Change the filter of the log.
    #[command(after_help = SET_HELP)]
    Set {
        /// error, warn, info, debug or trace, for all modules or by module.
        filter: String,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
}

/// Runs the command; without one, shows the filter.
pub fn run(context: &Context<'_>, command: Option<&LogCommand>) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&LogCommand::Show) {
        LogCommand::Show => {
            context.show(PATH, |log: LogFilter| format!("{}\n", plain(&log.filter)))
        }
        LogCommand::Set { filter, options } => {
            let filter = LogFilter {
                filter: filter.clone(),
            };
            let order = Order::new(Method::Put, PATH)
                .with_body("application/json", serde_json::to_vec(&filter)?);
            context.change(order, *options)
        }
    }
}
