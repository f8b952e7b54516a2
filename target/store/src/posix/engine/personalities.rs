//! The identities that are registered with a ring, and their numbers.

use std::collections::HashMap;
use std::io;

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

/// Registration of identities with the ring.
pub trait Registrar {
    /// Registers one and returns its number.
    fn register(&mut self, identity: &Identity) -> io::Result<u16>;
    /// Unregisters the number.
    fn unregister(&mut self, number: u16);
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

    /// The entry of an identity, in use until [`Personalities::release`], and its number.
    ///
    /// # Errors
    /// Those of the registrar.
    ///
    /// # Panics
    /// If all are in use.
    pub fn acquire(
        &mut self,
        identity: &Identity,
        registrar: &mut impl Registrar,
    ) -> io::Result<(u32, u16)> {
        self.clock += 1;
        let same = |entry: &PersonalityEntry| entry.identity == *identity;
        if !self.entries.get(self.last).is_some_and(same) {
            self.last = match self.by_identity.get(identity) {
                Some(&index) => index as usize,
                None => self.insert(identity, registrar)?,
            };
        }
        let entry = &mut self.entries[self.last];
        entry.users += 1;
        entry.used = self.clock;
        let index = u32::try_from(self.last).expect("bounded");
        Ok((index, entry.number))
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

    fn insert(&mut self, identity: &Identity, registrar: &mut impl Registrar) -> io::Result<usize> {
        let full = self.entries.len() == self.most;
        let number = registrar.register(identity)?;
        let entry = PersonalityEntry {
            identity: identity.clone(),
            number,
            users: 0,
            used: 0,
        };
        let index = if full {
            let idle = self
                .entries
                .iter()
                .enumerate()
                .filter(|(_, entry)| entry.users == 0);
            let oldest = idle.min_by_key(|(_, entry)| entry.used);
            let (index, _) = oldest.expect("more than operations");
            let before = std::mem::replace(&mut self.entries[index], entry);
            self.by_identity.remove(&before.identity);
            registrar.unregister(before.number);
            index
        } else {
            self.entries.push(entry);
            self.entries.len() - 1
        };
        let known = u32::try_from(index).expect("bounded");
        self.by_identity.insert(identity.clone(), known);
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use super::{Personalities, Registrar};
    use crate::posix::identity::Identity;

    #[derive(Default)]
    struct Kernel {
        known: BTreeMap<u16, Identity>,
        next: u16,
        refuses: bool,
    }

    impl Registrar for Kernel {
        fn register(&mut self, identity: &Identity) -> io::Result<u16> {
            if self.refuses {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.next += 1;
            self.known.insert(self.next, identity.clone());
            Ok(self.next)
        }

        fn unregister(&mut self, number: u16) {
            self.known.remove(&number).expect("registered");
        }
    }

    fn user(uid: u32) -> Identity {
        Identity::with_groups(uid, 1, &[uid])
    }

    #[test]
    fn the_longest_unused_makes_room_but_never_one_in_use() {
        let mut kernel = Kernel::default();
        let mut table = Personalities::new(3);
        let (first, number) = table.acquire(&user(1), &mut kernel).unwrap();
        assert_eq!((table.number(first), number), (1, 1));
        for uid in [2, 3] {
            let (index, _) = table.acquire(&user(uid), &mut kernel).unwrap();
            table.release(index);
        }
        assert_eq!(table.acquire(&user(1), &mut kernel).unwrap(), (first, 1));
        // 1 was used last and is in use, 2 is the oldest.
        let (index, number) = table.acquire(&user(4), &mut kernel).unwrap();
        assert_eq!(kernel.known[&number], user(4));
        table.release(index);
        let uids: Vec<u32> = kernel.known.values().map(Identity::uid).collect();
        assert_eq!(uids, [1, 3, 4]);
        for uid in 10..100 {
            let (index, number) = table.acquire(&user(uid), &mut kernel).unwrap();
            assert_eq!(kernel.known[&number], user(uid));
            table.release(index);
        }
        assert_eq!(kernel.known.len(), 3);
        assert_eq!(kernel.known[&1], user(1));
        table.release(first);
        table.release(first);
        for uid in 200..203 {
            table.acquire(&user(uid), &mut kernel).unwrap();
        }
        assert!(!kernel.known.contains_key(&1));
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let mut kernel = Kernel::default();
        let mut table = Personalities::new(1);
        let (index, _) = table.acquire(&user(1), &mut kernel).unwrap();
        table.release(index);
        kernel.refuses = true;
        table.acquire(&user(2), &mut kernel).unwrap_err();
        assert_eq!(table.acquire(&user(1), &mut kernel).unwrap(), (index, 1));
    }
}
