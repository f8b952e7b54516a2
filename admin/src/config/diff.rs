//! Differences between two configurations, and which of them can be applied while the service runs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Admin, Config, Provider, Rpcbind, Store, compare};

/// The effect of a change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It is applied at once.
    Live,
    /// It is applied at the next start of the service.
    Restart,
}

/// A key with two values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyChange {
    /// The key as in the file, such as `exports[0].access`.
    pub path: String,
    /// The value before; `null` if there was none.
    pub before: Value,
    /// The value after; `null` if there is none.
    pub after: Value,
    /// Its effect.
    pub effect: Effect,
}

/// The keys in which two configurations differ, in the order of the file. Empty if and only if they
/// are equal.
///
/// Effects are those for a service that runs with `before`; see [`diff_while`].
pub fn diff(before: &Config, after: &Config) -> Vec<KeyChange> {
    diff_while(before, before, after)
}

/// The same for a service that runs with `running`, which has an earlier value where keys of
/// `before` wait for a restart.
///
/// Entries of `fabric`, `exports` and `limits` are identified by their address, path and networks:
/// one added or removed is one change, whatever its index, and other lists change as a whole.
/// Removed entries come first, with their index before; all others have their index after. A new
/// order of remaining entries is a change of the list itself, shown by their identities.
pub fn diff_while(running: &Config, before: &Config, after: &Config) -> Vec<KeyChange> {
    let live = live_part(running, after);
    let [before, after, live] =
        [before, after, &live].map(|config| serde_yaml::to_value(config).unwrap_or_default());
    compare::changes(&before, &after, &live)
}

/// `wanted` with the value of `running` for every key that cannot change while the service runs.
///
/// Most of section `rpcrdma` applies to new connections: existing ones keep the values announced to
/// their clients.
pub fn live_part(running: &Config, wanted: &Config) -> Config {
    let mut live = wanted.clone();
    live.reactors.cores = running.reactors.cores.clone();
    live.mempool.hugepages = running.mempool.hugepages;
    // A pool grows and never shrinks.
    live.mempool.size = wanted.mempool.size.max(running.mempool.size);
    live.rpcrdma.inline = running.rpcrdma.inline;
    live.nfs3 = running.nfs3;
    live.nfs4
        .minor_versions
        .clone_from(&running.nfs4.minor_versions);
    // Names that clients were told stay valid.
    live.nfs4.domain.clone_from(&running.nfs4.domain);
    // Contexts, helper threads and the library that they use are made at start.
    live.gss.clone_from(&running.gss);
    live.rpc.rpcbind = running.rpc.rpcbind;
    // The embedded port mapper has its own port at the same address.
    if running.rpc.rpcbind == Rpcbind::Embedded && wanted.rpc.listen.ip() != running.rpc.listen.ip()
    {
        live.rpc.listen = running.rpc.listen;
    }
    live.admin = Admin {
        // Opened at each change.
        token_file: wanted.admin.token_file.clone(),
        roles_file: wanted.admin.roles_file.clone(),
        audit_file: wanted.admin.audit_file.clone(),
        // Read with each request and each change.
        hosts: wanted.admin.hosts.clone(),
        read_token: wanted.admin.read_token,
        exportable_roots: wanted.admin.exportable_roots.clone(),
        // Read at each scrape.
        client_series: wanted.admin.client_series,
        ..running.admin.clone()
    };
    // Dropped rights cannot be regained.
    live.hardening = running.hardening.clone();
    live.state_directory.clone_from(&running.state_directory);
    live.handle_secret.clone_from(&running.handle_secret);
    live.gateways.clone_from(&running.gateways);
    // The devices' connection manager does not let two listeners share an address, and a listener
    // cannot be handed over.
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
                // The location of files cannot change. The export must be removed before another
                // one of its path can be added.
                (before, _) => before.clone(),
            };
        }
    }
    live
}
