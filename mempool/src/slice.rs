//! Slices: registered address ranges that keep their memory alive.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::RegionId;
use crate::arena::{Arena, SharedArena};
use crate::buffer::{Buffer, Lease};
use crate::window::{Keeper, Window};

/// A range of registered memory, for fabric and storage operations.
///
/// Clones share the memory. Dropping the last one returns the buffer to its pool, or drops the
/// reference to the arena. An adapter, the kernel or another thread may write the bytes at any
/// time. So there is no safe reference to them, only copies, which are as untrusted as a peer's
/// bytes.
#[derive(Clone)]
pub struct Slice {
    window: Window<Owner>,
}

#[derive(Clone)]
enum Owner {
    Pool(Lease),
    Shared(SharedArena),
    Lent(Loan),
}

impl Keeper for Owner {
    fn arena(&self) -> &Arc<Arena> {
        match self {
            Self::Pool(lease) => lease.arena(),
            Self::Shared(arena) => arena.arena(),
            Self::Lent(loan) => loan.lender.arena(loan.number).arena(),
        }
    }
}

/// Lends parts of arenas and counts the slices of each part, so that lending allocates nothing.
/// Safety does not depend on the counts: a slice keeps its lender alive, and the lender its arenas.
///
/// # Safety
/// [`Lender::arena`] returns the same arena for a number as long as the lender exists: slices keep
/// the lender only, and address the memory of the arena that it named first.
pub unsafe trait Lender: Send + Sync {
    /// The arena that the part is in.
    fn arena(&self, number: u64) -> &SharedArena;

    /// Adds one to the count of a part that is lent.
    fn retain(&self, number: u64);

    /// Takes one from the count; at zero the lender may use the part again.
    fn release(&self, number: u64);
}

/// One count of a part, taken back when dropped.
struct Loan {
    lender: Arc<dyn Lender>,
    number: u64,
}

impl Clone for Loan {
    fn clone(&self) -> Self {
        self.lender.retain(self.number);
        Self {
            lender: Arc::clone(&self.lender),
            number: self.number,
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lender.release(self.number);
    }
}

impl Slice {
    pub(crate) fn of_pool(lease: Lease, range: Range<usize>) -> Self {
        let window = Window::of_keeper(Owner::Pool(lease), range, |owner| match owner {
            Owner::Pool(lease) => lease.window(),
            Owner::Shared(_) | Owner::Lent(_) => unreachable!("just made"),
        });
        Self { window }
    }

    /// A slice of memory that belongs to no pool, such as a store's.
    ///
    /// # Panics
    /// If the range is not inside the arena.
    pub fn shared(arena: &SharedArena, range: Range<usize>) -> Self {
        Self {
            window: Window::new(Owner::Shared(arena.clone()), range),
        }
    }

    /// A slice of a part of a lender. It takes over one count that the caller has added, and
    /// releases it when dropped. Each clone adds its own.
    ///
    /// # Panics
    /// If the range is not inside the part's arena.
    pub fn lent(lender: Arc<dyn Lender>, number: u64, range: Range<usize>) -> Self {
        let owner = Owner::Lent(Loan { lender, number });
        Self {
            window: Window::new(owner, range),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.window.len()
    }

    /// Whether the slice has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arena that holds the bytes.
    pub fn region(&self) -> RegionId {
        self.window.region()
    }

    /// The first byte. The pointer is valid while a slice of the memory is held.
    pub fn as_ptr(&self) -> *mut u8 {
        self.window.start().as_ptr()
    }

    /// A part of this slice, counted from its start.
    ///
    /// # Panics
    /// If the range is not inside the slice.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut part = self.clone();
        part.window.narrow(range);
        part
    }

    /// The parts before and from `at`.
    ///
    /// # Panics
    /// If `at` lies beyond the end.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let tail = self.slice(at..self.len());
        let mut head = self;
        head.window.truncate(at);
        (head, tail)
    }

    /// The whole pool buffer again, when this is the only slice of it.
    ///
    /// # Errors
    /// The slice itself, when others share the buffer or it is not a pool's.
    pub fn try_into_buffer(self) -> Result<Buffer, Self> {
        match self.window.keeper() {
            Owner::Pool(lease) if lease.is_sole() => match self.window.into_keeper() {
                Owner::Pool(lease) => Ok(Buffer::new(lease)),
                Owner::Shared(_) | Owner::Lent(_) => unreachable!("just matched"),
            },
            _ => Err(self),
        }
    }

    /// Copies `bytes` into the slice from `offset` on.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy_from(&self, offset: usize, bytes: &[u8]) {
        self.window.copy_from(offset, bytes);
    }

    /// Copies from the slice, from `offset` on, all of `bytes`.
    ///
    /// # Panics
    /// If the slice holds fewer.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        self.window.copy_to(offset, bytes);
    }

    /// Copies `range` of another slice into this one from `offset` on; they may overlap.
    ///
    /// # Panics
    /// If the range is not inside `from`, or does not fit here.
    pub fn copy_from_slice(&self, offset: usize, from: &Self, range: Range<usize>) {
        let len = range
            .end
            .checked_sub(range.start)
            .expect("a range in order");
        self.window
            .copy_within_arenas(offset, &from.window, range.start, len);
    }

    /// Fills a range with zeros.
    ///
    /// # Panics
    /// If the range is not inside the slice.
    pub fn fill_zero(&self, range: Range<usize>) {
        self.window.fill(range, 0);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Slice")
            .field("region", &self.region())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
