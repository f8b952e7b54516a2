//! Chains that wait for room in a send queue: first come, first served, and nobody is passed.

use std::cell::RefCell;
use std::collections::VecDeque;

use millrace_reactor::completion::Completions;
use millrace_reactor::fabric::{Slices, WorkError};

use super::shared::Outcome;

/// Who waits in line, first come first.
#[derive(Default)]
pub struct Line {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    next: u64,
}

struct Entry {
    number: u64,
    /// What to complete once there is room, and the room that is needed.
    wish: Option<(u64, usize)>,
}

impl Line {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.state.borrow().entries.is_empty()
    }

    /// Wakes the head of the line if `room` is enough for it. It stays the head until it has run.
    pub fn wake(&self, room: usize, completions: &Completions<Outcome>) {
        let head = self.state.borrow().entries.front().and_then(|e| e.wish);
        if let Some((token, needed)) = head
            && room >= needed
        {
            // An error means that it was woken before and has not run yet.
            let _ = completions.complete(token, Ok(Slices::new()));
        }
    }

    /// Wakes all who wait, for the connection has ended.
    pub fn end(&self, completions: &Completions<Outcome>) {
        let entries = std::mem::take(&mut self.state.borrow_mut().entries);
        for (token, _) in entries.into_iter().filter_map(|entry| entry.wish) {
            // Whoever was woken before finds the connection broken.
            let _ = completions.complete(token, Err(WorkError::Flushed));
        }
    }
}

/// A place in a line, given up when dropped.
pub struct Place<'a> {
    line: &'a Line,
    number: u64,
}

impl<'a> Place<'a> {
    /// The last place.
    pub fn at_the_end(line: &'a Line) -> Self {
        let state = &mut *line.state.borrow_mut();
        let number = state.next;
        state.next += 1;
        state.entries.push_back(Entry { number, wish: None });
        Self { line, number }
    }

    /// Waits for the head of the line and for room there.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn wait(&mut self, room: usize, completions: &Completions<Outcome>) -> Outcome {
        let (token, wait) = completions.register();
        {
            let state = &mut *self.line.state.borrow_mut();
            let mine = state.entries.iter_mut().find(|e| e.number == self.number);
            match mine {
                Some(entry) => entry.wish = Some((token, room)),
                None => return Err(WorkError::Flushed),
            }
        }
        wait.await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let entries = &mut self.line.state.borrow_mut().entries;
        if let Some(at) = entries.iter().position(|e| e.number == self.number) {
            entries.remove(at);
        }
    }
}
