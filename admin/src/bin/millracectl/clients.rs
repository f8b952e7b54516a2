//! `clients`: addresses, summed over their connections.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use millrace_admin::client::{Method, Order};
use millrace_admin::config::{Bandwidth, format_duration};
use millrace_admin::status::{BanOrder, Bans, ClientStatus, Clients, Evicted, RateLimits};

use super::context::{CommandChangeOptions, Context, encoded};
use super::failure::Failure;
use super::options::duration;
use super::table::count;
use super::views;

/// The path of the clients.
const PATH: &str = "/api/v1/clients";

const LIMIT_HELP: &str = "\
Examples:
  millracectl clients limit 10.0.0.7 --iops 5000
  millracectl clients limit 10.0.0.7 --bandwidth 200MiB/s --persist

Applies at once to all connections of the client, present and future. An option left out means no
limit. The limits are an entry of `limits` of the configuration.";

const BAN_HELP: &str = "\
Examples:
  millracectl clients ban 10.0.0.7
  millracectl clients ban 10.0.0.7 --for 24h

A ban ends by itself, with `clients unban`, or when the server ends.";

/// The commands on clients.
#[derive(Subcommand)]
pub enum ClientsCommand {
    /// Clients: data, resources and waits.
    List,
    /// One client.
    Show {
        /// Its address.
        address: IpAddr,
    },
    /// Limit a client.
    #[command(after_help = LIMIT_HELP)]
    Limit {
        /// Its address.
        address: IpAddr,
        /// The most requests per second.
        #[arg(long, value_name = "NUMBER", required_unless_present = "bandwidth")]
        iops: Option<u64>,
        /// The most bytes of READ and WRITE per second, such as 200MiB/s.
        #[arg(long, value_name = "SIZE/s")]
        bandwidth: Option<Bandwidth>,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
    /// Remove the limits of a client.
    Unlimit {
        /// Its address.
        address: IpAddr,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
    /// Close all connections of a client. It may connect again.
    Evict {
        /// Its address.
        address: IpAddr,
        /// Also if it is in use, without asking.
        #[arg(long)]
        force: bool,
    },
    /// Close all connections of a client, and refuse new ones for a time.
    #[command(after_help = BAN_HELP)]
    Ban {
        /// Its address.
        address: IpAddr,
        /// How long: with s, m or h.
        #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "10m")]
        time: Duration,
        /// Also if it is in use, without asking.
        #[arg(long)]
        force: bool,
    },
    /// Lift the ban of a client.
    Unban {
        /// Its address.
        address: IpAddr,
    },
    /// Banned addresses.
    Bans,
}

/// Runs the command; without one, lists the clients.
pub fn run(context: &Context<'_>, command: Option<&ClientsCommand>) -> Result<ExitCode, Failure> {
    let at = |address: &IpAddr| format!("{PATH}/{}", encoded(&address.to_string()));
    match command.unwrap_or(&ClientsCommand::List) {
        ClientsCommand::List => context.show_list(PATH, "clients", |list: Clients| {
            views::clients(&list.clients)
        }),
        ClientsCommand::Show { address } => {
            context.show(&at(address), |one: ClientStatus| views::client(&one))
        }
        ClientsCommand::Limit {
            address,
            iops,
            bandwidth,
            options,
        } => {
            let limits = RateLimits {
                iops: *iops,
                bandwidth_bytes: bandwidth.map(|bandwidth| bandwidth.0),
            };
            let order = Order::new(Method::Put, format!("{}/limits", at(address)))
                .with_body("application/json", serde_json::to_vec(&limits)?);
            context.change(order, *options)
        }
        ClientsCommand::Unlimit { address, options } => {
            let path = format!("{}/limits", at(address));
            context.change(Order::new(Method::Delete, path), *options)
        }
        ClientsCommand::Evict { address, force } => {
            let order = Order::new(Method::Delete, at(address));
            let answer = context.ask_or_force(&order, &mut { *force })?;
            context.print_answer(&answer, |evicted: Evicted| {
                let closed = count(evicted.connections, "connection");
                format!("closed {closed} of {address}\n")
            })
        }
        ClientsCommand::Ban {
            address,
            time,
            force,
        } => {
            let seconds = time.as_secs_f64().ceil() as u64;
            let order = Order::new(Method::Put, format!("{}/ban", at(address))).with_body(
                "application/json",
                serde_json::to_vec(&BanOrder { seconds })?,
            );
            let answer = context.ask_or_force(&order, &mut { *force })?;
            context.print_answer(&answer, |evicted: Evicted| {
                let closed = count(evicted.connections, "connection");
                let time = format_duration(Duration::from_secs(seconds));
                format!("banned {address} for {time}; closed {closed}\n")
            })
        }
        ClientsCommand::Unban { address } => {
            context.ask(&Order::new(Method::Delete, format!("{}/ban", at(address))))?;
            context.done(&format!("{address} may connect again\n"))
        }
        ClientsCommand::Bans => context.show("/api/v1/bans", |list: Bans| views::bans(&list.bans)),
    }
}
