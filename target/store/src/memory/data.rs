//! Reading, writing and resizing of files.
//!
//! A write changes a file only when it is committed. It is staged in extents of its own, one for
//! each extent of the file that it covers. The commit makes them part of the file in one step, with
//! the file's attributes locked:
//!
//! * A write within one page of a large extent is staged in a page, and copied into the extent. If
//!   the extent is lent, a copy of it that has the new bytes replaces it.
//! * An extent that is written completely replaces the old one, without a copy. The old one is
//!   freed when its last reference is dropped, for example by a READ whose reply is being sent.
//! * Of an extent that is written partly, the smaller part is copied. If the file has the only
//!   reference, the new bytes may be copied into the old extent, with readers excluded. Otherwise
//!   the rest of the old extent is copied into the new one, which replaces it. So memory that a
//!   READ lends never changes.
//! * Size, mode and times are published after the bytes. A reader of the new attributes sees the
//!   new bytes. A reader of the new bytes may still get the old attributes.
//! * Rights and space are checked first, so that a commit is done completely or not at all.
//!
//! Reads take no lock. Of each extent they see the old or the new one. They rely on two invariants:
//!
//! * Bytes of an extent beyond the end of the file are zero, so growing a file changes its size
//!   only.
//! * When a file shrinks and loses extents, its revision changes, and is odd during the change. A
//!   reader that collected extents without a lock sees that and starts again.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use millrace_mempool::Slice;

use super::SIZE_MAX;
use super::attributes::Stored;
use super::extent::Extent;
use super::inode::{File, Inode};
use super::map::{ExtentSpan, spans};
use super::permission::{require_read, require_write};
use super::space::{BLOCK, PAGE, Space};
use super::tree::Tree;
use crate::{
    Caller, Consistency, Handle, Modified, ReadOutcome, Result, Stability, StagedWrite, StoreError,
    Written,
};

/// Reservations that a thread keeps for reuse.
const SPARE_RESERVATIONS_MAX: usize = 256;
/// Room for pieces that a spare reservation may keep: a write of 4 MiB.
const SPARE_PIECES_MAX: usize = 128;

thread_local! {
    /// So that a steady stream of writes allocates nothing.
    #[allow(clippy::vec_box)] // The box is what is reused.
    static SPARE: RefCell<Vec<Box<Reservation>>> = const { RefCell::new(Vec::new()) };
}

/// What a staged write holds until it is committed or dropped.
#[derive(Default)]
pub struct Reservation {
    target: Option<WriteTarget>,
    pieces: Vec<WritePiece>,
}

/// The file of a write, and the caller.
struct WriteTarget {
    inode: Arc<Inode>,
    space: Arc<Space>,
    caller: Caller,
}

/// The part of a write that falls into one extent of the file.
struct WritePiece {
    span: ExtentSpan,
    /// The extent that holds the staged bytes, at their offset in the file's extent, or in its page
    /// where that is staged. After the commit, the extent that the file no longer uses.
    extent: Option<Extent>,
    /// Whether the file had no extent there when the write was staged.
    in_hole: bool,
    /// Whether it is the only piece, and staged in one page of a larger extent: 4 KiB of the
    /// store's memory while it is under way, where a large extent would be 64 KiB.
    in_page: bool,
}

impl WritePiece {
    fn is_whole(&self) -> bool {
        self.span.range().len() == self.span.size
    }

    /// Bytes of the extent in which it is staged.
    fn staged_size(&self) -> usize {
        if self.in_page { PAGE } else { self.span.size }
    }

    /// The range of the staged bytes in their extent.
    fn staged_range(&self) -> Range<usize> {
        let Range { start, end } = self.span.range();
        if self.in_page {
            let first = start % PAGE;
            return first..first + (end - start);
        }
        start..end
    }
}

impl Reservation {
    fn new() -> Box<Self> {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    fn release(&mut self) {
        if let Some(target) = self.target.take() {
            let extents = self.pieces.iter_mut();
            let extents = extents.filter_map(|piece| piece.extent.take());
            target.space.release_all(extents);
        }
        self.pieces.clear();
    }

    pub(super) fn recycle(mut self: Box<Self>) {
        self.release();
        self.pieces.shrink_to(SPARE_PIECES_MAX);
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_RESERVATIONS_MAX {
                spare.push(self);
            }
        });
    }
}

/// A write that is dropped has no effect. Memory that a fabric may still write to stays allocated
/// until the slices are dropped.
impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

impl Tree {
    pub fn read(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        let read = |inode: &Inode| self.read_inode(caller, inode, offset, length, slices);
        self.table.look(handle, read)
    }

    fn read_inode(
        &self,
        caller: &Caller,
        inode: &Inode,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        let file = inode.file()?;
        let before = slices.len();
        let mark = inode.attributes.mark();
        let mut seen = inode.attributes.live()?;
        require_read(caller, inode.judged(&seen))?;
        loop {
            let length = seen.size.saturating_sub(offset).min(length.into());
            let map = file.map.view();
            for span in spans(offset, length) {
                let lent = map.cell(span.base).is_some_and(|cell| {
                    let sink = |slice| slices.push(slice);
                    self.space.lend(cell, span.range(), sink)
                });
                if !lent {
                    slices.push(self.space.zeros(span.range().len()));
                }
            }
            if !inode.attributes.is_at(mark) {
                let now = inode.attributes.live();
                if now.is_err() || now.as_ref().is_ok_and(|now| now.revision != seen.revision) {
                    slices.truncate(before);
                    seen = now?;
                    continue;
                }
            }
            inode.note_access(&seen);
            // The attributes were loaded before the bytes. So bytes may be newer than the returned
            // attributes, which a client detects later, but never older.
            return Ok(ReadOutcome {
                length: length as u32,
                end_of_file: offset.saturating_add(length) >= seen.size,
                attributes: inode.show(&seen),
            });
        }
    }

    pub fn stage_write(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Option<Box<Reservation>>>> {
        self.stage(caller, handle, offset, length, |slice| slices.push(slice))
    }

    /// Stages a write. The slices of its memory are passed to `sink` in order.
    pub(super) fn stage(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        length: u32,
        sink: impl FnMut(Slice),
    ) -> Result<StagedWrite<Option<Box<Reservation>>>> {
        let inode = self.table.get(handle)?;
        inode.file()?;
        require_write(caller, inode.judged(&inode.attributes.live()?))?;
        let end = offset
            .checked_add(length.into())
            .filter(|end| *end <= SIZE_MAX);
        if end.is_none() {
            return Err(StoreError::TooLarge);
        }
        let reservation = self.reserve_write((inode, caller), offset, length.into(), sink)?;
        Ok(StagedWrite {
            file: handle,
            offset,
            length,
            reservation: Some(reservation),
        })
    }

    /// Takes the extents that a write needs. Their slices are passed to `sink` in order.
    pub(super) fn reserve_write(
        &self,
        (inode, caller): (Arc<Inode>, &Caller),
        offset: u64,
        length: u64,
        mut sink: impl FnMut(Slice),
    ) -> Result<Box<Reservation>> {
        let mut reservation = Reservation::new();
        if let Err(error) = self.reserve(inode.file()?, offset, length, &mut reservation.pieces) {
            reservation.recycle();
            return Err(error);
        }
        for piece in &mut reservation.pieces {
            let extent = self.space.take(piece.staged_size());
            piece.extent = Some(extent);
            self.space.slices(extent, piece.staged_range(), &mut sink);
        }
        reservation.target = Some(WriteTarget {
            inode,
            space: self.space.clone(),
            caller: caller.clone(),
        });
        Ok(reservation)
    }

    /// Finds the pieces of a write and reserves their bytes.
    fn reserve(
        &self,
        file: &File,
        offset: u64,
        length: u64,
        pieces: &mut Vec<WritePiece>,
    ) -> Result<()> {
        let (mut growing, mut replacing) = (0, 0);
        let map = file.map.view();
        let page = PAGE as u64;
        let is_in_page = offset % page + length <= page;
        for span in spans(offset, length) {
            let in_hole = map.get(span.base).is_none();
            let piece = WritePiece {
                span,
                extent: None,
                in_hole,
                in_page: is_in_page && !in_hole && span.size > PAGE,
            };
            let bytes = if piece.in_hole {
                &mut growing
            } else {
                &mut replacing
            };
            *bytes += piece.staged_size() as u64;
            pieces.push(piece);
        }
        self.space.reserve(growing, replacing)
    }

    pub fn commit_write(
        &self,
        staged: StagedWrite<Option<Box<Reservation>>>,
        _stability: Stability,
    ) -> Modified<Written> {
        let file = staged.file;
        let Some(mut reservation) = staged.reservation else {
            return Modified::failed(StoreError::Invalid);
        };
        let outcome = self.commit_reservation(file, &mut reservation);
        reservation.recycle();
        match outcome {
            Ok(consistency) => self.written(staged.length, consistency),
            Err(error) => {
                let consistency = self.unchanged(file);
                Modified {
                    consistency,
                    result: Err(error),
                }
            }
        }
    }

    /// The outcome of a write of so many bytes.
    pub(super) fn written(&self, length: u32, consistency: Consistency) -> Modified<Written> {
        let written = Written {
            length,
            // Memory is as stable as it gets: what survives is lost with the process only, and then
            // the verifier changes.
            stability: Stability::FileSync,
            verifier: self.verifier,
        };
        Modified {
            consistency,
            result: Ok(written),
        }
    }

    /// Much may have changed since the write was staged: everything is checked again, with others
    /// kept out, before anything is changed.
    pub(super) fn commit_reservation(
        &self,
        file: Handle,
        reservation: &mut Reservation,
    ) -> Result<Consistency> {
        let Reservation { target, pieces } = reservation;
        let target = target.as_ref().ok_or(StoreError::Invalid)?;
        let inode = &*target.inode;
        if inode.handle != file.into() {
            return Err(StoreError::Invalid);
        }
        let (file, space) = (inode.file()?, &self.space);
        for piece in &*pieces {
            if let (true, Some(extent)) = (piece.in_hole, piece.extent) {
                space.zero_outside(extent, &piece.span.range());
            }
        }

        let mut writer = inode.attributes.lock();
        let before = writer.stored();
        if before.is_gone() {
            return Err(StoreError::Stale);
        }
        require_write(&target.caller, inode.judged(&before))?;
        let Some(end) = pieces.last().map(|piece| piece.span.file_end()) else {
            return Ok(inode.changed(&before, &before));
        };
        let map = file.map.view();
        let mut stored = before;
        match &mut pieces[..] {
            [piece] if piece.in_page => {
                let old = map.get(piece.span.base);
                stored.used += put_page(space, file, piece, old)?;
            }
            pieces => {
                let was_cut =
                    |piece: &WritePiece| !piece.in_hole && map.get(piece.span.base).is_none();
                if pieces.iter().any(was_cut) && !space.may_keep_replacing() {
                    return Err(StoreError::NoSpace);
                }
                for piece in pieces {
                    let old = map.get(piece.span.base);
                    stored.used += put_piece(space, file, piece, old);
                }
            }
        }
        stored.note_write(end, &target.caller);
        writer.publish(&stored);
        Ok(inode.changed(&before, &stored))
    }

    /// Changes attributes of a file, among them its size. A `change` that fails changes nothing.
    pub fn resize(
        &self,
        inode: &Inode,
        file: &File,
        change: impl FnOnce(&mut Stored) -> Result<()>,
    ) -> (Consistency, Result<()>) {
        let mut writer = inode.attributes.lock();
        let before = writer.stored();
        let mut stored = before;
        let result = change(&mut stored);
        if stored.size >= before.size {
            writer.publish(&stored);
            return (inode.changed(&before, &stored), result);
        }
        stored.revision += 1;
        writer.publish(&stored);
        let last = cut_last_extent(&self.space, file, stored.size);
        let (freed, discarded) = file.map.truncate(&self.space, stored.size, last);
        stored.used -= freed;
        stored.revision += 1;
        writer.publish(&stored);
        drop(writer);
        drop(discarded);
        (inode.changed(&before, &stored), result)
    }
}

/// Makes a piece of a write part of a file whose attributes the caller has locked, in place of an
/// extent, if there is one. Returns the bytes that the file takes more.
fn put_piece(space: &Arc<Space>, file: &File, piece: &mut WritePiece, old: Option<Extent>) -> u64 {
    let Some(fresh) = piece.extent.take() else {
        return 0;
    };
    let (span, range) = (piece.span, piece.span.range());
    match old {
        Some(old) if !piece.is_whole() => {
            let is_small = range.len() <= span.size / 2;
            let copy = || space.copy(fresh, old, range.clone());
            if is_small && space.write_alone(old, copy) {
                piece.extent = Some(fresh);
                return 0;
            }
            space.copy_outside(old, fresh, &range);
        }
        None if !piece.in_hole => space.zero_outside(fresh, &range),
        Some(_) | None => {}
    }
    piece.extent = file.map.put(space, span.base, fresh);
    match piece.extent {
        Some(_) => 0,
        None => span.size as u64,
    }
}

/// The same for a write of one piece that was staged in a page.
///
/// # Errors
/// Of [`Space::reserve`], if the piece needs an extent of its own and there is no memory for that.
/// Nothing is changed then.
fn put_page(
    space: &Arc<Space>,
    file: &File,
    piece: &mut WritePiece,
    old: Option<Extent>,
) -> Result<u64> {
    let Some(page) = piece.extent else {
        return Ok(0);
    };
    let (range, staged) = (piece.span.range(), piece.staged_range());
    let copy = |to| space.copy_at((page, staged.start), to, range.clone());
    if let Some(old) = old
        && space.write_alone(old, || copy(old))
    {
        return Ok(0);
    }
    let size = piece.span.size;
    let bytes = size as u64;
    let fresh = match old {
        Some(old) => {
            space.reserve(0, bytes)?;
            let fresh = space.take(size);
            space.copy_outside(old, fresh, &range);
            fresh
        }
        None => {
            space.reserve(bytes, 0)?;
            let fresh = space.take(size);
            space.zero_outside(fresh, &range);
            fresh
        }
    };
    copy(fresh);
    space.release(page);
    piece.extent = file.map.put(space, piece.span.base, fresh);
    Ok(if piece.extent.is_some() { 0 } else { bytes })
}

/// Zeros what follows the end of a file of `size` bytes in the extent in which it ends. Returns
/// what takes the place of that extent, where it is lent.
fn cut_last_extent(space: &Arc<Space>, file: &File, size: u64) -> Option<Extent> {
    let extent_size = if size < BLOCK as u64 { PAGE } else { BLOCK };
    let kept = (size % extent_size as u64) as usize;
    if kept == 0 {
        return None;
    }
    let old = file.map.view().get(size)?;
    if space.write_alone(old, || space.zero(old, kept..extent_size)) {
        return None;
    }
    if space.reserve(0, extent_size as u64).is_err() {
        // A full store must still shrink, even when operations in flight hold the spare memory. A
        // READ that holds it may then return zeros in place of the truncated bytes.
        space.zero(old, kept..extent_size);
        return None;
    }
    let copy = space.take(extent_size);
    space.copy(old, copy, 0..kept);
    space.zero(copy, kept..extent_size);
    Some(copy)
}
