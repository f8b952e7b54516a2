//! `exports`: show and change the exports.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use millrace_admin::config::{Bandwidth, ByteSize, Network, Store};
use millrace_admin::status::Exports;
use serde_json::{Map, Value, json};

use super::config::edited;
use super::context::{CommandChangeOptions, Context};
use super::failure::Failure;
use super::views;

const ADD_HELP: &str = "\
Examples:
  millracectl exports add /scratch --memory 1GiB --client 10.0.0.0/8
  millracectl exports add /data --posix /srv/data --client 10.1.0.0/16 --squash root --persist
  millracectl exports add /fast --posix /srv/fast --direct always --sync relaxed
  millracectl exports add /slow --memory 64MiB --iops 500 --bandwidth 20MiB/s --dry-run

Options left out have the defaults of the configuration: clients on loopback only, read and write,
no squashing, no limits.";

/// The commands on exports.
#[derive(Subcommand)]
pub enum ExportsCommand {
    /// Exports: clients, fill, data.
    List,
    /// Add an export.
    #[command(after_help = ADD_HELP)]
    Add(Box<Add>),
    /// Remove an export. The content of a memory store is lost, and clients that use it get errors:
    /// one that is in use is removed with --force only.
    Remove {
        /// The name that clients mount.
        path: String,
        #[command(flatten)]
        options: CommandChangeOptions,
    },
}

/// An export to add.
#[derive(Args)]
pub struct Add {
    /// The name that clients mount.
    path: String,
    /// Keep the files in memory, of this size; they are lost when the server stops.
    #[arg(
        long,
        value_name = "SIZE",
        group = "store",
        required_unless_present = "posix"
    )]
    memory: Option<ByteSize>,
    /// The most files and folders in memory; one for each 4 KiB of the size, 16384 at least, if left
    /// out.
    #[arg(long, value_name = "NUMBER", conflicts_with = "posix")]
    inodes: Option<u32>,
    /// Serve a folder of the server's host.
    #[arg(long, value_name = "FOLDER", group = "store")]
    posix: Option<PathBuf>,
    /// Whether data of the folder bypasses the page cache.
    #[arg(long, value_parser = ["auto", "always", "never"], conflicts_with = "memory")]
    direct: Option<String>,
    /// Whether changes of names are durable before they are answered.
    #[arg(long, value_parser = ["strict", "relaxed"], conflicts_with = "memory")]
    sync: Option<String>,
    /// The source of a user's groups.
    #[arg(long, value_parser = ["client", "server"], conflicts_with = "memory")]
    groups: Option<String>,
    /// Identity of operations: the caller only, or the server's own user for all callers if it may
    /// not act as them.
    #[arg(long, value_parser = ["caller", "server"], conflicts_with = "memory")]
    identity: Option<String>,
    /// Whether file systems mounted below the folder are visible.
    #[arg(long, value_parser = ["hide", "cross"], conflicts_with = "memory")]
    mounts: Option<String>,
    /// Promise that nobody but this server changes or locks files of the folder, so that clients
    /// may cache them by delegations.
    #[arg(long, conflicts_with = "memory")]
    exclusive: bool,
    /// A network or address that may mount; may be repeated.
    #[arg(long = "client", value_name = "NETWORK")]
    clients: Vec<Network>,
    /// Refuse all changes.
    #[arg(long)]
    read_only: bool,
    /// Which users are mapped to the anonymous user.
    #[arg(long, value_parser = ["none", "root", "all"])]
    squash: Option<String>,
    /// How calls are secured, best first, such as krb5p,krb5i; may be repeated.
    #[arg(long, value_delimiter = ',', value_parser = ["krb5p", "krb5i", "krb5", "sys", "none"])]
    security: Vec<String>,
    /// The weakest flavor of calls; --security has replaced it.
    #[arg(long, hide = true, value_parser = ["none", "sys"], conflicts_with = "security")]
    flavor: Option<String>,
    /// The anonymous user.
    #[arg(long, value_name = "UID")]
    anon_uid: Option<u32>,
    /// The anonymous group.
    #[arg(long, value_name = "GID")]
    anon_gid: Option<u32>,
    /// The most requests per second of all its clients together.
    #[arg(long, value_name = "NUMBER")]
    iops: Option<u64>,
    /// The most bytes of READ and WRITE per second of all its clients together, such as 2GiB/s.
    #[arg(long, value_name = "SIZE/s")]
    bandwidth: Option<Bandwidth>,
    #[command(flatten)]
    options: CommandChangeOptions,
}

/// Runs the command; without one, lists the exports.
pub fn run(context: &Context<'_>, command: Option<&ExportsCommand>) -> Result<ExitCode, Failure> {
    match command.unwrap_or(&ExportsCommand::List) {
        ExportsCommand::List => context.show_list("/api/v1/exports", "exports", |list: Exports| {
            views::exports(&list.exports)
        }),
        ExportsCommand::Add(add) => edited(context, add.options, |config| {
            let list = exports(config)?;
            if position(list, &add.path).is_some() {
                return Err(format!("{} is exported already", add.path));
            }
            list.push(entry(add));
            Ok(())
        }),
        ExportsCommand::Remove { path, options } => edited(context, *options, |config| {
            let list = exports(config)?;
            let at = position(list, path).ok_or_else(|| format!("{path} is not exported"))?;
            list.remove(at);
            Ok(())
        }),
    }
}

fn exports(config: &mut Value) -> Result<&mut Vec<Value>, String> {
    let list = config.get_mut("exports").and_then(Value::as_array_mut);
    list.ok_or_else(|| "the server's configuration has no list of exports".to_owned())
}

fn position(list: &[Value], path: &str) -> Option<usize> {
    let named = |entry: &Value| entry.get("path").and_then(Value::as_str) == Some(path);
    list.iter().position(named)
}

/// The entry of `exports`, with the given options only.
fn entry(add: &Add) -> Value {
    let store = match (&add.memory, &add.posix) {
        (Some(size), _) => json!(Store::Memory {
            size: *size,
            inodes: add.inodes
        }),
        (None, root) => {
            let mut store = json!({ "kind": "posix", "root": root });
            for (key, value) in [
                ("direct", &add.direct),
                ("sync", &add.sync),
                ("groups", &add.groups),
                ("identity", &add.identity),
                ("mounts", &add.mounts),
            ] {
                if let Some(value) = value {
                    store[key] = json!(value);
                }
            }
            if add.exclusive {
                store["exclusive"] = json!(true);
            }
            store
        }
    };
    let mut limits = Map::new();
    let mut entry = Map::new();
    let put = |map: &mut Map<String, Value>, key: &str, value: Option<Value>| {
        if let Some(value) = value {
            map.insert(key.to_owned(), value);
        }
    };
    put(&mut limits, "iops", add.iops.map(|iops| json!(iops)));
    put(
        &mut limits,
        "bandwidth",
        add.bandwidth.map(|bandwidth| json!(bandwidth)),
    );
    put(&mut entry, "path", Some(json!(add.path)));
    put(&mut entry, "store", Some(store));
    put(
        &mut entry,
        "clients",
        (!add.clients.is_empty()).then(|| json!(add.clients)),
    );
    put(&mut entry, "access", add.read_only.then(|| json!("ro")));
    put(
        &mut entry,
        "squash",
        add.squash.as_ref().map(|squash| json!(squash)),
    );
    put(
        &mut entry,
        "security",
        (!add.security.is_empty()).then(|| json!(add.security)),
    );
    put(
        &mut entry,
        "flavor",
        add.flavor.as_ref().map(|flavor| json!(flavor)),
    );
    put(&mut entry, "anon_uid", add.anon_uid.map(|uid| json!(uid)));
    put(&mut entry, "anon_gid", add.anon_gid.map(|gid| json!(gid)));
    let limited = !limits.is_empty();
    put(
        &mut entry,
        "limits",
        limited.then_some(Value::Object(limits)),
    );
    Value::Object(entry)
}
