//! `millraced devices`: the RDMA devices of this machine.

use std::io::{self, Write};
use std::process::ExitCode;

use millrace::service::devices;

/// List the RDMA devices of this machine: ports, addresses, limits and features.
///
/// Ends with status 1 if there are none, or they cannot be used.
#[derive(clap::Args)]
pub struct DevicesArguments {}

/// Prints them.
pub fn print(_arguments: &DevicesArguments) -> ExitCode {
    match devices::describe(None) {
        Ok(text) => {
            // A closed pipe is no error.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("millraced: {why}");
            ExitCode::FAILURE
        }
    }
}
