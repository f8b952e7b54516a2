//! Texts of symbolic links.

use std::sync::Arc;

use super::cost::SHORT_TEXT_MAX;
use super::extent::Extent;
use super::space::{PAGE, Space};
use crate::Result;

/// The text of a symbolic link.
pub(super) enum LinkText {
    Short(Box<[u8]>),
    /// In a page of the store's memory, so that long texts take no more than the store's size.
    Long(PageText),
}

/// The only holder of a page.
pub(super) struct PageText {
    space: Arc<Space>,
    page: Extent,
    length: usize,
}

impl LinkText {
    /// # Errors
    /// [`crate::StoreError::NoSpace`] where there is no page for it.
    pub fn new(space: &Arc<Space>, text: &[u8]) -> Result<Self> {
        debug_assert!(text.len() <= PAGE);
        if text.len() <= SHORT_TEXT_MAX {
            return Ok(Self::Short(text.into()));
        }
        space.reserve(PAGE as u64, 0)?;
        let page = space.take(PAGE);
        space.slices(page, 0..text.len(), |slice| slice.copy_from(0, text));
        Ok(Self::Long(PageText {
            space: space.clone(),
            page,
            length: text.len(),
        }))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Short(text) => text.len(),
            Self::Long(text) => text.length,
        }
    }

    /// What it takes from the heap.
    pub fn heap_bytes(&self) -> u64 {
        match self {
            Self::Short(text) => text.len() as u64,
            Self::Long(_) => 0,
        }
    }

    /// Appends the text.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Short(text) => bytes.extend_from_slice(text),
            Self::Long(text) => {
                let start = bytes.len();
                bytes.resize(start + text.length, 0);
                let sink = &mut bytes[start..];
                text.space
                    .slices(text.page, 0..text.length, |slice| slice.copy_to(0, sink));
            }
        }
    }
}

impl Drop for PageText {
    fn drop(&mut self) {
        self.space.release(self.page);
    }
}
