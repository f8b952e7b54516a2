//! A table with eviction of the least recently used entry. A look-up allocates nothing and changes
//! links only.

use std::collections::HashMap;
use std::hash::Hash;

/// No slot.
const NONE: u32 = u32::MAX;

/// Entries by key, in order of use.
pub(crate) struct Lru<K, V> {
    index: HashMap<K, u32>,
    slots: Vec<LruSlot<K, V>>,
    /// The first of the free slots, linked by `next`.
    free: u32,
    /// The most recently used one.
    first: u32,
    /// The least recently used one.
    last: u32,
}

struct LruSlot<K, V> {
    entry: Option<(K, V)>,
    previous: u32,
    next: u32,
}

impl<K: Copy + Eq + Hash, V> Lru<K, V> {
    /// An empty table.
    pub fn new() -> Self {
        Self {
            index: HashMap::new(),
            slots: Vec::new(),
            free: NONE,
            first: NONE,
            last: NONE,
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The entry with this key; counts as a use.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        let slot = *self.index.get(key)?;
        self.unlink(slot);
        self.link(slot);
        let entry = self.slots[slot as usize].entry.as_mut();
        entry.map(|(_, value)| value)
    }

    /// Inserts an entry. One with the same key is replaced and returned.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = self.remove(&key);
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 entries");
            self.slots.push(LruSlot {
                entry: Some((key, value)),
                previous: NONE,
                next: NONE,
            });
            slot
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].next;
            self.slots[slot as usize].entry = Some((key, value));
            slot
        };
        self.index.insert(key, slot);
        self.link(slot);
        old
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.index.remove(key)?;
        self.unlink(slot);
        let place = &mut self.slots[slot as usize];
        place.next = self.free;
        self.free = slot;
        place.entry.take().map(|(_, value)| value)
    }

    /// The least recently used entry.
    pub fn oldest(&self) -> Option<(&K, &V)> {
        self.oldest_first().next()
    }

    /// All entries, beginning with the least recently used one.
    pub fn oldest_first(&self) -> impl Iterator<Item = (&K, &V)> {
        let slot = |index: u32| self.slots.get(index as usize);
        let slots = std::iter::successors(slot(self.last), move |one| slot(one.previous));
        slots.filter_map(|one| one.entry.as_ref().map(|(key, value)| (key, value)))
    }

    fn unlink(&mut self, slot: u32) {
        let LruSlot { previous, next, .. } = self.slots[slot as usize];
        match self.slots.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.first = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => self.last = previous,
        }
    }

    fn link(&mut self, slot: u32) {
        let first = std::mem::replace(&mut self.first, slot);
        let place = &mut self.slots[slot as usize];
        place.previous = NONE;
        place.next = first;
        match self.slots.get_mut(first as usize) {
            Some(first) => first.previous = slot,
            None => self.last = slot,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Get(u8),
        Insert(u8, u16),
        Remove(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u8..12).prop_map(Step::Get),
            (0u8..12, any::<u16>()).prop_map(|(key, value)| Step::Insert(key, value)),
            (0u8..12).prop_map(Step::Remove),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Compared with a plain list, whose last element is the most recently used one.
        #[test]
        fn is_a_list_in_the_order_of_use(steps in steps()) {
            let mut table = Lru::new();
            let mut list: Vec<(u8, u16)> = Vec::new();
            for step in steps {
                let (Step::Get(key) | Step::Insert(key, _) | Step::Remove(key)) = step;
                let place = list.iter().position(|entry| entry.0 == key);
                let old = place.map(|place| list.remove(place));
                match step {
                    Step::Get(_) => {
                        prop_assert_eq!(table.get(&key).copied(), old.map(|old| old.1));
                        list.extend(old);
                    }
                    Step::Insert(_, value) => {
                        prop_assert_eq!(table.insert(key, value), old.map(|old| old.1));
                        list.push((key, value));
                    }
                    Step::Remove(_) => {
                        prop_assert_eq!(table.remove(&key), old.map(|old| old.1));
                    }
                }
                prop_assert_eq!(table.len(), list.len());
                let oldest = table.oldest().map(|(key, value)| (*key, *value));
                prop_assert_eq!(oldest, list.first().copied());
            }
        }
    }
}
