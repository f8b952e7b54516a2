//! What differs between two configurations, and which of it can change while the service runs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Admin, Config, Provider, Rpcbind, Store, compare};

/// What a change of a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It holds at once.
    Live,
    /// It waits for the next start of the service.
    Restart,
}

/// A key with two values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyChange {
    /// The key as in the file, such as `exports[0].access`.
    pub path: String,
    /// The value before; `null` if there was none.
    pub before: Value,
    /// The value after; `null` if there is none any more.
    pub after: Value,
    /// What it takes.
    pub effect: Effect,
}

/// The keys in which two configurations differ, in the order of the file. Empty if, and only if,
/// they are equal.
///
/// What a change takes is judged for a service that runs with `before`; see [`diff_while`].
pub fn diff(before: &Config, after: &Config) -> Vec<KeyChange> {
    diff_while(before, before, after)
}

/// The same for a service that runs with `running`, which has an earlier value where keys of
/// `before` wait for a restart.
///
/// Entries of `fabric`, `exports` and `limits` are told apart by their address, path and networks:
/// one that comes or goes is one change, whatever its place, and other lists change as a whole.
/// Entries that went come first, with their place before; all others have their place after. A
/// new order of entries that stay is a change of the list itself, told by what they are told apart
/// by.
pub fn diff_while(running: &Config, before: &Config, after: &Config) -> Vec<KeyChange> {
    let live = live_part(running, after);
    let [before, after, live] =
        [before, after, &live].map(|config| serde_yaml::to_value(config).unwrap_or_default());
    compare::changes(&before, &after, &live)
}

/// `wanted` with the value of `running` for every key that cannot change while the service runs.
///
/// Most of section `rpcrdma` holds for connections made from then on: the others keep to what their
/// clients were told.
pub fn live_part(running: &Config, wanted: &Config) -> Config {
    let mut live = wanted.clone();
    live.reactors.cores = running.reactors.cores.clone();
    live.mempool.hugepages = running.mempool.hugepages;
    // A pool grows and never shrinks.
    live.mempool.size = wanted.mempool.size.max(running.mempool.size);
    live.rpcrdma.inline = running.rpcrdma.inline;
    live.nfs4 = running.nfs4.clone();
    live.rpc.rpcbind = running.rpc.rpcbind;
    // The port mapper of this process has a port of its own at the same address.
    if running.rpc.rpcbind == Rpcbind::Embedded && wanted.rpc.listen.ip() != running.rpc.listen.ip()
    {
        live.rpc.listen = running.rpc.listen;
    }
    live.admin = Admin {
        // Opened at each change.
        token_file: wanted.admin.token_file.clone(),
        audit_file: wanted.admin.audit_file.clone(),
        // Looked at with each request and each change.
        hosts: wanted.admin.hosts.clone(),
        read_token: wanted.admin.read_token,
        exportable_roots: wanted.admin.exportable_roots.clone(),
        // Read at each scrape.
        client_series: wanted.admin.client_series,
        ..running.admin.clone()
    };
    // Rights that are given up do not come back.
    live.hardening = running.hardening.clone();
    live.state_directory.clone_from(&running.state_directory);
    // The devices' connection manager lets no listener have an address before it has let go of the
    // one before, and there is no handing over.
    let mut same = HashMap::new();
    for fabric in &mut live.fabric {
        let nth: &mut usize = same.entry(fabric.listen).or_default();
        let there = running.fabric.iter();
        let mut there = there.filter(|one| one.listen == fabric.listen);
        if let Some(before) = there.nth(*nth)
            && (before.provider, fabric.provider) == (Provider::Verbs, Provider::Verbs)
        {
            fabric.shared_receives = before.shared_receives;
        }
        *nth += 1;
    }
    for export in &mut live.exports {
        let before = running.exports.iter().find(|one| one.path == export.path);
        if let Some(before) = before {
            export.store = match (&before.store, &export.store) {
                (Store::Posix(before), Store::Posix(wanted)) => {
                    Store::Posix(before.live_part(wanted))
                }
                // Files are where they are. The export has to go before another one of its path
                // can come.
                (before, _) => before.clone(),
            };
        }
    }
    live
}
