//! Steering tags of one stream: the memory that the peer may read or write.
//!
//! A tag holds the index of its slot, masked with a secret of the stream, and random bits above. A
//! tag is valid on the stream that made it only, since each stream has a table of its own (RFC 5042
//! section 5.2). Slots are reused first in, first out, so that a revoked tag's slot stays unused
//! for as long as possible, and a reused slot has new random bits.

use std::collections::VecDeque;

/// Which remote access an exposure grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer may read.
    RemoteRead,
    /// The peer may write.
    RemoteWrite,
}

/// A new exposure as the peer has to name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// Steering tag.
    pub key: u32,
    /// Tagged offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// What became of a revoked exposure.
#[derive(Debug, PartialEq, Eq)]
pub enum Revocation<L> {
    /// The tag is dead and the memory free.
    Now(L),
    /// The tag is dead; the memory is still being read for the peer.
    Later,
    /// No such exposure.
    Unknown,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Key,
    Bounds,
    Wrap,
    Rights,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyState {
    Free,
    Live,
    /// The peer invalidated it; the memory waits to be fetched.
    Invalidated,
    /// Revoked while the peer's Reads were being answered.
    Dying,
}

#[derive(Debug)]
struct KeySlot<L> {
    key: u32,
    state: KeyState,
    access: Access,
    length: u32,
    /// Reads of the peer's that are not answered in full.
    reads: u32,
    memory: Option<L>,
}

/// The tags of one stream.
#[derive(Debug)]
pub(crate) struct Keys<L> {
    slots: Vec<KeySlot<L>>,
    free: VecDeque<u32>,
    index_mask: u32,
    secret: u32,
    revoked: VecDeque<(u32, L)>,
}

impl<L> Keys<L> {
    /// A table for `count` exposures. `secret` is random.
    pub(crate) fn new(count: u32, secret: u32) -> Self {
        let index_mask = count.max(1).next_power_of_two() - 1;
        Self {
            slots: (0..count)
                .map(|_| KeySlot {
                    key: 0,
                    state: KeyState::Free,
                    access: Access::RemoteRead,
                    length: 0,
                    reads: 0,
                    memory: None,
                })
                .collect(),
            free: (0..count).collect(),
            index_mask,
            secret,
            revoked: VecDeque::with_capacity(count as usize),
        }
    }

    /// Exposes `length` bytes of memory. `random` makes the tag unpredictable. Gives the memory
    /// back if the table is full.
    pub(crate) fn expose(
        &mut self,
        memory: L,
        length: u32,
        access: Access,
        random: u32,
    ) -> Result<Exposed, L> {
        let Some(index) = self.free.pop_front() else {
            return Err(memory);
        };
        let slot = &mut self.slots[index as usize];
        let place = (index ^ self.secret) & self.index_mask;
        let mut key = random & !self.index_mask | place;
        if key == slot.key {
            key ^= self.index_mask.wrapping_add(1);
        }
        *slot = KeySlot {
            key,
            state: KeyState::Live,
            access,
            length,
            reads: 0,
            memory: Some(memory),
        };
        Ok(Exposed {
            key,
            offset: 0,
            length,
        })
    }

    fn find(&self, key: u32) -> Option<u32> {
        let index = (key ^ self.secret) & self.index_mask;
        let slot = self.slots.get(index as usize)?;
        (slot.key == key && slot.state != KeyState::Free).then_some(index)
    }

    /// The slot that an access of the peer's may touch.
    pub(crate) fn check(
        &self,
        key: u32,
        offset: u64,
        length: u32,
        access: Access,
    ) -> Result<u32, Refusal> {
        let index = self.find(key).ok_or(Refusal::Key)?;
        let slot = &self.slots[index as usize];
        if slot.state != KeyState::Live {
            return Err(Refusal::Key);
        }
        if slot.access != access {
            return Err(Refusal::Rights);
        }
        let end = offset.checked_add(u64::from(length)).ok_or(Refusal::Wrap)?;
        if end > u64::from(slot.length) {
            return Err(Refusal::Bounds);
        }
        Ok(index)
    }

    /// The memory of a slot that a check gave.
    pub(crate) fn memory(&self, index: u32) -> Option<&L> {
        self.slots.get(index as usize)?.memory.as_ref()
    }

    /// The peer invalidates a tag; `false` if it may not.
    pub(crate) fn invalidate(&mut self, key: u32) -> bool {
        let Some(index) = self.find(key) else {
            return false;
        };
        let slot = &mut self.slots[index as usize];
        if slot.state != KeyState::Live || slot.reads > 0 {
            return false;
        }
        slot.state = KeyState::Invalidated;
        true
    }

    /// A Read of the peer's begins to use a slot.
    pub(crate) fn open_read(&mut self, index: u32) {
        self.slots[index as usize].reads += 1;
    }

    /// A Read of the peer's is answered.
    pub(crate) fn close_read(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.reads -= 1;
        if slot.state == KeyState::Dying && slot.reads == 0 {
            let key = slot.key;
            if let Some(memory) = self.release(index) {
                self.revoked.push_back((key, memory));
            }
        }
    }

    /// Ends an exposure; tells its slot too, if it had one.
    pub(crate) fn revoke(&mut self, key: u32) -> (Revocation<L>, Option<u32>) {
        let Some(index) = self.find(key) else {
            return (Revocation::Unknown, None);
        };
        let slot = &mut self.slots[index as usize];
        if slot.state == KeyState::Dying {
            return (Revocation::Unknown, None);
        }
        if slot.reads > 0 {
            slot.state = KeyState::Dying;
            return (Revocation::Later, Some(index));
        }
        let memory = self
            .release(index)
            .map_or(Revocation::Unknown, Revocation::Now);
        (memory, Some(index))
    }

    /// A tag after its revocation has taken effect.
    pub(crate) fn take_revoked(&mut self) -> Option<(u32, L)> {
        self.revoked.pop_front()
    }

    /// Whether [`Self::take_revoked`] has something.
    pub(crate) fn has_revoked(&self) -> bool {
        !self.revoked.is_empty()
    }

    fn release(&mut self, index: u32) -> Option<L> {
        let slot = &mut self.slots[index as usize];
        slot.state = KeyState::Free;
        self.free.push_back(index);
        slot.memory.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A small generator of well-mixed numbers for tests.
    fn mixed(seed: &mut u64) -> u32 {
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 32) as u32
    }

    #[test]
    fn rr1_sec_06_keys_have_no_stride_and_rest_before_reuse() {
        let mut seed = 5;
        let mut keys = Keys::new(100, mixed(&mut seed));
        let mut seen = HashSet::new();
        let mut strides = HashSet::new();
        let mut before = 0_u32;
        let mut slots = Vec::new();
        for _ in 0..10_000 {
            let exposed = keys
                .expose((), 1, Access::RemoteRead, mixed(&mut seed))
                .unwrap();
            slots.push(keys.find(exposed.key).unwrap());
            strides.insert(exposed.key.wrapping_sub(before));
            before = exposed.key;
            seen.insert(exposed.key);
            assert_eq!(keys.revoke(exposed.key).0, Revocation::Now(()));
            assert_eq!(keys.revoke(exposed.key).0, Revocation::Unknown);
        }
        assert!(seen.len() > 9_900, "{} different keys", seen.len());
        assert!(strides.len() > 9_900, "{} different strides", strides.len());
        for pair in slots.windows(100) {
            assert_eq!(pair.iter().collect::<HashSet<_>>().len(), 100);
        }
    }

    #[test]
    fn rr1_sec_06_a_key_is_never_the_last_one_of_its_slot() {
        for random in [0, u32::MAX] {
            let (mut keys, mut last) = (Keys::new(1, 9), None);
            for _ in 0..3 {
                let exposed = keys.expose((), 10, Access::RemoteRead, random).unwrap();
                assert_ne!(Some(exposed.key), last);
                assert!(keys.check(exposed.key, 0, 10, Access::RemoteRead).is_ok());
                assert_eq!(keys.revoke(exposed.key).0, Revocation::Now(()));
                last = Some(exposed.key);
            }
        }
    }

    #[test]
    fn rr1_sec_10_access_is_checked_without_overflow() {
        let mut keys = Keys::new(4, 0x55);
        let readable = keys
            .expose((), 100, Access::RemoteRead, 0x1234_5678)
            .unwrap()
            .key;
        let writable = keys
            .expose((), 100, Access::RemoteWrite, 0x8765_4321)
            .unwrap()
            .key;
        let read = |offset, length| keys.check(readable, offset, length, Access::RemoteRead);
        assert!(read(0, 100).is_ok() && read(99, 1).is_ok() && read(100, 0).is_ok());
        assert_eq!(read(0, 101), Err(Refusal::Bounds));
        assert_eq!(read(100, 1), Err(Refusal::Bounds));
        assert_eq!(read(u64::MAX, 0), Err(Refusal::Bounds));
        assert_eq!(read(u64::MAX, 1), Err(Refusal::Wrap));
        assert_eq!(read(u64::MAX - 5, u32::MAX), Err(Refusal::Wrap));
        let write = |key| keys.check(key, 0, 1, Access::RemoteWrite);
        assert_eq!(write(readable), Err(Refusal::Rights));
        assert!(write(writable).is_ok());
        assert_eq!(write(writable ^ 0x8000_0000), Err(Refusal::Key));
        assert_eq!(
            keys.check(writable, 0, 1, Access::RemoteRead),
            Err(Refusal::Rights)
        );
    }

    #[test]
    fn a_revoked_key_waits_for_its_open_reads() {
        let mut keys = Keys::new(1, 9);
        let key = keys
            .expose("memory", 10, Access::RemoteRead, 77)
            .unwrap()
            .key;
        let slot = keys.check(key, 0, 10, Access::RemoteRead).unwrap();
        keys.open_read(slot);
        keys.open_read(slot);
        assert!(!keys.invalidate(key));
        assert_eq!(keys.revoke(key), (Revocation::Later, Some(slot)));
        assert_eq!(keys.check(key, 0, 1, Access::RemoteRead), Err(Refusal::Key));
        assert_eq!(keys.revoke(key).0, Revocation::Unknown);
        keys.close_read(slot);
        assert!(!keys.has_revoked() && keys.take_revoked().is_none());
        keys.close_read(slot);
        assert!(keys.has_revoked());
        assert_eq!(keys.take_revoked(), Some((key, "memory")));
        assert!(keys.expose("next", 1, Access::RemoteRead, 77).is_ok());
    }

    #[test]
    fn an_invalidated_key_is_dead_and_its_memory_waits() {
        let mut keys = Keys::new(2, 1);
        let key = keys.expose(7, 10, Access::RemoteWrite, 77).unwrap().key;
        assert!(keys.invalidate(key));
        assert!(!keys.invalidate(key));
        assert_eq!(
            keys.check(key, 0, 1, Access::RemoteWrite),
            Err(Refusal::Key)
        );
        assert_eq!(keys.revoke(key).0, Revocation::Now(7));
    }
}
