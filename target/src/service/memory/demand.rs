//! The memory that a configuration needs, key by key.

use millrace_admin::config::{Config, KeyPath, Store};
use millrace_store::memory::MemoryStore;

use crate::service::sizing;

/// The memory of the process besides its arenas: code, stacks, tables and messages.
const PROCESS: u64 = 32 << 20;

/// The memory of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The key.
    pub path: KeyPath,
    /// Arenas, in the order of mapping: their number, and the size of each in bytes.
    pub arenas: Vec<(u64, u64)>,
    /// Bytes in small pages in any case.
    pub small: u64,
}

impl Demand {
    fn of_arenas(path: KeyPath, arenas: impl Into<Vec<(u64, u64)>>) -> Self {
        Self {
            path,
            arenas: arenas.into(),
            small: 0,
        }
    }

    /// The total.
    pub fn bytes(&self) -> u64 {
        let arenas = self.arenas.iter();
        let arenas = arenas.map(|(count, bytes)| count.saturating_mul(*bytes));
        arenas.fold(self.small, u64::saturating_add)
    }
}

/// Those of a whole configuration, in the order of a start.
pub fn of(config: &Config, reactors: usize) -> Vec<Demand> {
    let mut demands = vec![Demand {
        path: KeyPath::root(),
        arenas: Vec::new(),
        small: PROCESS + sizing::replay_bytes(),
    }];
    demands.extend(exports(config, |_| true));
    demands.push(pools(config.mempool.size.bytes(), reactors));
    demands
}

/// Those of a change: new exports, and additional memory of pools.
pub fn of_change(before: &Config, next: &Config, reactors: usize) -> Vec<Demand> {
    let is_new = |path: &str| !before.exports.iter().any(|export| export.path == path);
    let mut demands: Vec<_> = exports(next, is_new).collect();
    let [before, next] = [before, next].map(|config| config.mempool.size.bytes());
    let more = next.saturating_sub(before);
    if more > 0 {
        demands.push(pools(more, reactors));
    }
    demands
}

fn pools(bytes: u64, reactors: usize) -> Demand {
    let path = KeyPath::root().key("mempool").key("size");
    Demand::of_arenas(path, [(reactors as u64, bytes)])
}

fn exports(config: &Config, counts: impl Fn(&str) -> bool) -> impl Iterator<Item = Demand> {
    let exports = config.exports.iter().enumerate();
    exports.filter_map(move |(index, export)| match &export.store {
        Store::Memory { size, .. } if counts(&export.path) => {
            let path = KeyPath::root().key("exports").index(index);
            let path = path.key("store").key("size");
            Some(Demand::of_arenas(
                path,
                MemoryStore::arenas_of(size.bytes()),
            ))
        }
        _ => None,
    })
}
