//! A reactor's cache of memory keys.
//!
//! Every work request needs the key of its memory. The table of all keys belongs to the [`Device`],
//! behind a lock; a reactor queries it once for every arena and caches the result. Dropped arenas
//! need no notification, as their numbers are never reused.

use std::sync::{Arc, Weak};

use millrace_mempool::RegionId;

use super::device::Device;
use super::sys::Region;

/// The keys of one device in one reactor's cache.
pub struct KeyCache {
    device: Arc<Device>,
    known: Known<Region>,
}

impl KeyCache {
    /// An empty cache.
    pub fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            known: Known::default(),
        }
    }

    /// The local key of this arena; none if the device does not have it (it was removed, or refused
    /// the arena). Takes no lock for a cached arena.
    pub fn local_key(&mut self, arena: RegionId) -> Option<u32> {
        self.find(arena).map(|entry| entry.local_key)
    }

    /// The registration of this arena, for binding windows. The caller also holds a slice of the
    /// arena, which keeps it registered.
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

/// Entries by number. Numbers are sequential, one for each arena ever made.
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
