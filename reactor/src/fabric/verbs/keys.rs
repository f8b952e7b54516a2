//! A reactor's own copy of the keys of its memory.
//!
//! Every work request names the key of the memory that it moves. The table of all keys belongs to
//! the [`Device`], behind a lock; a reactor asks there once for every arena and remembers the
//! answer. It need not be told of arenas that go, for their numbers are never used again.

use std::sync::{Arc, Weak};

use millrace_mempool::RegionId;

use super::device::Device;
use super::sys::Region;

/// The keys of one device, as one reactor knows them.
pub struct KeyCache {
    device: Arc<Device>,
    known: Known<Region>,
}

impl KeyCache {
    /// Nothing known yet.
    pub fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            known: Known::default(),
        }
    }

    /// The key by which work requests name memory of this arena; none if the device does not have
    /// it (it is gone, or refused the arena). Takes no lock for an arena that was asked for before.
    pub fn local_key(&mut self, arena: RegionId) -> Option<u32> {
        self.find(arena).map(|entry| entry.local_key)
    }

    /// The registration of this arena, to bind windows to. Whoever holds it also holds a slice of
    /// the arena, which keeps it registered anyway.
    pub fn region(&mut self, arena: RegionId) -> Option<Arc<Region>> {
        self.find(arena)?.region.upgrade()
    }

    fn find(&mut self, arena: RegionId) -> Option<&KeyEntry<Region>> {
        let device = &self.device;
        self.known.find(arena, |arena| {
            let region = device.region(arena)?;
            Some(KeyEntry {
                local_key: region.local_key(),
                region: Arc::downgrade(&region),
            })
        })
    }
}

struct KeyEntry<R> {
    local_key: u32,
    region: Weak<R>,
}

/// Entries by number. Numbers are given in order, one for each arena that was ever made.
struct Known<R>(Vec<Option<KeyEntry<R>>>);

impl<R> Default for Known<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<R> Known<R> {
    fn find(
        &mut self,
        arena: RegionId,
        ask: impl FnOnce(RegionId) -> Option<KeyEntry<R>>,
    ) -> Option<&KeyEntry<R>> {
        let index = usize::try_from(arena.0).ok()?;
        if self.0.get(index).is_none_or(Option::is_none) {
            let entry = ask(arena)?;
            if self.0.len() <= index {
                self.0.resize_with(index + 1, || None);
            }
            self.0[index] = Some(entry);
        }
        self.0[index].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_asked_for_until_it_is_known_and_then_no_more() {
        let mut known = Known::<()>::default();
        let region = Arc::new(());
        let mut asked = Vec::new();
        assert!(known.find(RegionId(7), |_| None).is_none());
        for arena in [7, 2, 7, 2, 3] {
            let entry = known.find(RegionId(arena), |arena| {
                asked.push(arena.0);
                Some(KeyEntry {
                    local_key: arena.0 * 10,
                    region: Arc::downgrade(&region),
                })
            });
            assert_eq!(entry.map(|entry| entry.local_key), Some(arena * 10));
        }
        assert_eq!(asked, [7, 2, 3]);
        drop(region);
        let entry = known.find(RegionId(7), |_| None).expect("known");
        assert!(entry.region.upgrade().is_none());
    }
}
