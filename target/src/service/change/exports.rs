//! Which stores are kept, added and removed by a change of the exports.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_admin::config::{Config, Export, Store};
use millrace_mempool::Registry;
use millrace_store::any::AnyVolume;
use millrace_store::memory;

use super::ticket::ChangeRefused;
use crate::exports::{Exports, ExportsError, Rules};
use crate::service::{folders, plan};

/// The interval of checking whether a store is still used.
const PAUSE: Duration = Duration::from_millis(20);

/// The served exports.
pub type ExportVolumes = Vec<(Rules, AnyVolume)>;

/// The exports of `next`: existing ones keep their stores, and new ones get one.
///
/// # Errors
/// There is not enough memory, or the exports contradict each other.
pub fn next_of(
    before: &ExportVolumes,
    next: &Config,
    registry: &Registry,
) -> Result<ExportVolumes, ChangeRefused> {
    let mut served = ExportVolumes::new();
    for (index, export) in next.exports.iter().enumerate() {
        let store = match of(before, export) {
            Some(store) => store.clone(),
            None => plan::volume(next, index, registry)?,
        };
        served.push((plan::rules(export), store));
    }
    check(&served).map_err(|error| ChangeRefused::new("exports", error.to_string()))?;
    Ok(served)
}

/// Checks that a table can be made of them.
///
/// # Errors
/// They contradict each other.
pub fn check(served: &ExportVolumes) -> Result<(), ExportsError> {
    let names = served.iter().map(|(rules, _)| (rules.clone(), ()));
    Exports::new(names).map(|_: Exports<()>| ())
}

fn of<'a>(served: &'a ExportVolumes, export: &Export) -> Option<&'a AnyVolume> {
    let found = served.iter().find(|(rules, _)| rules.path == export.path);
    found.map(|(_, store)| store)
}

/// Applies the stores' settings that can change while they are served.
pub fn adjust(served: &ExportVolumes, next: &Config) {
    for ((_, volume), export) in served.iter().zip(&next.exports) {
        if let (AnyVolume::Posix(volume), Store::Posix(posix)) = (volume, &export.store) {
            folders::adjust(volume, posix);
        }
    }
}

/// The store of a removed export, while it is still used.
pub enum Remains {
    /// One in memory.
    Memory(memory::Remains),
    /// One that is kept outside of this process.
    Kept(AnyVolume),
}

impl Remains {
    fn of(volume: &AnyVolume) -> Self {
        match volume {
            AnyVolume::Memory(store) => Self::Memory(store.remains()),
            kept => Self::Kept(kept.clone()),
        }
    }
}

/// The stores of exports that `next` does not have.
pub fn gone(before: &ExportVolumes, next: &ExportVolumes) -> Vec<Remains> {
    let stays = |volume: &AnyVolume| next.iter().any(|(_, other)| other.is(volume));
    let gone = before.iter().filter(|(_, volume)| !stays(volume));
    gone.map(|(_, volume)| Remains::of(volume)).collect()
}

/// Frees and closes unused stores, on threads of its own: freeing much memory blocks the calling
/// thread, and so does syncing a folder. The threads run while there are any.
#[derive(Clone, Default)]
pub struct Reaper {
    shared: Arc<ExportsShared>,
}

#[derive(Default)]
struct ExportsShared {
    state: Mutex<ExportsState>,
    changed: Condvar,
}

#[derive(Default)]
struct ExportsState {
    remains: Vec<Remains>,
    /// Whether a thread is running.
    runs: bool,
    /// Folders being closed, plus one while they are checked.
    closing: usize,
}

impl Reaper {
    /// Adds stores that are no longer served.
    pub fn take(&self, gone: Vec<Remains>) {
        if gone.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.remains.extend(gone);
        if !state.runs {
            let reaper = self.clone();
            let thread = std::thread::Builder::new().name("reaper".to_owned());
            match thread.spawn(move || reaper.run()) {
                Ok(_) => state.runs = true,
                Err(error) => {
                    tracing::warn!(%error, "the resources of removed exports stay in use");
                }
            }
        }
    }

    /// Waits until all added folders are closed. Returns whether they are.
    pub fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        let busy = |state: &ExportsState| {
            let kept = |one: &Remains| matches!(one, Remains::Kept(_));
            state.closing > 0 || state.remains.iter().any(kept)
        };
        while busy(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn run(&self) {
        loop {
            std::thread::sleep(PAUSE);
            let all = {
                let mut state = self.lock();
                state.closing += 1;
                std::mem::take(&mut state.remains)
            };
            // Freeing memory takes long, so not under the lock.
            let mut left = Vec::new();
            let mut sole = Vec::new();
            for one in all {
                match one {
                    Remains::Memory(mut memory) => {
                        if !memory.free() {
                            left.push(Remains::Memory(memory));
                        }
                    }
                    Remains::Kept(volume) if volume.is_sole() => sole.push(volume),
                    Remains::Kept(volume) => left.push(Remains::Kept(volume)),
                }
            }
            let mut state = self.lock();
            state.closing -= 1;
            state.remains.extend(left);
            for volume in sole {
                state.closing += 1;
                let reaper = self.clone();
                let thread = std::thread::Builder::new().name("close".to_owned());
                let spawned = thread.spawn(move || reaper.close(volume));
                if let Err(error) = spawned {
                    state.closing -= 1;
                    tracing::warn!(%error, "a removed folder is not closed in order");
                }
            }
            self.shared.changed.notify_all();
            if state.remains.is_empty() {
                state.runs = false;
                return;
            }
        }
    }

    /// Syncs a folder. One whose file system hangs does not delay others.
    #[allow(clippy::needless_pass_by_value)] // Ends here.
    fn close(&self, volume: AnyVolume) {
        volume.close();
        let path = volume.name();
        drop(volume);
        tracing::info!(path, "the export's folder is closed");
        self.lock().closing -= 1;
        self.shared.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ExportsState> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use millrace_admin::config;
    use millrace_mempool::HugepagePolicy;

    use super::*;

    /// The served exports of a configuration.
    fn served(text: &str) -> ExportVolumes {
        let config = config::parse(text, "test").unwrap();
        let registry = Registry::new(HugepagePolicy::Off);
        next_of(&ExportVolumes::new(), &config, &registry).expect("all can be opened")
    }

    /// Three folders, as exports that are served.
    fn folders(root: &std::path::Path) -> ExportVolumes {
        let export = |name: &str| {
            std::fs::create_dir(root.join(name)).unwrap();
            let root = root.join(name);
            format!(
                "{{ path: /{name}, store: {{ kind: posix, identity: server, root: {} }} }}",
                root.display()
            )
        };
        let all = ["a", "b", "c"].map(export).join(", ");
        served(&format!("exports: [{all}]"))
    }

    /// Waits until all threads of a reaper have ended, and checks that they ended in order.
    fn check_ended(reaper: &Reaper) {
        while Arc::strong_count(&reaper.shared) > 1 {
            std::thread::yield_now();
        }
        assert!(!reaper.shared.state.is_poisoned());
        let state = reaper.lock();
        assert_eq!((state.remains.len(), state.closing), (0, 0));
    }

    #[test]
    fn the_stores_of_removed_exports_remain_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let before = folders(root.path());
        assert_eq!(gone(&before, &before).len(), 0);
        let [Remains::Kept(volume)] = &gone(&before, &before[1..].to_vec())[..] else {
            panic!("one that is kept outside of this process");
        };
        assert_eq!(volume.name(), "/a");
    }

    #[test]
    fn a_removed_folder_is_closed_once_nobody_uses_it() {
        let root = tempfile::tempdir().unwrap();
        let reaper = Reaper::default();
        assert!(reaper.wait(Instant::now()), "there is nothing to close");
        let served = folders(root.path());
        reaper.take(gone(&served, &served[1..].to_vec()));
        assert!(!reaper.wait(Instant::now() + 3 * PAUSE), "it is used");
        drop(served);
        assert!(reaper.wait(Instant::now() + Duration::from_secs(60)));
        check_ended(&reaper);
    }

    #[test]
    fn removed_memory_is_freed_once_nobody_uses_it() {
        let exports = served("exports: [{ path: /a, store: { kind: memory, size: 1MiB } }]");
        let reaper = Reaper::default();
        reaper.take(gone(&exports, &ExportVolumes::new()));
        let state = reaper.shared.changed.wait(reaper.lock()).unwrap();
        assert_eq!(state.remains.len(), 1, "it is used");
        drop(state);
        drop(exports);
        check_ended(&reaper);
    }
}
