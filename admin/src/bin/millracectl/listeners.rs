//! `listeners`: addresses for RDMA connections.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Subcommand;
use millrace_admin::client::{Method, Order};
use millrace_admin::status::Listeners;
use serde_json::{Map, json};

use super::context::{CommandChangeOptions, Context, encoded};
use super::failure::Failure;
use super::views;

/// The path of the listeners.
const PATH: &str = "/api/v1/listeners";

/// The commands on listeners.
#[derive(Subcommand)]
pub enum ListenersCommand {
    /// Listeners: their connections, and whether they accept more.
    List,
    /// Add a listener for RDMA connections.
    Add {
        /// Such as 10.0.0.1:20049.
        address: SocketAddr,
        /// The RDMA provider.
        #[arg(long, value_parser = ["iwarp", "verbs"], default_value = "iwarp")]
        provider: String,
        /// The CRC of MPA frames, for iwarp.
        #[arg(long, value_parser = ["auto", "required", "off"])]
        crc: Option<String>,
        /// One queue of receives for all connections of a device and reactor, for verbs.
        #[arg(long, value_parser = ["on", "off"])]
        shared_receives: Option<String>,
        /// Classic mode: on or off, overriding rpcrdma.read_chunk_replies.
        #[arg(long, value_parser = ["on", "off"])]
        read_chunk_replies: Option<String>,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
    /// Remove a listener. Open connections are not closed.
    Remove {
        /// The address in `listeners list`.
        address: SocketAddr,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
}

/// Runs the command; without one, lists the listeners.
pub fn run(context: &Context<'_>, command: Option<&ListenersCommand>) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&ListenersCommand::List) {
        ListenersCommand::List => {
            context.show(PATH, |list: Listeners| views::listeners(&list.listeners))
        }
        ListenersCommand::Add {
            address,
            provider,
            crc,
            shared_receives,
            read_chunk_replies,
            options,
        } => {
            let mut entry = Map::new();
            entry.insert("provider".to_owned(), json!(provider));
            entry.insert("listen".to_owned(), json!(address));
            for (key, value) in [
                ("crc", crc),
                ("shared_receives", shared_receives),
                ("read_chunk_replies", read_chunk_replies),
            ] {
                if let Some(value) = value {
                    entry.insert(key.to_owned(), json!(value));
                }
            }
            let order = Order::new(Method::Post, PATH)
                .with_body("application/json", json!(entry).to_string());
            context.change(order, *options)
        }
        ListenersCommand::Remove { address, options } => {
            let path = format!("{PATH}/{}", encoded(&address.to_string()));
            context.change(Order::new(Method::Delete, path), *options)
        }
    }
}
