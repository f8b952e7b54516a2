//! The table of one connection's exposures: keys, memory and states.
//!
//! It is independent of devices. `H` is the handle that makes the memory accessible (a bound
//! window, or a registration), `M` the memory.

use std::collections::HashMap;

/// The state of an exposure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExposureState {
    /// The peer may use the key, or will when the request that makes it valid is sent.
    Live,
    /// The peer invalidated it; the memory waits to be fetched.
    Invalidated,
    /// A request that ends it is in the send queue.
    Ending,
}

#[derive(Debug)]
struct ExposureEntry<H, M> {
    key: u32,
    state: ExposureState,
    handle: H,
    memory: M,
}

/// The result of revoking an exposure.
#[derive(Debug, PartialEq, Eq)]
pub enum Revocation<H, M> {
    /// It has ended.
    Now(H, M),
    /// It ends when a request of the send queue has completed; this is its slot.
    Later(u32),
    /// There is none with this key, or it is ending already.
    Unknown,
}

/// The exposures of one connection. Slots are reused only after an exposure has ended.
#[derive(Debug)]
pub struct Table<H, M> {
    slots: Vec<Option<ExposureEntry<H, M>>>,
    free: Vec<u32>,
    by_key: HashMap<u32, u32>,
    most: u32,
}

impl<H, M> Table<H, M> {
    /// A table for `most` exposures at once. It grows on demand.
    pub fn new(most: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            most,
        }
    }

    /// Whether there is space for one more.
    pub fn has_room(&self) -> bool {
        self.len() < self.most as usize
    }

    /// Exposures that have not ended.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Adds a live exposure. Returns its slot.
    ///
    /// # Errors
    /// There is no space, or the key is in use already.
    pub fn insert(&mut self, key: u32, handle: H, memory: M) -> Result<u32, (H, M)> {
        if !self.has_room() || self.by_key.contains_key(&key) {
            return Err((handle, memory));
        }
        let entry = Some(ExposureEntry {
            key,
            state: ExposureState::Live,
            handle,
            memory,
        });
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = entry;
            slot
        } else {
            self.slots.push(entry);
            // At most `most`, which is a u32.
            self.slots.len() as u32 - 1
        };
        self.by_key.insert(key, slot);
        Ok(slot)
    }

    /// The key and handle of an exposure.
    pub fn get(&self, slot: u32) -> Option<(u32, &H)> {
        let entry = self.slots.get(slot as usize)?.as_ref()?;
        Some((entry.key, &entry.handle))
    }

    /// The peer invalidated a key. False if the peer may not invalidate it.
    pub fn invalidate(&mut self, key: u32) -> bool {
        let entry = self.by_key.get(&key).copied();
        let entry = entry.and_then(|slot| self.slots[slot as usize].as_mut());
        match entry {
            Some(entry) if entry.state == ExposureState::Live => {
                entry.state = ExposureState::Invalidated;
                true
            }
            _ => false,
        }
    }

    /// Ends an exposure: now, or, if it is live and `lasts` returns true, later.
    pub fn revoke(&mut self, key: u32, lasts: impl FnOnce(&H) -> bool) -> Revocation<H, M> {
        let Some(&slot) = self.by_key.get(&key) else {
            return Revocation::Unknown;
        };
        let Some(entry) = self.slots[slot as usize].as_mut() else {
            return Revocation::Unknown;
        };
        match entry.state {
            ExposureState::Ending => Revocation::Unknown,
            ExposureState::Live if lasts(&entry.handle) => {
                entry.state = ExposureState::Ending;
                Revocation::Later(slot)
            }
            ExposureState::Live | ExposureState::Invalidated => self
                .take(slot)
                .map_or(Revocation::Unknown, |(_, handle, memory)| {
                    Revocation::Now(handle, memory)
                }),
        }
    }

    /// The request that ends an exposure has completed: its key, handle and memory.
    pub fn ended(&mut self, slot: u32) -> Option<(u32, H, M)> {
        let entry = self.slots.get(slot as usize)?.as_ref()?;
        if entry.state == ExposureState::Ending {
            self.take(slot)
        } else {
            None
        }
    }

    /// All exposures that have not ended, as the connection has.
    pub fn drain(&mut self) -> impl Iterator<Item = (H, M)> {
        self.free.clear();
        self.by_key.clear();
        // No more are added.
        self.most = 0;
        let entries = std::mem::take(&mut self.slots).into_iter().flatten();
        entries.map(|entry| (entry.handle, entry.memory))
    }

    fn take(&mut self, slot: u32) -> Option<(u32, H, M)> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.by_key.remove(&entry.key);
        self.free.push(slot);
        Some((entry.key, entry.handle, entry.memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Handles are the result of `lasts`, memory is a number.
    type Small = Table<bool, u32>;

    #[test]
    fn a_lasting_exposure_ends_when_its_request_completes() {
        let mut table = Small::new(2);
        let slot = table.insert(5, true, 50).unwrap();
        assert_eq!(table.get(slot), Some((5, &true)));
        assert_eq!(table.ended(slot), None, "nobody asked");
        assert_eq!(table.revoke(5, |lasts| *lasts), Revocation::Later(slot));
        assert_eq!(table.revoke(5, |lasts| *lasts), Revocation::Unknown);
        assert!(!table.invalidate(5), "too late for the peer");
        assert_eq!(table.insert(5, true, 51), Err((true, 51)), "not free yet");
        assert_eq!(table.ended(slot), Some((5, true, 50)));
        assert_eq!(table.ended(slot), None);
        assert_eq!(table.get(slot), None);
    }

    #[test]
    fn an_invalidated_exposure_ends_at_once() {
        let mut table = Small::new(2);
        table.insert(5, true, 50).unwrap();
        assert!(table.invalidate(5));
        assert!(!table.invalidate(5), "once only");
        assert!(!table.invalidate(6));
        assert_eq!(
            table.revoke(5, |_| panic!("not asked")),
            Revocation::Now(true, 50)
        );
        assert_eq!(table.revoke(5, |lasts| *lasts), Revocation::Unknown);
    }

    #[test]
    fn the_bound_holds_until_an_exposure_has_ended() {
        let mut table = Small::new(2);
        let first = table.insert(1, true, 10).unwrap();
        table.insert(2, false, 20).unwrap();
        assert!(!table.has_room());
        assert_eq!(table.insert(3, true, 30), Err((true, 30)));
        assert_eq!(table.revoke(1, |lasts| *lasts), Revocation::Later(first));
        assert_eq!(table.insert(3, true, 30), Err((true, 30)));
        assert_eq!(table.revoke(2, |lasts| *lasts), Revocation::Now(false, 20));
        table.insert(3, true, 30).unwrap();
        let mut left: Vec<_> = table.drain().collect();
        left.sort_unstable();
        assert_eq!(left, [(true, 10), (true, 30)]);
        assert_eq!(table.insert(4, true, 40), Err((true, 40)));
        assert_eq!(table.revoke(3, |_| true), Revocation::Unknown);
        assert_eq!(table.ended(first), None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u32, bool),
        Invalidate(u32),
        Revoke(u32),
        Ended(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few keys and slots, so that steps collide.
        prop_oneof![
            (0_u32..12, any::<bool>()).prop_map(|(key, lasts)| Step::Insert(key, lasts)),
            (0_u32..12).prop_map(Step::Invalidate),
            (0_u32..12).prop_map(Step::Revoke),
            (0_u32..8).prop_map(Step::Ended),
        ]
    }

    proptest! {
        /// In any order of operations: memory is returned once, never while a peer may access it,
        /// and a key names one exposure at a time.
        #[test]
        fn memory_comes_back_once_and_never_while_it_is_reachable(
            steps in prop::collection::vec(step(), 0..200), most in 0_u32..8,
        ) {
            let mut table = Small::new(most);
            // Key, slot, lasts, memory, state: 0 live, 1 invalidated, 2 ending.
            let mut model: Vec<(u32, u32, bool, u32, u8)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let memory = number as u32;
                match step {
                    Step::Insert(key, lasts) => {
                        let fits = model.len() < most as usize
                            && model.iter().all(|entry| entry.0 != key);
                        match table.insert(key, lasts, memory) {
                            Ok(slot) => {
                                prop_assert!(fits && slot < most);
                                prop_assert!(model.iter().all(|entry| entry.1 != slot));
                                model.push((key, slot, lasts, memory, 0));
                            }
                            Err(back) => prop_assert!(!fits && back == (lasts, memory)),
                        }
                    }
                    Step::Invalidate(key) => {
                        let found = model.iter_mut().find(|e| e.0 == key && e.4 == 0);
                        prop_assert_eq!(table.invalidate(key), found.is_some());
                        if let Some(entry) = found {
                            entry.4 = 1;
                        }
                    }
                    Step::Revoke(key) => {
                        let at = model.iter().position(|e| e.0 == key && e.4 < 2);
                        match table.revoke(key, |lasts| *lasts) {
                            Revocation::Unknown => prop_assert_eq!(at, None),
                            Revocation::Later(slot) => {
                                let entry = &mut model[at.unwrap()];
                                prop_assert_eq!((entry.1, entry.2, entry.4), (slot, true, 0));
                                entry.4 = 2;
                            }
                            Revocation::Now(lasts, memory) => {
                                let entry = model.remove(at.unwrap());
                                prop_assert_eq!((entry.2, entry.3), (lasts, memory));
                                prop_assert!(!lasts || entry.4 == 1);
                            }
                        }
                    }
                    Step::Ended(slot) => {
                        let at = model.iter().position(|e| e.1 == slot && e.4 == 2);
                        let ended = table.ended(slot);
                        let entry = at.map(|at| model.remove(at));
                        prop_assert_eq!(ended, entry.map(|e| (e.0, e.2, e.3)));
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for entry in &model {
                    prop_assert_eq!(table.get(entry.1), Some((entry.0, &entry.2)));
                }
            }
            let mut left: Vec<_> = table.drain().map(|(_, memory)| memory).collect();
            let mut expected: Vec<_> = model.iter().map(|entry| entry.3).collect();
            left.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(left, expected);
        }
    }
}
