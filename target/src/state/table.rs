//! Values by a small number that is used again, and by keys that the server has assigned.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// Values by numbers and handles that the server has assigned. Clients cannot choose keys that
/// collide, so a fast hash does. What they can choose, such as names of owners, is in maps of the
/// standard library.
pub(super) type AssignedMap<K, V> = HashMap<K, V, RandomState>;

/// A set of such keys.
pub(super) type AssignedSet<K> = HashSet<K, RandomState>;

/// Values by index. The index of a removed value is used again.
#[derive(Debug)]
pub(super) struct IndexedTable<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for IndexedTable<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> IndexedTable<T> {
    pub fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    /// The index that the next value gets.
    pub fn next_index(&self) -> u32 {
        let end = u32::try_from(self.values.len()).expect("tables are bounded");
        self.free.last().copied().unwrap_or(end)
    }

    pub fn insert(&mut self, value: T) -> u32 {
        let index = self.next_index();
        if self.free.pop().is_some() {
            self.values[index as usize] = Some(value);
        } else {
            self.values.push(Some(value));
        }
        index
    }

    pub fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.values.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    pub fn get(&self, index: u32) -> Option<&T> {
        self.values.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.values.get_mut(index as usize)?.as_mut()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let values = (0..).zip(&mut self.values);
        values.filter_map(|(index, value)| Some((index, value.as_mut()?)))
    }

    /// Values from an index on.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &T)> {
        let values = (0..).zip(&self.values).skip(first as usize);
        values.filter_map(|(index, value)| Some((index, value.as_ref()?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let values = (0..).zip(&self.values);
        values.filter_map(|(index, value)| Some((index, value.as_ref()?)))
    }
}
