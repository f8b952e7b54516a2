//! `millracectl`: shows the state of a running `millraced` and changes its configuration, on the
//! command line.

mod arguments;
mod capture;
mod clients;
mod completion;
mod config;
mod connections;
mod context;
mod drain;
mod events;
mod exports;
mod failure;
mod gateways;
mod gss;
mod listeners;
mod log;
mod nfs4;
mod options;
mod report;
mod summary;
mod support_bundle;
mod table;
mod token;
mod top;
mod views;
mod wait;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;
use context::{Context, print_whole};
use failure::Failure;
use millrace_admin::status::{Operations, Pools, ReactorList, Version};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("millracectl: {failure}");
            failure.exit_code()
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if let Command::Completion { shell } = arguments.command {
        return completion::run(shell);
    }
    if let Command::Token { command } = &arguments.command {
        return token::run(command, arguments.json);
    }
    let context = Context::new(&arguments.options, arguments.json)?;
    match &arguments.command {
        Command::Status => summary::run(&context),
        Command::Version => context.show("/api/v1/version", |version: Version| {
            views::version(&version)
        }),
        Command::Config { command } => config::run(&context, command.as_ref()),
        Command::Exports { command } => exports::run(&context, command.as_ref()),
        Command::Listeners { command } => listeners::run(&context, command.as_ref()),
        Command::Clients { command } => clients::run(&context, command.as_ref()),
        Command::Connections { command } => connections::run(&context, command.as_ref()),
        Command::Nfs4 { command } => nfs4::run(&context, command.as_ref()),
        Command::Gateways { command } => gateways::run(&context, command.as_ref()),
        Command::Gss { command } => gss::run(&context, command.as_ref()),
        Command::Reactors => context.show("/api/v1/reactors", |list: ReactorList| {
            views::reactors(&list.reactors)
        }),
        Command::Pools => context.show("/api/v1/pools", |list: Pools| views::pools(&list.pools)),
        Command::Operations => context.show("/api/v1/operations", |list: Operations| {
            views::operations(&list.operations)
        }),
        Command::Log { command } => log::run(&context, command.as_ref()),
        Command::Drain { command } => drain::run(&context, command.as_ref()),
        Command::Events(options) => events::run(&context, options),
        Command::Top(top) => top::run(&context, top),
        Command::SupportBundle(options) => support_bundle::run(&context, options),
        Command::Metrics => print_whole(&context.get("/metrics")?.body),
        Command::Health => wait::health(&context),
        Command::WaitReady => wait::ready(&context.client, arguments.options.timeout),
        Command::Token { command } => token::run(command, arguments.json),
        Command::Completion { shell } => completion::run(*shell),
    }
}
