//! Writes of bytes that are at hand.

use super::SIZE_MAX;
use super::inode::Inode;
use super::map::{ExtentSpan, spans};
use super::permission::require_write;
use super::space::PAGE;
use super::tree::Tree;
use crate::{Caller, Consistency, Handle, Modified, Result, Stability, StoreError, Written};

/// Most bytes that are copied into an extent while its readers wait.
const IN_PLACE_MAX: usize = 2 * PAGE;

impl Tree {
    /// Writes bytes.
    ///
    /// # Errors
    /// Those of a staged write and its commit. Nothing has been changed then.
    pub fn write(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Modified<Written>> {
        let length = u32::try_from(bytes.len()).map_err(|_| StoreError::TooLarge)?;
        let overwrite = |inode: &Inode| Ok(self.overwrite(caller, inode, offset, bytes));
        if let Some(consistency) = self.table.look(handle, overwrite)? {
            return Ok(self.written(length, consistency));
        }
        let mut rest = bytes;
        let staged = self.stage(caller, handle, offset, length, |slice| {
            let (part, behind) = rest.split_at(slice.len());
            slice.copy_from(0, part);
            rest = behind;
        })?;
        let done = self.commit_write(staged, Stability::FileSync);
        done.result?;
        Ok(done)
    }

    /// Copies bytes into an extent that the file has. `None` if that is not possible, or the write
    /// is not allowed: it has had no effect then.
    fn overwrite(
        &self,
        caller: &Caller,
        inode: &Inode,
        offset: u64,
        bytes: &[u8],
    ) -> Option<Consistency> {
        let file = inode.file().ok()?;
        let (span, end) = only_span(offset, bytes.len())?;
        let mut writer = inode.attributes.lock();
        let before = writer.stored();
        if before.is_gone() || require_write(caller, inode.judged(&before)).is_err() {
            return None;
        }
        let extent = file.map.view().get(span.base)?;
        if !self.space.overwrite(extent, span.start, bytes) {
            return None;
        }
        let mut stored = before;
        stored.note_write(end, caller);
        writer.publish(&stored);
        Some(inode.changed(&before, &stored))
    }
}

/// The part of one extent that a small write is in, and where it ends in the file.
fn only_span(offset: u64, length: usize) -> Option<(ExtentSpan, u64)> {
    let end = offset.checked_add(length as u64)?;
    if length > IN_PLACE_MAX || end > SIZE_MAX {
        return None;
    }
    let mut spans = spans(offset, length as u64);
    let first = spans.next()?;
    spans.next().is_none().then_some((first, end))
}
