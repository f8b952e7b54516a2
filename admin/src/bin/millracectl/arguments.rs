//! The command line.

use clap::{Parser, Subcommand};

use super::completion::Shell;
use super::options::Options;
use super::{
    clients, config, connections, drain, events, exports, gateways, gss, listeners, log, nfs4,
    support_bundle, token, top,
};

const AFTER_HELP: &str = "\
Examples:
  millracectl status                      the state of the server, on one page
  millracectl top                         the same, live: reactors, clients, connections, rates
  millracectl events                      what happens, as it happens
  millracectl connections                 connected clients and their throughput
  millracectl --json connections | jq .   the same for scripts
  millracectl config > now.yaml           the configuration, with all defaults
  millracectl config set flow.credits=64 --dry-run
  millracectl config edit                 the configuration in your editor
  millracectl clients limit 10.0.0.7 --bandwidth 200MiB/s
  millracectl drain start --deadline 30s --wait
  millracectl wait-ready --timeout 20s    for scripts that start a server

The address is `admin.listen` of the server's configuration, or unix: and `admin.socket`; https
needs --ca, and --cert and --key if the server requires them. Durations have us, ms, s, m or h.
Changes need the server's token, except from root over the socket. It is read from a file and never
shown. The default file is used if it can be read, and only for a server on this host or over
https.
The guide for operators is at /docs/ of the server's address, such as http://127.0.0.1:9620/docs/.
A change is refused if another client has changed the configuration since millracectl read it.
Exit status: 0 on success, 1 if the server is not healthy, not ready or refuses, or a configuration
is not valid, 2 if the server cannot be reached or the command line is wrong.";

/// Show the state of a running millraced, and change its configuration.
#[derive(Parser)]
#[command(name = "millracectl", version, after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(flatten)]
    pub options: Options,
    /// Print the server's response in JSON, for programs.
    #[arg(
        id = "print_json",
        long = "json",
        global = true,
        help_heading = "Output"
    )]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
#[derive(Subcommand)]
pub enum Command {
    /// An overview of the server on one page; the exit status is that of health.
    Status,
    /// The version of the server.
    Version,
    /// The configuration: show, set, edit, diff, apply, history, rollback.
    Config {
        #[command(subcommand)]
        command: Option<config::ConfigCommand>,
    },
    /// Exported trees: list, add, remove.
    Exports {
        #[command(subcommand)]
        command: Option<exports::ExportsCommand>,
    },
    /// Listeners for RDMA connections: list, add, remove.
    Listeners {
        #[command(subcommand)]
        command: Option<listeners::ListenersCommand>,
    },
    /// Clients, summed over their connections: list, show, limit, unlimit, evict, ban, unban, bans.
    Clients {
        #[command(subcommand)]
        command: Option<clients::ClientsCommand>,
    },
    /// Connections of clients: list, show, evict, capture.
    #[command(after_help = connections::COLUMNS)]
    Connections {
        #[command(subcommand)]
        command: Option<connections::ConnectionsCommand>,
    },
    /// NFS version 4: clients, opens, locks and delegations, the grace period.
    Nfs4 {
        #[command(subcommand)]
        command: Option<nfs4::Nfs4Command>,
    },
    /// Kerberos: contexts of users; end them.
    Gss {
        #[command(subcommand)]
        command: Option<gss::GssCommand>,
    },
    /// Gateways to the same files: their state; take the place of one that is gone.
    Gateways {
        #[command(subcommand)]
        command: Option<gateways::GatewayCommand>,
    },
    /// Reactors (the pinned loops): load, longest turn.
    Reactors,
    /// Buffers of each reactor: total, in use, waiting requests.
    Pools,
    /// Procedures of NFS and MOUNT: requests, errors, bytes, latency.
    Operations,
    /// The filter of the server's log: show, set.
    Log {
        #[command(subcommand)]
        command: Option<log::LogCommand>,
    },
    /// Take the server out of service: start, status, cancel.
    Drain {
        #[command(subcommand)]
        command: Option<drain::DrainCommand>,
    },
    /// What happens, as it happens: changes, clients, drains, bans, trouble.
    #[command(after_help = events::HELP)]
    Events(events::Events),
    /// The state of the server, live.
    #[command(after_help = top::HELP)]
    Top(top::Top),
    /// Metrics, in the text format of Prometheus.
    Metrics,
    /// Write what others need to understand a problem into an archive: state, configuration, log.
    #[command(after_help = support_bundle::HELP)]
    SupportBundle(support_bundle::SupportBundle),
    /// Health and readiness; exit status 1 if the server is not healthy or not ready.
    Health,
    /// Wait until clients are served, for 30s or --timeout.
    WaitReady,
    /// Tokens with roles: new.
    Token {
        #[command(subcommand)]
        command: token::TokenCommand,
    },
    /// Print a shell's completion script for millracectl.
    #[command(after_help = "\
Examples:
  millracectl completion bash > /etc/bash_completion.d/millracectl
  millracectl completion zsh > ~/.zfunc/_millracectl
  millracectl completion fish > ~/.config/fish/completions/millracectl.fish")]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_its_help_teaches() {
        Arguments::command().debug_assert();
        let help = Arguments::command().render_long_help().to_string();
        for word in [
            "connections",
            "--json",
            "--address",
            "--token-file",
            "MILLRACE_TOKEN_FILE",
            "Examples:",
            "Exit status:",
            "9620",
        ] {
            assert!(help.contains(word), "no {word} in:\n{help}");
        }
    }

    #[test]
    fn every_command_says_what_it_is_for() {
        fn visit(command: &clap::Command) {
            for inner in command.get_subcommands() {
                let name = inner.get_name();
                assert!(name == "help" || inner.get_about().is_some(), "{name}");
                visit(inner);
            }
        }
        visit(&Arguments::command());
    }

    #[test]
    fn no_argument_of_a_command_takes_the_place_of_a_global_option() {
        fn visit(command: &clap::Command, global: &[String]) {
            for argument in command.get_arguments() {
                let id = argument.get_id().to_string();
                let same = global.contains(&id) && !argument.is_global_set();
                assert!(!same, "{id} of {}", command.get_name());
            }
            for inner in command.get_subcommands() {
                visit(inner, global);
            }
        }
        let all = Arguments::command();
        let global = all
            .get_arguments()
            .filter(|argument| argument.is_global_set());
        let global: Vec<String> = global
            .map(|argument| argument.get_id().to_string())
            .collect();
        assert_eq!(global.len(), 8);
        visit(&all, &global);
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [
            ["millracectl", "--json", "pools", "--address=http://[::1]:1"],
            ["millracectl", "--address=http://[::1]:1", "pools", "--json"],
        ] {
            let arguments = Arguments::try_parse_from(line).unwrap();
            assert!(
                arguments.json && arguments.options.address.as_deref() == Some("http://[::1]:1")
            );
        }
        for bad in [
            &["wait-ready", "--timeout", "9"][..],
            &["clients", "limit", "10.0.0.1"],
            &["clients", "show", "nobody"],
            &["exports", "add", "/a"],
            &["exports", "add", "/a", "--memory", "1GiB", "--posix", "/a"],
            &[
                "exports", "add", "/a", "--memory", "1GiB", "--sync", "relaxed",
            ],
            &["exports", "add", "/a", "--posix", "/a", "--direct", "maybe"],
            &["exports", "add", "/a", "--posix", "/a", "--inodes", "9"],
            &["config", "set"],
            &["--token", "s3cret", "version"],
        ] {
            let line = ["millracectl"].iter().chain(bad);
            assert!(Arguments::try_parse_from(line).is_err(), "{bad:?}");
        }
    }
}
