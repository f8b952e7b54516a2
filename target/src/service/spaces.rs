//! The space on the file systems of exports. Queries run on threads of their own: a file system
//! that hangs does not delay others.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrace_store::any::AnyVolume;
use millrace_store::posix::volume_info::FileSystemSpace;

use crate::exports::ExportId;

/// How long an answer is valid.
const FRESH: Duration = Duration::from_secs(5);

/// How long to wait for a new one, before the last one is used.
const REFRESH_TIMEOUT: Duration = Duration::from_millis(200);

/// Answers by export.
#[derive(Default)]
pub struct Spaces {
    known: Mutex<HashMap<ExportId, Arc<Cell>>>,
}

#[derive(Default)]
struct Cell {
    state: Mutex<SpacesState>,
    answered: Condvar,
}

#[derive(Default)]
struct SpacesState {
    space: Option<FileSystemSpace>,
    at: Option<Instant>,
    /// A thread is querying.
    asked: bool,
}

impl Spaces {
    /// The space of an export's file system, a few seconds old or from before the file system hung.
    /// Waits only briefly.
    pub fn of(&self, export: ExportId, volume: &AnyVolume) -> Option<FileSystemSpace> {
        let cell = Arc::clone(lock(&self.known).entry(export).or_default());
        let volume = volume.clone();
        cell.get(Instant::now(), move || volume.space())
    }

    /// Removes exports that are no longer served.
    pub fn retain(&self, stays: impl Fn(ExportId) -> bool) {
        lock(&self.known).retain(|export, _| stays(*export));
    }
}

impl Cell {
    fn get(
        self: &Arc<Self>,
        now: Instant,
        ask: impl FnOnce() -> Option<FileSystemSpace> + Send + 'static,
    ) -> Option<FileSystemSpace> {
        let mut state = lock(&self.state);
        let is_fresh = |state: &SpacesState| {
            (state.at).is_some_and(|at| now.saturating_duration_since(at) < FRESH)
        };
        if is_fresh(&state) {
            return state.space;
        }
        if !state.asked {
            let cell = Arc::clone(self);
            let thread = std::thread::Builder::new().name("space".to_owned());
            let asks = thread.spawn(move || {
                let space = ask();
                let mut state = lock(&cell.state);
                state.space = space;
                state.at = Some(Instant::now());
                state.asked = false;
                cell.answered.notify_all();
            });
            state.asked = asks.is_ok();
        }
        let waits = |state: &mut SpacesState| state.asked && !is_fresh(state);
        let waited = self
            .answered
            .wait_timeout_while(state, REFRESH_TIMEOUT, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.space
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(used_bytes: u64) -> Option<FileSystemSpace> {
        Some(FileSystemSpace {
            total_bytes: 100,
            used_bytes,
            inodes: 0,
            total_inodes: None,
        })
    }

    #[test]
    fn an_answer_is_good_for_a_while_and_the_last_one_where_none_comes() {
        let cell = Arc::new(Cell::default());
        let now = Instant::now();
        assert_eq!(cell.get(now, || space(1)), space(1));
        assert_eq!(cell.get(now, || panic!("fresh")), space(1));
        // One query hangs; no other is made meanwhile.
        let later = Instant::now() + FRESH;
        let (release, held) = crossbeam_channel::bounded(0);
        let asked = cell.get(later, move || {
            held.recv().unwrap();
            space(2)
        });
        assert_eq!(asked, space(1));
        assert_eq!(cell.get(later, || panic!("asked already")), space(1));
        release.send(()).unwrap();
        let mut state = lock(&cell.state);
        while state.asked {
            state = cell.answered.wait(state).unwrap();
        }
        assert_eq!(state.space, space(2));
    }
}
