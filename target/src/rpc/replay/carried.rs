//! The records of calls that an earlier process began, in the present journal.

use std::collections::HashMap;

use super::CallKey;
use super::layout::{Begin, JournalSlot};
use super::writer::Slots;

/// Calls of an earlier process that are not settled, by the slots with their records.
#[derive(Debug)]
pub(super) struct CarriedCalls {
    slots: Slots,
    places: HashMap<CallKey, usize>,
    /// The slot that the next record goes to that is written anew. Its own record is void.
    spare: usize,
}

impl CarriedCalls {
    /// `places` are the slots of the calls.
    pub fn new(slots: Slots, places: HashMap<CallKey, usize>, spare: usize) -> Self {
        Self {
            slots,
            places,
            spare,
        }
    }

    /// The outcome of a call is known and recorded elsewhere.
    pub fn settle(&mut self, key: &CallKey) {
        if let Some(index) = self.places.remove(key) {
            let (_, sequence) = self.slots.read(index);
            self.slots.void(index, sequence);
        }
    }

    /// A call has another key from now on, for the next process, too. Were the process killed
    /// before the repetition comes, the client would only send the repetition to the next one.
    pub fn rename(&mut self, key: &CallKey, next: CallKey, is_contested: bool) {
        let Some(index) = self.places.remove(key) else {
            return;
        };
        let (JournalSlot::Begun(begin), sequence) = self.slots.read(index) else {
            return;
        };
        if self.places.contains_key(&next) {
            // The client sends the same again, which is one call to it.
            self.slots.void(index, sequence);
            return;
        }
        let begin = Begin {
            key: next,
            contested: begin.contested || is_contested,
            ..begin
        };
        // The record is whole in one slot at any time. A void record is valid for its sequence
        // number only.
        let (_, before) = self.slots.read(self.spare);
        self.slots.begin(self.spare, before + 1, &begin);
        self.slots.void(index, sequence);
        self.places.insert(next, self.spare);
        self.spare = index;
    }
}
