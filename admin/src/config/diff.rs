//! What differs between two configurations, and which of it can change while the service runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Admin, Config, Rpcbind, Store};

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
    /// The key, such as `exports[0].access`.
    pub path: String,
    /// The value before; `null` if there was none.
    pub before: Value,
    /// The value after; `null` if there is none any more.
    pub after: Value,
    /// What it takes.
    pub effect: Effect,
}

/// The keys in which two configurations differ, in the order of the file.
pub fn diff(before: &Config, after: &Config) -> Vec<KeyChange> {
    let live = live_part(before, after);
    let value = |config: &Config| serde_json::to_value(config).unwrap_or_default();
    let mut changes = Vec::new();
    walk(
        &mut String::new(),
        &value(before),
        &value(after),
        &value(&live),
        &mut changes,
    );
    changes
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
    live.rpc.rpcbind = running.rpc.rpcbind;
    // The port mapper of this process has a port of its own at the same address.
    if running.rpc.rpcbind == Rpcbind::Embedded && wanted.rpc.listen.ip() != running.rpc.listen.ip()
    {
        live.rpc.listen = running.rpc.listen;
    }
    live.admin = Admin {
        // Read at each change.
        token_file: wanted.admin.token_file.clone(),
        ..running.admin.clone()
    };
    live.state_directory.clone_from(&running.state_directory);
    for export in &mut live.exports {
        let before = running.exports.iter().find(|one| one.path == export.path);
        if let Some(before) = before
            && let (Store::Memory { .. }, Store::Memory { .. }) = (&before.store, &export.store)
        {
            export.store = before.store.clone();
        }
    }
    live
}

fn walk(path: &mut String, before: &Value, after: &Value, live: &Value, out: &mut Vec<KeyChange>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one
                .keys()
                .chain(other.keys().filter(|key| !one.contains_key(*key)));
            for key in keys {
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                let of = |value: &Value| value.get(key).cloned().unwrap_or(Value::Null);
                walk(path, &of(before), &of(after), &of(live), out);
                path.truncate(length);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (before, after)) in one.iter().zip(other).enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                let live = live.get(index).cloned().unwrap_or(Value::Null);
                walk(path, before, after, &live, out);
                path.truncate(length);
            }
        }
        _ => out.push(KeyChange {
            path: path.clone(),
            before: before.clone(),
            after: after.clone(),
            effect: if live == after {
                Effect::Live
            } else {
                Effect::Restart
            },
        }),
    }
}
