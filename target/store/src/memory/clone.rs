//! CLONE: a range of a file as it is at one moment, in another place.
//!
//! Extents have one place in one file, and space is counted by them. So a clone takes the space of a
//! copy, and is one: it holds what the source has at one moment, fills extents that belong to no file
//! yet, in steps, and makes them part of the target in one.

use millrace_mempool::Slice;
use millrace_reactor::task::next_turn;

use super::SIZE_MAX;
use super::data::Reservation;
use super::map::spans;
use super::permission::{require_read, require_write};
use super::space::PAGE;
use super::tree::Tree;
use crate::{Caller, Handle, Modified, Result, StoreError};

/// Unit of ranges.
pub(super) const CLONE_BLOCK: u32 = PAGE as u32;

/// Most bytes, as all of them are held and exchanged in one turn each. Clients copy what is refused.
const CLONE_MAX: u64 = 1 << 30;

/// Bytes that are copied before other tasks have a turn.
const STEP: u64 = 256 << 10;

impl Tree {
    pub async fn clone_range(
        &self,
        caller: &Caller,
        (from, from_offset): (Handle, u64),
        (to, to_offset): (Handle, u64),
        length: u64,
    ) -> Modified<()> {
        let cloned = async {
            let held = self.hold_range(caller, from, from_offset, length)?;
            let mut sinks = Vec::new();
            let mut staged = self.stage_clone(caller, (to, to_offset), length, &mut sinks)?;
            fill(held, sinks, length).await;
            let done = self.commit_reservation(to, &mut staged);
            staged.recycle();
            done
        };
        match cloned.await {
            Ok(consistency) => Modified {
                consistency,
                result: Ok(()),
            },
            Err(error) => Modified {
                consistency: self.unchanged(to),
                result: Err(error),
            },
        }
    }

    /// The bytes of a range as they are now. They stay as they are while the slices are held.
    fn hold_range(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        length: u64,
    ) -> Result<Vec<Slice>> {
        if length > CLONE_MAX {
            return Err(StoreError::TooLarge);
        }
        let inode = self.table.get(handle)?;
        let file = inode.file()?;
        // Nothing is written meanwhile.
        let writer = inode.attributes.lock();
        let stored = writer.stored();
        if stored.is_gone() {
            return Err(StoreError::Stale);
        }
        require_read(caller, inode.judged(&stored))?;
        let end = offset.checked_add(length).filter(|end| *end <= stored.size);
        let end = end.ok_or(StoreError::Invalid)?;
        let is_unit = |bytes: u64| bytes.is_multiple_of(CLONE_BLOCK.into());
        if !is_unit(offset) || !(is_unit(length) || end == stored.size) {
            return Err(StoreError::Invalid);
        }
        let (map, mut held) = (file.map.view(), Vec::new());
        for span in spans(offset, length) {
            let lent = map.cell(span.base).is_some_and(|cell| {
                let sink = |slice| held.push(slice);
                self.space.lend(cell, span.range(), sink)
            });
            if !lent {
                held.push(self.space.zeros(span.range().len()));
            }
        }
        Ok(held)
    }

    /// Reserves the space of a clone.
    fn stage_clone(
        &self,
        caller: &Caller,
        (handle, offset): (Handle, u64),
        length: u64,
        sinks: &mut Vec<Slice>,
    ) -> Result<Box<Reservation>> {
        let inode = self.table.get(handle)?;
        inode.file()?;
        require_write(caller, inode.judged(&inode.attributes.live()?))?;
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX);
        end.ok_or(StoreError::TooLarge)?;
        if !offset.is_multiple_of(CLONE_BLOCK.into()) {
            return Err(StoreError::Invalid);
        }
        self.reserve_write((inode, caller), offset, length, |slice| sinks.push(slice))
    }
}

/// Copies what is held into what is staged.
async fn fill(held: Vec<Slice>, sinks: Vec<Slice>, length: u64) {
    let mut sources = held.into_iter();
    let (mut source, mut at) = (sources.next(), 0);
    let (mut done, mut step_end) = (0, STEP);
    for sink in sinks {
        let mut filled = 0;
        while filled < sink.len() {
            let Some(this) = &source else { return };
            let bytes = (this.len() - at).min(sink.len() - filled);
            sink.copy_from_slice(filled, this, at..at + bytes);
            (at, filled) = (at + bytes, filled + bytes);
            if at == this.len() {
                (source, at) = (sources.next(), 0);
            }
        }
        done += filled as u64;
        if done >= step_end {
            step_end = done + STEP;
            if done < length {
                next_turn().await;
            }
        }
    }
}
