//! Space, holes and data of ranges of files.
//!
//! A hole is an extent that the file does not have. What reads lend is not disturbed by a new hole:
//! they hold the extents that they have found, of which the file lets go.

use std::sync::Arc;

use millrace_reactor::task::next_turn;

use super::SIZE_MAX;
use super::attributes::Stored;
use super::inode::{File, Inode};
use super::map::{ExtentSpan, spans};
use super::permission::{require_read, require_write};
use super::space::Space;
use super::tree::Tree;
use crate::{
    Caller, CopiedRange, FoundRange, Handle, Modified, RangeContent, Result, StoreError,
    UsageAdvice,
};

/// Bytes that are looked at or zeroed before other tasks have a turn.
const STEP: u64 = 256 << 10;

/// Bytes that are reserved and not taken yet.
struct ReservedBytes {
    space: Arc<Space>,
    bytes: u64,
}

impl ReservedBytes {
    fn new(space: &Arc<Space>, bytes: u64) -> Result<Self> {
        space.reserve(bytes, 0)?;
        Ok(Self {
            space: Arc::clone(space),
            bytes,
        })
    }

    /// Takes bytes out of it, or reserves others where a hole was made meanwhile.
    fn take(&mut self, bytes: u64) -> Result<()> {
        if self.bytes < bytes {
            return self.space.reserve(bytes, 0);
        }
        self.bytes -= bytes;
        Ok(())
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.space.unreserve(self.bytes);
    }
}

/// Cuts a range into steps.
fn steps(offset: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..length).step_by(STEP as usize);
    starts.map(move |done| (offset + done, STEP.min(length - done)))
}

impl Tree {
    pub async fn allocate(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        length: u64,
    ) -> Modified<()> {
        let inode = match self.table.get(handle) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        let before = inode.unchanged();
        let result = self.fill_holes(caller, &inode, offset, length).await;
        let mut consistency = inode.unchanged();
        consistency.before = before.before;
        Modified {
            consistency,
            result,
        }
    }

    async fn fill_holes(
        &self,
        caller: &Caller,
        inode: &Inode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let file = inode.file()?;
        require_write(caller, inode.judged(&inode.attributes.live()?))?;
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(StoreError::TooLarge)?;
        if length > self.space.total() {
            return Err(StoreError::NoSpace);
        }
        let mut growing = 0;
        for (at, part) in steps(offset, length) {
            let map = file.map.view();
            let holes = spans(at, part).filter(|span| map.get(span.base).is_none());
            // A block at the border of two steps counts in the first one.
            growing += holes
                .filter(|span| span.base >= at || at == offset)
                .map(|span| span.size as u64)
                .sum::<u64>();
            drop(map);
            if at + part < end {
                next_turn().await;
            }
        }
        let mut reserved = ReservedBytes::new(&self.space, growing)?;
        for (at, part) in steps(offset, length) {
            self.fill_step(caller, inode, file, (at, part), &mut reserved)?;
            if at + part < end {
                next_turn().await;
            }
        }
        let mut writer = inode.attributes.lock();
        let mut stored = writer.stored();
        if stored.is_gone() {
            return Err(StoreError::Stale);
        }
        stored.size = stored.size.max(end);
        note_change(caller, &mut stored);
        writer.publish(&stored);
        Ok(())
    }

    /// Puts zeros into the holes of one step.
    fn fill_step(
        &self,
        caller: &Caller,
        inode: &Inode,
        file: &File,
        (at, part): (u64, u64),
        reserved: &mut ReservedBytes,
    ) -> Result<()> {
        let mut writer = inode.attributes.lock();
        let mut stored = writer.stored();
        if stored.is_gone() {
            return Err(StoreError::Stale);
        }
        require_write(caller, inode.judged(&stored))?;
        let mut outcome = Ok(());
        for span in spans(at, part) {
            if file.map.view().get(span.base).is_some() {
                continue;
            }
            outcome = reserved.take(span.size as u64);
            if outcome.is_err() {
                break;
            }
            let extent = self.space.take(span.size);
            self.space.zero(extent, 0..span.size);
            file.map.put(&self.space, span.base, extent);
            stored.used += span.size as u64;
        }
        writer.publish(&stored);
        outcome
    }

    pub fn deallocate(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        length: u64,
    ) -> Modified<()> {
        let inode = match self.table.get(handle) {
            Ok(inode) => inode,
            Err(error) => return Modified::failed(error),
        };
        let before = inode.unchanged();
        let result = self.punch(caller, &inode, offset, offset.saturating_add(length));
        let mut consistency = inode.unchanged();
        consistency.before = before.before;
        Modified {
            consistency,
            result,
        }
    }

    fn punch(&self, caller: &Caller, inode: &Inode, offset: u64, end: u64) -> Result<()> {
        let file = inode.file()?;
        let mut writer = inode.attributes.lock();
        let mut stored = writer.stored();
        if stored.is_gone() {
            return Err(StoreError::Stale);
        }
        require_write(caller, inode.judged(&stored))?;
        if offset >= end || offset >= stored.size {
            return Ok(());
        }
        // Behind the end of the file all is zero, so the last extent goes as a whole.
        let reaches_end = end >= stored.size;
        let end = end.min(stored.size);
        let (first, last) = (span_at(offset), span_at(end - 1));
        let head = first.base
            + if first.start == 0 {
                0
            } else {
                first.size as u64
            };
        let tail = if reaches_end {
            u64::MAX
        } else if end == last.base + last.size as u64 {
            end
        } else {
            last.base
        };
        if first.start > 0 {
            self.zero_part(
                file,
                &first,
                first.start,
                (end - first.base).min(first.size as u64),
            )?;
        }
        let is_one = first.base == last.base && first.start > 0;
        if tail == last.base && end > tail && !is_one {
            self.zero_part(file, &last, 0, end - last.base)?;
        }
        let discarded = (head < tail).then(|| {
            let (freed, discarded) = file.map.punch(&self.space, head, tail);
            stored.used -= freed;
            // Whoever collects extents meanwhile begins again.
            stored.revision += 2;
            discarded
        });
        note_change(caller, &mut stored);
        writer.publish(&stored);
        drop(writer);
        drop(discarded);
        Ok(())
    }

    /// Zeros a part of an extent, whose memory changes only if nobody else has it.
    fn zero_part(&self, file: &File, span: &ExtentSpan, start: usize, end: u64) -> Result<()> {
        let (space, range) = (&self.space, start..end as usize);
        let Some(old) = file.map.view().get(span.base) else {
            return Ok(());
        };
        if space.write_alone(old, || space.zero(old, range.clone())) {
            return Ok(());
        }
        space.reserve(0, span.size as u64)?;
        let fresh = space.take(span.size);
        space.copy_outside(old, fresh, &range);
        space.zero(fresh, range);
        let old = file.map.put(space, span.base, fresh);
        space.release_all(old.into_iter());
        Ok(())
    }

    pub fn seek(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        content: RangeContent,
    ) -> Result<FoundRange> {
        let inode = self.table.get(handle)?;
        let file = inode.file()?;
        let stored = inode.attributes.live()?;
        require_read(caller, inode.judged(&stored))?;
        if offset >= stored.size {
            return Err(StoreError::NoDevice);
        }
        let next = file.map.view().next(offset, content == RangeContent::Data);
        let found = next.unwrap_or(u64::MAX).min(stored.size);
        Ok(FoundRange {
            offset: found,
            end_of_file: found == stored.size,
        })
    }

    /// Copies of memory are made by those who read and write it.
    pub fn copy_range(
        &self,
        _caller: &Caller,
        _from: (Handle, u64),
        _to: (Handle, u64),
        _length: u64,
    ) -> Modified<CopiedRange> {
        Modified::failed(StoreError::NotSupported)
    }

    /// There is nothing to prepare.
    pub fn advise(
        &self,
        _caller: &Caller,
        file: Handle,
        _offset: u64,
        _length: u64,
        _advice: UsageAdvice,
    ) -> Result<bool> {
        self.table.look(file, |inode| inode.file().map(|_| false))
    }
}

/// The extent's place around one byte, from that byte on.
fn span_at(offset: u64) -> ExtentSpan {
    spans(offset, 1).next().expect("there is a byte")
}

fn note_change(caller: &Caller, stored: &mut Stored) {
    stored.touch_modified();
    if caller.uid != 0 {
        stored.clear_set_id();
    }
}
