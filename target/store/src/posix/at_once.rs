//! Operations that need not wait, on the reactor itself: attributes of open objects, and reads of
//! bytes that are in the page cache.
//!
//! A ring would make these reads on this thread too, and only their completion would come later.

use std::cell::Cell;
use std::rc::Rc;

use millrace_mempool::{Class, Slice};

use super::PosixStore;
use super::data::{DIRECT_LEAST, OFFSET_MAX};
use super::objects::{Object, Use};
use super::sys::transfer::read_cached;
use super::volume::Direct;
use crate::{Attributes, Caller, Handle, ReadOutcome};

/// Most reads of a file that are not tried at once after some whose bytes were not in the page
/// cache.
const PAUSE_MOST: u32 = 64;

/// Whether the reads of a file find their bytes in the page cache.
#[derive(Debug, Default)]
pub(super) struct CacheHits {
    /// Reads that are not to be tried, and how many of them after the next miss.
    left: Cell<u32>,
    pause: Cell<u32>,
}

impl CacheHits {
    /// Whether the next read is to be tried.
    fn expected(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }

    fn hit(&self) {
        self.pause.set(0);
    }

    /// Fewer reads are tried with each miss.
    fn missed(&self) {
        let pause = (self.pause.get() * 2).clamp(1, PAUSE_MOST);
        self.pause.set(pause);
        self.left.set(pause);
    }
}

impl PosixStore {
    /// An object, if it is open and queries of it do not block.
    fn open_object(&self, handle: Handle) -> Option<Rc<Object>> {
        let object = self.inner.objects.find(&handle)?;
        (!object.gone.get() && !object.file_system.slow).then_some(object)
    }

    /// The attributes of an open object.
    pub(crate) fn attributes_at_once(&self, handle: Handle) -> Option<Attributes> {
        self.open_object(handle)?.attributes_at_once().ok()
    }

    /// Whether a read of a file is to be tried at once.
    pub(crate) fn expects_cached(&self, file: Handle) -> bool {
        let object = self.open_object(file);
        object.is_some_and(|object| object.cache_hits.expected())
    }

    /// Reads bytes of an open file that are in the page cache.
    pub(crate) fn read_at_once(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Option<ReadOutcome> {
        // Longer reads may be direct.
        let is_short = u64::from(length) < DIRECT_LEAST && length > 0;
        let end = offset.checked_add(length.into());
        if !is_short
            || end.is_none_or(|end| end > OFFSET_MAX)
            || self.inner.volume.config().direct == Direct::Always
        {
            return None;
        }
        let identity = self.view().known_identity(caller)?;
        let object = self.open_object(file)?;
        if !object.is_known_permitted(&identity, Use::Read) {
            return None;
        }
        let data = object.open_data(Use::Read)?;
        let bytes = length as usize;
        let buffer = self
            .inner
            .engine
            .pool()
            .try_obtain(Class::for_size(bytes)?)?;
        let slice = buffer.into_slice(0..bytes);
        let read = read_cached(&data.file, offset, &slice).unwrap_or(0);
        let attributes = object.attributes_at_once().ok()?;
        let end_of_file = offset + read as u64 >= attributes.size;
        if read < bytes && !end_of_file {
            object.cache_hits.missed();
            return None;
        }
        object.cache_hits.hit();
        if read > 0 {
            slices.push(slice.slice(0..read));
        }
        let counters = &self.inner.data.counters;
        counters.reads_cached.add(1);
        counters.read_bytes.add(read as u64);
        Some(ReadOutcome {
            length: u32::try_from(read).ok()?,
            end_of_file,
            attributes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_reads_are_tried_after_misses_and_all_after_a_hit() {
        let hits = CacheHits::default();
        let tried = |count: usize| (0..count).filter(|_| hits.expected()).count();
        assert_eq!(tried(100), 100);
        let mut distance = Vec::new();
        for _ in 0..9 {
            hits.missed();
            distance.push((1..).find(|_| hits.expected()).unwrap());
        }
        assert_eq!(distance, [2, 3, 5, 9, 17, 33, 65, 65, 65]);
        hits.hit();
        assert_eq!(tried(100), 100);
        hits.missed();
        assert_eq!(tried(3), 2);
    }
}
