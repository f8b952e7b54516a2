//! `millrace-bench`: the requester, load generator and correctness cases on the command line.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use millrace_bench::admin::Admin;
use millrace_bench::cases::Cases;
use millrace_bench::ceiling::Ceiling;
use millrace_bench::changes::Changes;
use millrace_bench::conformance::Conformance;
use millrace_bench::crash::Crash;
use millrace_bench::interrupt;
use millrace_bench::limits::Limits;
use millrace_bench::load::Run;
use millrace_bench::pauses::Pauses;
use millrace_bench::roundtrip::Roundtrip;

/// NFS version 3 over RDMA from user space: copy files, make load, compare with raw TCP.
///
/// The client uses RPC-over-RDMA version one, or version two if enabled (--versions), over software
/// iWARP. It needs no RDMA hardware and no kernel module, and works with any NFS/RDMA server on
/// iWARP. With --fabric verbs it uses the RDMA devices of this machine.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  Copy files and verify them:
    millrace-bench roundtrip --target 127.0.0.1:20049 --mount 127.0.0.1:2049 --export /scratch *.iso
  Measure five loads in five seconds:
    millrace-bench run --preset tour
  Compare with plain TCP:
    millrace-bench ceiling --spawn build/release/millraced
  Test every form of call:
    millrace-bench cases --spawn build/release/millraced
  Measure how soon a changed limit is enforced:
    millrace-bench limits
  Test configuration changes under load:
    millrace-bench changes --spawn build/release/millraced
  Measure the cost of HTTP API clients to the reactors:
    millrace-bench admin --spawn build/release/millraced
  Test durability when the server is killed:
    millrace-bench crash --spawn build/release/millraced
  Measure how long clients wait while a server is restarted:
    millrace-bench pauses --target filer:20049 --mount filer:2049 --export /data
  Use RDMA devices of this machine for both client and server:
    millrace-bench cases --spawn build/release/millraced --fabric verbs --device-address 10.0.0.1
  Test the conformance of a server:
    millrace-bench conformance filer.example --export /scratch

The exit status is 0 for success, 1 for failure, 2 for wrong arguments, and 130 for Ctrl-C, which
also stops the servers that were started.
"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Roundtrip(Box<Roundtrip>),
    Run(Box<Run>),
    Ceiling(Box<Ceiling>),
    Cases(Box<Cases>),
    Conformance(Box<Conformance>),
    Limits(Box<Limits>),
    Changes(Box<Changes>),
    Admin(Box<Admin>),
    Crash(Box<Crash>),
    Pauses(Box<Pauses>),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = interrupt::catch() {
        eprintln!("millrace-bench: signals cannot be caught: {error}");
        return ExitCode::FAILURE;
    }
    let done = match arguments.command {
        Command::Roundtrip(command) => command.run(),
        Command::Run(command) => command.run(),
        Command::Ceiling(command) => command.run(),
        Command::Cases(command) => command.run(),
        Command::Conformance(command) => command.run(),
        Command::Limits(command) => command.run(),
        Command::Changes(command) => command.run(),
        Command::Admin(command) => command.run(),
        Command::Crash(command) => command.run(),
        Command::Pauses(command) => command.run(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("millrace-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
