//! The identities that are registered with a ring, and their numbers.

use std::collections::HashMap;

use crate::posix::identity::Identity;

/// A bounded table of identities. The least recently used one is evicted, but never one in use by
/// an operation.
pub struct Personalities {
    entries: Vec<PersonalityEntry>,
    by_identity: HashMap<Identity, u32>,
    most: usize,
    clock: u64,
    /// The entry acquired last: operations of one caller are often consecutive.
    last: usize,
}

struct PersonalityEntry {
    identity: Identity,
    number: u16,
    users: u32,
    used: u64,
}

impl Personalities {
    /// A table with a capacity, which must exceed the number in use at any time.
    pub fn new(most: usize) -> Self {
        Self {
            entries: Vec::with_capacity(most),
            // Removed entries leave tombstones for a while, so twice the capacity avoids growth.
            by_identity: HashMap::with_capacity(2 * most),
            most,
            clock: 0,
            last: 0,
        }
    }

    /// The entry of a registered identity, in use until [`Personalities::release`].
    pub fn acquire(&mut self, identity: &Identity) -> Option<u32> {
        self.clock += 1;
        let same = |entry: &PersonalityEntry| entry.identity == *identity;
        if !self.entries.get(self.last).is_some_and(same) {
            self.last = *self.by_identity.get(identity)? as usize;
        }
        let entry = &mut self.entries[self.last];
        entry.users += 1;
        entry.used = self.clock;
        Some(u32::try_from(self.last).expect("bounded"))
    }

    /// The number of an entry that is in use.
    pub fn number(&self, index: u32) -> u16 {
        self.entries[index as usize].number
    }

    /// The identity of an entry that is in use.
    pub fn identity(&self, index: u32) -> &Identity {
        &self.entries[index as usize].identity
    }

    /// Releases one use.
    pub fn release(&mut self, index: u32) {
        self.entries[index as usize].users -= 1;
    }

    /// Adds an identity that was registered under a number. Returns the number to be unregistered for
    /// it.
    ///
    /// # Panics
    /// If all are in use.
    #[must_use]
    pub fn add(&mut self, identity: Identity, number: u16) -> Option<u16> {
        let entry = PersonalityEntry {
            identity: identity.clone(),
            number,
            users: 0,
            used: self.clock,
        };
        let (index, evicted) = if self.entries.len() == self.most {
            let idle = self
                .entries
                .iter()
                .enumerate()
                .filter(|(_, entry)| entry.users == 0);
            let oldest = idle.min_by_key(|(_, entry)| entry.used);
            let (index, _) = oldest.expect("more than operations");
            let before = std::mem::replace(&mut self.entries[index], entry);
            self.by_identity.remove(&before.identity);
            (index, Some(before.number))
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1, None)
        };
        let known = u32::try_from(index).expect("bounded");
        self.by_identity.insert(identity, known);
        evicted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Personalities;
    use crate::posix::identity::Identity;

    /// What the kernel knows, by number.
    #[derive(Default)]
    struct Kernel {
        known: BTreeMap<u16, Identity>,
        next: u16,
    }

    impl Kernel {
        fn acquire(&mut self, table: &mut Personalities, identity: &Identity) -> u32 {
            if let Some(index) = table.acquire(identity) {
                return index;
            }
            self.next += 1;
            self.known.insert(self.next, identity.clone());
            if let Some(number) = table.add(identity.clone(), self.next) {
                self.known.remove(&number).expect("registered");
            }
            table.acquire(identity).expect("just added")
        }
    }

    fn user(uid: u32) -> Identity {
        Identity::with_groups(uid, 1, &[uid])
    }

    #[test]
    fn the_longest_unused_makes_room_but_never_one_in_use() {
        let mut kernel = Kernel::default();
        let mut table = Personalities::new(3);
        assert_eq!(table.acquire(&user(1)), None);
        let first = kernel.acquire(&mut table, &user(1));
        assert_eq!(table.number(first), 1);
        for uid in [2, 3] {
            let index = kernel.acquire(&mut table, &user(uid));
            table.release(index);
        }
        assert_eq!(kernel.acquire(&mut table, &user(1)), first);
        // 1 was used last and is in use, 2 is the oldest.
        let index = kernel.acquire(&mut table, &user(4));
        assert_eq!(kernel.known[&table.number(index)], user(4));
        assert_eq!(*table.identity(index), user(4));
        table.release(index);
        let uids: Vec<u32> = kernel.known.values().map(Identity::uid).collect();
        assert_eq!(uids, [1, 3, 4]);
        for uid in 10..100 {
            let index = kernel.acquire(&mut table, &user(uid));
            assert_eq!(kernel.known[&table.number(index)], user(uid));
            table.release(index);
        }
        assert_eq!(kernel.known.len(), 3);
        assert_eq!(kernel.known[&1], user(1));
        table.release(first);
        table.release(first);
        for uid in 200..203 {
            kernel.acquire(&mut table, &user(uid));
        }
        assert!(!kernel.known.contains_key(&1));
    }
}
