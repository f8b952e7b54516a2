//! Which stores stay, come and go with a change of the exports.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_admin::config::{Config, Export};
use millrace_mempool::Registry;
use millrace_store::memory::{MemoryStore, Remains};

use super::ticket::Refused;
use crate::exports::{Exports, Rules};
use crate::service::plan;

/// Time between two looks whether a store is used any longer.
const PAUSE: Duration = Duration::from_millis(20);

/// What is served.
pub type Served = Vec<(Rules, MemoryStore)>;

/// The exports of `next`: those that there are keep their stores, and new ones get one.
///
/// # Errors
/// There is not so much memory, or the exports contradict each other.
pub fn next_of(before: &Served, next: &Config, registry: &Registry) -> Result<Served, Refused> {
    let mut served = Served::new();
    for (index, export) in next.exports.iter().enumerate() {
        let store = match of(before, export) {
            Some(store) => store.clone(),
            None => plan::store(export, registry).map_err(|error| {
                Refused::new(format!("exports[{index}].store.size"), error.to_string())
            })?,
        };
        served.push((plan::rules(export), store));
    }
    Exports::new(served.iter().cloned())
        .map_err(|error| Refused::new("exports", error.to_string()))?;
    Ok(served)
}

fn of<'a>(served: &'a Served, export: &Export) -> Option<&'a MemoryStore> {
    let found = served.iter().find(|(rules, _)| rules.path == export.path);
    found.map(|(_, store)| store)
}

/// The stores of exports that `next` has no more.
pub fn gone(before: &Served, next: &Served) -> Vec<Remains> {
    let stays = |path: &str| next.iter().any(|(rules, _)| rules.path == path);
    let gone = before.iter().filter(|(rules, _)| !stays(&rules.path));
    gone.map(|(_, store)| store.remains()).collect()
}

/// Frees stores once nobody uses them, on a thread of its own: giving much memory back stalls
/// whoever does it. The thread lives as long as there are any.
#[derive(Clone, Default)]
pub struct Reaper {
    remains: Arc<Mutex<Vec<Remains>>>,
}

impl Reaper {
    /// Takes stores that are served no longer.
    pub fn take(&self, gone: Vec<Remains>) {
        if gone.is_empty() {
            return;
        }
        let mut remains = self.lock();
        let idle = remains.is_empty();
        remains.extend(gone);
        if idle {
            let reaper = self.clone();
            let thread = std::thread::Builder::new().name("reaper".to_owned());
            if let Err(error) = thread.spawn(move || reaper.run()) {
                tracing::warn!(%error, "the memory of exports that have gone stays in use");
            }
        }
    }

    fn run(&self) {
        loop {
            std::thread::sleep(PAUSE);
            let mut all = std::mem::take(&mut *self.lock());
            all.retain_mut(|one| !one.free());
            let mut remains = self.lock();
            remains.extend(all);
            if remains.is_empty() {
                return;
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Remains>> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
