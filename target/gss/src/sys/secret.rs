//! Memory of keys: pages of their own that are not part of core dumps.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::ptr::{self, NonNull};

use zeroize::Zeroize;

/// A value in pages that no core dump has. They are zeroed before they are given back.
pub struct SecretBox<T>(NonNull<T>);

// SAFETY: it owns the value, as a Box does.
unsafe impl<T: Send> Send for SecretBox<T> {}
// SAFETY: it lends the value, as a Box does.
unsafe impl<T: Sync> Sync for SecretBox<T> {}

impl<T> SecretBox<T> {
    /// A page is at least this large, and begins at a multiple of it.
    const ALIGNED: () = assert!(align_of::<T>() <= 4096);

    /// Moves a value there.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn new(value: T) -> Self {
        let () = Self::ALIGNED;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), Self::bytes(), access, kind, -1, 0) };
        assert!(mapped != libc::MAP_FAILED, "memory for keys");
        // SAFETY: the range is that of the new mapping.
        let outcome = unsafe { libc::madvise(mapped, Self::bytes(), libc::MADV_DONTDUMP) };
        if outcome != 0 {
            tracing::debug!("the kernel keeps keys in core dumps");
        }
        let place = NonNull::new(mapped.cast::<T>()).expect("no mapping begins at zero");
        // SAFETY: the mapping has the size of a value and its alignment, and is not used yet.
        unsafe { place.write(value) };
        Self(place)
    }

    /// Bytes of the mapping; a value without size takes a page, too.
    const fn bytes() -> usize {
        if size_of::<T>() == 0 {
            1
        } else {
            size_of::<T>()
        }
    }
}

impl<T> Deref for SecretBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value was written when this was made, and lives as long.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for SecretBox<T> {
    fn drop(&mut self) {
        let bytes = self.0.cast::<u8>();
        // SAFETY: nothing borrows the value any more, and it is not used after this; the mapping
        // was made for it, and has so many bytes.
        unsafe {
            self.0.drop_in_place();
            std::slice::from_raw_parts_mut(bytes.as_ptr(), Self::bytes()).zeroize();
            libc::munmap(bytes.as_ptr().cast(), Self::bytes());
        }
    }
}
