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
use millrace_bench::roundtrip::Roundtrip;

/// NFS version 3 over RDMA from user space: copy files, make load, compare with raw TCP.
///
/// The client speaks RPC-over-RDMA version one, and version two where it is told to (--versions),
/// over software iWARP, so it needs no RDMA hardware and no kernel module, and works against any
/// NFS/RDMA server on iWARP. With --fabric verbs it speaks through the RDMA devices of this
/// machine.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  Does my data survive?
    millrace-bench roundtrip --target 127.0.0.1:20049 --mount 127.0.0.1:2049 --export /scratch *.iso
  What does it do, in five seconds?
    millrace-bench run --preset tour
  How near is that to plain TCP?
    millrace-bench ceiling --spawn build/release/millraced
  Is every form of call served as it should be?
    millrace-bench cases --spawn build/release/millraced
  How soon does a changed limit hold?
    millrace-bench limits
  Do changes of the configuration disturb anybody?
    millrace-bench changes --spawn build/release/millraced
  What do clients of the HTTP API cost the reactors?
    millrace-bench admin --spawn build/release/millraced
  Is anything lost when the server is killed?
    millrace-bench crash --spawn build/release/millraced
  And over RDMA devices, from one of this machine to its own?
    millrace-bench cases --spawn build/release/millraced --fabric verbs --device-address 10.0.0.1
  Which requirements of the protocols does that server keep?
    millrace-bench conformance filer.example --export /scratch

The status is 0 for success, 1 for anything else, 2 for wrong arguments, and 130 for Ctrl-C, which
also ends the servers that were started.
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
