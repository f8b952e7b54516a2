//! Operations that need not wait, on the reactor itself: attributes of open objects, names and rights
//! that the kernel has in memory, and reads of bytes that are in the page cache.
//!
//! A ring makes reads of cached bytes on this thread too, and only their completion comes later. Those
//! of tmpfs it leaves to threads of the kernel.

use std::rc::Rc;

use millrace_mempool::{Class, Slice};

use super::PosixStore;
use super::data::{DIRECT_LEAST, OFFSET_MAX};
use super::objects::{Object, Use};
use super::sys::transfer::read_at;
use super::volume::Direct;
use crate::{AccessMask, Attributes, Caller, Handle, ReadOutcome};

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

    /// The object of a name that the kernel has in memory, in an open directory.
    pub(crate) fn lookup_at_once(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Option<(Handle, Attributes)> {
        let view = self.view();
        let identity = view.known_identity(caller)?;
        let directory = self.open_object(directory)?;
        view.lookup_in_memory(&identity, &directory, name)?.ok()
    }

    /// The rights that a caller has on an open object.
    pub(crate) fn access_at_once(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Option<(AccessMask, Attributes)> {
        let view = self.view();
        let identity = view.known_identity(caller)?;
        view.access_in_memory(&identity, &*self.open_object(object)?, wanted)
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
        let flags = match object.file_system.in_memory {
            true => 0,
            false => libc::RWF_NOWAIT,
        };
        let read = read_at(&data.file, offset, &slice, flags).unwrap_or(0);
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
