//! Mapping and unmapping memory.

use std::alloc::Layout;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::PageSize;
use crate::populate::Population;

const SMALL_PAGE: usize = 4096;

/// One private, anonymous, resident mapping that is not inherited by forked children.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    page_size: usize,
    kind: Kind,
}

enum Kind {
    /// Mapped by hugepage-rs, which needs the layout to unmap it.
    Default(Layout),
    /// Mapped by memmap2, which unmaps it when dropped.
    Mapped { _map: MmapRaw },
}

// SAFETY: the mapping is plain memory that this value owns; no thread owns it in particular. The
// soundness of accesses to its bytes is argued in `window` and `buffer`.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives the address and the length only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes (a positive multiple of `page_size`) in pages of the system's default
    /// hugepage size, which is `page_size`.
    pub fn default_hugepages(
        len: usize,
        page_size: usize,
        population: &Population,
    ) -> io::Result<Self> {
        assert!(len > 0 && len.is_multiple_of(page_size), "whole pages");
        let layout = Layout::from_size_align(len, page_size)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: the layout's size is not zero. The crate's own look-up of the page size cannot
        // fail, for ours of the same line succeeded.
        let base = unsafe { hugepage_rs::alloc(layout) };
        let base = NonNull::new(base).ok_or_else(io::Error::last_os_error)?;
        let mapping = Self {
            base,
            len,
            page_size,
            kind: Kind::Default(layout),
        };
        mapping.settle(population)?;
        Ok(mapping)
    }

    /// Maps `len` bytes (a positive multiple of the page size) in hugepages of a chosen size.
    pub fn chosen_hugepages(
        len: usize,
        page_size: PageSize,
        population: &Population,
    ) -> io::Result<Self> {
        assert!(
            len > 0 && len.is_multiple_of(page_size.bytes()),
            "whole pages"
        );
        let map = MmapOptions::new()
            .len(len)
            .huge(Some(page_size.bits()))
            .map_anon()?;
        Self::from_map(map.into(), page_size.bytes(), population)
    }

    /// Maps `len` bytes in small pages; with `transparent`, asks the kernel to merge them.
    pub fn small_pages(len: usize, transparent: bool, population: &Population) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).map_anon()?;
        if transparent {
            // This is advice only: a kernel without it uses small pages.
            let _ = map.advise(Advice::HugePage);
        }
        Self::from_map(map.into(), SMALL_PAGE, population)
    }

    fn from_map(map: MmapRaw, page_size: usize, population: &Population) -> io::Result<Self> {
        let len = map.len();
        let base = NonNull::new(map.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self {
            base,
            len,
            page_size,
            kind: Kind::Mapped { _map: map },
        };
        mapping.settle(population)?;
        Ok(mapping)
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Excludes the pages from forked children, since a copy on write would give this process pages
    /// that the adapter does not know, and faults all pages in, so that no request waits for that.
    fn settle(&self, population: &Population) -> io::Result<()> {
        // Miri has mmap, but no madvise.
        if cfg!(miri) {
            return Ok(());
        }
        self.advise(0..self.len, libc::MADV_DONTFORK)?;
        population.in_pieces(self.len, self.page_size, |piece| {
            match self.advise(piece.clone(), libc::MADV_POPULATE_WRITE) {
                // Kernels before 5.14 do not know the advice.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.touch(piece);
                    Ok(())
                }
                outcome => outcome,
            }
        })
    }

    /// Advises on a range of the mapping that begins at a page.
    fn advise(&self, range: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        assert!(range.end <= self.len, "inside the mapping");
        // SAFETY: the range is within our own mapping, and neither advice changes its contents.
        let outcome = unsafe {
            let start = self.base.as_ptr().add(range.start);
            libc::madvise(start.cast(), range.len(), advice)
        };
        if outcome == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn touch(&self, range: Range<usize>) {
        assert!(range.end <= self.len, "inside the mapping");
        for offset in range.step_by(self.page_size) {
            // SAFETY: inside our mapping, as just checked; the constructors call this before they
            // give the mapping out, so nothing else accesses it.
            unsafe { self.base.as_ptr().add(offset).write_volatile(0) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Kind::Default(layout) = self.kind {
            // SAFETY: allocated with this layout in `default_hugepages`; everything that points
            // into it holds the arena that owns this value.
            unsafe { hugepage_rs::dealloc(self.base.as_ptr(), layout) };
        }
    }
}
