//! Reading, writing and resizing of files.
//!
//! Reads, and writes to bytes that the file already has, take no lock. What they rely on is this:
//!
//! * Bytes of an extent beyond the end of the file are zero, so a file grows by its size alone.
//!   Hence only bytes inside the file are written in place; all others are staged in extents that
//!   no one else sees before they are committed.
//! * An extent that left a file never comes back to it. Whenever extents leave, the file's
//!   revision moves on (it is odd meanwhile), so who collected extents without a lock can tell
//!   whether they are still the file's: a read begins again, and a commit goes through its extents
//!   under the file's lock and copies what is not in place.
//! * A file that ends inside an extent after it shrank gets a fresh copy of that extent, so that
//!   writes still landing in the old one cannot leave bytes beyond the end.

use std::cell::RefCell;
use std::sync::Arc;

use millrace_mempool::Slice;

use super::attributes::Stored;
use super::extent::Extent;
use super::inode::{File, Handle, Inode};
use super::map::{Span, spans};
use super::permission::{require_read, require_write};
use super::space::{BLOCK, PAGE, Purpose, Space};
use super::tree::Tree;
use super::{SIZE_MAX, lock};
use crate::{
    Caller, Consistency, Modified, ReadOutcome, Result, Stability, StagedWrite, StoreError, Written,
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
pub struct Reservation {
    inode: Option<Arc<Inode>>,
    /// The file's revision when the pieces were found.
    revision: u64,
    clear_set_id: bool,
    /// Whether all pieces were the file's own extents.
    in_place: bool,
    pieces: Vec<Piece>,
}

struct Piece {
    span: Span,
    extent: Arc<Extent>,
    /// Whether the extent is this write's own.
    fresh: bool,
}

impl Reservation {
    fn new(inode: Arc<Inode>, seen: &Stored, caller: &Caller) -> Box<Self> {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let mut reservation = spare.unwrap_or_else(|| {
            let pieces = Vec::new();
            Box::new(Self {
                inode: None,
                revision: 0,
                clear_set_id: false,
                in_place: true,
                pieces,
            })
        });
        reservation.inode = Some(inode);
        reservation.revision = seen.revision;
        reservation.clear_set_id = caller.uid != 0;
        reservation.in_place = true;
        reservation
    }

    fn recycle(mut self: Box<Self>) {
        self.inode = None;
        self.pieces.clear();
        self.pieces.shrink_to(SPARE_PIECES_MAX);
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_RESERVATIONS_MAX {
                spare.push(self);
            }
        });
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
        let mark = slices.len();
        let mut seen = inode.attributes.live()?;
        require_read(caller, &seen)?;
        loop {
            let length = seen.size.saturating_sub(offset).min(length.into());
            let map = file.map.view();
            for span in spans(offset, length) {
                match map.get(span.base) {
                    Some(extent) => extent.slices(span.range(), |slice| slices.push(slice)),
                    None => slices.push(self.space.zeros(span.range().len())),
                }
            }
            let now = inode.attributes.live();
            if now.is_err() || now.as_ref().is_ok_and(|now| now.revision != seen.revision) {
                slices.truncate(mark);
                seen = now?;
                continue;
            }
            inode.note_access(&seen);
            // The attributes from before: bytes may be newer, which a client finds out, but never
            // older than what it is told about them.
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
        let inode = self.table.get(handle)?;
        let file = inode.file()?;
        let mut seen = inode.attributes.live()?;
        require_write(caller, &seen)?;
        let end = offset
            .checked_add(length.into())
            .filter(|end| *end <= SIZE_MAX);
        if end.is_none() {
            return Err(StoreError::TooLarge);
        }
        loop {
            let mut reservation = Reservation::new(inode.clone(), &seen, caller);
            if let Err(error) = self.reserve(file, &seen, offset, length, &mut reservation) {
                reservation.recycle();
                return Err(error);
            }
            let now = inode.attributes.live()?;
            if now.revision != seen.revision {
                reservation.recycle();
                seen = now;
                continue;
            }
            for piece in &reservation.pieces {
                piece
                    .extent
                    .slices(piece.span.range(), |slice| slices.push(slice));
            }
            return Ok(StagedWrite {
                file: handle.into(),
                offset,
                length,
                reservation: Some(reservation),
            });
        }
    }

    /// Finds or allocates the extents of a write.
    fn reserve(
        &self,
        file: &File,
        seen: &Stored,
        offset: u64,
        length: u32,
        reservation: &mut Reservation,
    ) -> Result<()> {
        let map = file.map.view();
        for span in spans(offset, length.into()) {
            let inside = span.file_end() <= seen.size;
            let own = if inside {
                map.get(span.base).cloned()
            } else {
                None
            };
            let fresh = own.is_none();
            let extent = own
                .or_else(|| Extent::allocate(&self.space, span.size, Purpose::Grow))
                .ok_or(StoreError::NoSpace)?;
            reservation.in_place &= !fresh;
            reservation.pieces.push(Piece {
                span,
                extent,
                fresh,
            });
        }
        Ok(())
    }

    pub fn commit_write(
        &self,
        staged: StagedWrite<Option<Box<Reservation>>>,
        _stability: Stability,
    ) -> Modified<Written> {
        let file = staged.file.into();
        let Some(reservation) = staged.reservation else {
            return Modified::failed(StoreError::Invalid);
        };
        let outcome = self.commit_reservation(file, &reservation);
        reservation.recycle();
        match outcome {
            Ok(consistency) => {
                let length = staged.length;
                // Memory is as stable as it gets: what survives is lost with the process only, and
                // then the verifier changes.
                let stability = Stability::FileSync;
                let written = Written {
                    length,
                    stability,
                    verifier: self.verifier,
                };
                Modified {
                    consistency,
                    result: Ok(written),
                }
            }
            Err(error) => {
                let consistency = self.unchanged(file);
                Modified {
                    consistency,
                    result: Err(error),
                }
            }
        }
    }

    fn commit_reservation(&self, file: Handle, reservation: &Reservation) -> Result<Consistency> {
        let inode = self.table.get(file)?;
        if !reservation
            .inode
            .as_ref()
            .is_some_and(|other| Arc::ptr_eq(other, &inode))
        {
            return Err(StoreError::Invalid);
        }
        let Some(last) = reservation.pieces.last() else {
            return Ok(inode.unchanged());
        };
        let finish = |stored: &mut Stored, added: u64| {
            let before = *stored;
            stored.size = stored.size.max(last.span.file_end());
            stored.used += added;
            stored.touch_modified();
            if reservation.clear_set_id {
                stored.clear_set_id();
            }
            inode.changed(&before, stored)
        };

        if reservation.in_place && reservation.revision.is_multiple_of(2) {
            let outcome = inode.attributes.update(|stored| {
                if stored.links == 0 {
                    return Some(Err(StoreError::Stale));
                }
                let in_place = stored.revision == reservation.revision;
                in_place.then(|| Ok(finish(stored, 0)))
            });
            if let Some(outcome) = outcome {
                return outcome;
            }
        }

        let file = inode.file()?;
        let _structure = lock(&file.structure);
        inode.attributes.live()?;
        let replacements = replacements(&self.space, file, reservation)?;
        let mut replacements = replacements.into_iter();
        let mut added = 0;
        for piece in &reservation.pieces {
            let span = piece.span;
            let own = file.map.view().get(span.base).cloned();
            match own {
                Some(extent) if Arc::ptr_eq(&extent, &piece.extent) => {}
                Some(extent) => extent.copy_from(&piece.extent, span.range()),
                None => {
                    let extent = if piece.fresh {
                        piece.extent.clone()
                    } else {
                        let extent = replacements.next().ok_or(StoreError::NoSpace)?;
                        extent.copy_from(&piece.extent, span.range());
                        extent
                    };
                    extent.zero_outside(span.range());
                    added += span.size as u64;
                    file.map.put(span.base, extent);
                }
            }
        }
        Ok(inode.attributes.update(|stored| finish(stored, added)))
    }

    /// Changes attributes of a file, among them its size. A `change` that fails changes nothing.
    pub fn resize(
        &self,
        inode: &Inode,
        file: &File,
        change: impl FnOnce(&mut Stored) -> Result<()>,
    ) -> (Consistency, Result<()>) {
        let _structure = lock(&file.structure);
        let (before, after, result) = inode.attributes.update(|stored| {
            let before = *stored;
            let result = change(stored);
            if stored.size < before.size {
                stored.revision += 1;
            }
            (before, *stored, result)
        });
        if after.size >= before.size {
            return (inode.changed(&before, &after), result);
        }
        let last = cut_last_extent(&self.space, file, after.size);
        let freed = file.map.truncate(after.size, last.as_ref());
        let after = inode.attributes.update(|stored| {
            stored.used -= freed;
            stored.revision += 1;
            *stored
        });
        (inode.changed(&before, &after), result)
    }
}

/// Extents for those pieces whose own extent has left the file, so that a commit fails before it
/// changes anything or not at all.
fn replacements(
    space: &Arc<Space>,
    file: &File,
    reservation: &Reservation,
) -> Result<Vec<Arc<Extent>>> {
    let map = file.map.view();
    let gone = |piece: &&Piece| !piece.fresh && map.get(piece.span.base).is_none();
    let allocate = |piece: &Piece| Extent::allocate(space, piece.span.size, Purpose::Grow);
    let extents: Option<_> = reservation
        .pieces
        .iter()
        .filter(gone)
        .map(allocate)
        .collect();
    extents.ok_or(StoreError::NoSpace)
}

/// What takes the place of the extent in which a file of `size` bytes ends: the same bytes, and
/// zeros beyond.
fn cut_last_extent(space: &Arc<Space>, file: &File, size: u64) -> Option<Arc<Extent>> {
    let extent_size = if size < BLOCK as u64 { PAGE } else { BLOCK };
    let kept = (size % extent_size as u64) as usize;
    if kept == 0 {
        return None;
    }
    let map = file.map.view();
    let old = map.get(size)?;
    let copy = Extent::allocate(space, extent_size, Purpose::Shrink);
    match &copy {
        Some(copy) => {
            copy.copy_from(old, 0..kept);
            copy.zero(kept..extent_size);
        }
        // A full store must still shrink, even when operations in flight hold the spare memory.
        // Only a write that lands in this very extent right now could leave bytes behind, and
        // they are that file's own.
        None => old.zero(kept..extent_size),
    }
    copy
}
