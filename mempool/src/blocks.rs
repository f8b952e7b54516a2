//! Free buffers by class, and how memory moves between classes.
//!
//! A buffer of any class but the smallest can be split into buffers of the next smaller class. The
//! [`Block`] of these parts owns the split buffer. When all parts are free, the buffer is whole
//! again, so memory that one class no longer needs is free for every class.
//!
//! Each class has a reserve, made at the start, so that bulk data cannot starve control traffic or
//! the reverse. All other memory goes to the class that asks first. Buffers come from the reserve
//! first and then from buffers that are split already, so that as many as possible stay whole.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::Class;
use crate::arena::Arena;
use crate::buffer::BufferSlot;
use crate::gauges::PoolGauges;
use crate::plan::{PARTS, Reserves};
use crate::pool::Inner;
use crate::window::Window;

/// No block.
pub(crate) const NONE: u32 = u32::MAX;

/// Buffers of one class that belong together.
struct Block {
    class: Class,
    /// For this class only.
    is_kept: bool,
    /// The buffer that is split into these parts; none where they are never joined again.
    whole: Option<Rc<BufferSlot>>,
    /// Its buffers that are free.
    free: Vec<Rc<BufferSlot>>,
    total: usize,
    previous: u32,
    next: u32,
}

/// The blocks of a class that have free buffers, and how many buffers that are.
#[derive(Clone, Copy)]
struct BlockList {
    head: u32,
    free: usize,
}

impl BlockList {
    const EMPTY: Self = Self {
        head: NONE,
        free: 0,
    };
}

pub(crate) struct Blocks {
    blocks: Vec<Block>,
    /// Of each class: blocks of shared memory, and of the reserve.
    lists: [[BlockList; 2]; 3],
    /// Buffers of the largest class that are whole and may be split.
    splits: usize,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            lists: [[BlockList::EMPTY; 2]; 3],
            splits: 0,
        }
    }
}

impl Blocks {
    /// Adds an arena, for the classes that need it.
    pub fn add(&mut self, arena: &Arc<Arena>, pool: &Weak<Inner>, gauges: &PoolGauges) {
        let class = Class::Large;
        let count = arena.len() / class.size();
        let slot = |index: usize| {
            let start = index * class.size();
            let window = Window::new(Arc::clone(arena), start..start + class.size());
            Rc::new(BufferSlot::new(window, class, Weak::clone(pool)))
        };
        self.add_block(class, false, (0..count).rev().map(slot).collect(), gauges);
        self.splits += count;
    }

    /// Makes the reserves out of the first arena.
    pub fn reserve(&mut self, bytes: usize, gauges: &PoolGauges) {
        let Reserves {
            mut control,
            mut medium,
            split,
            large,
        } = Reserves::of(bytes);
        for _ in 0..split {
            let Some(whole) = self.pop_from(Class::Large, false) else {
                break;
            };
            gauges.class(Class::Large).take_capacity(1);
            // The reserve is never joined to the whole buffer again.
            let mut parts = whole.parts().into_iter();
            let split: Vec<_> = parts.by_ref().take(control).collect();
            control -= split.len();
            for whole in split {
                self.add_block(Class::Control, true, whole.parts(), gauges);
            }
            let kept: Vec<_> = parts.by_ref().take(medium).collect();
            medium -= kept.len();
            self.add_block(Class::Medium, true, kept, gauges);
            self.add_block(Class::Medium, false, parts.collect(), gauges);
        }
        self.splits = self.splits.saturating_sub(split + large);
    }

    fn add_block(
        &mut self,
        class: Class,
        is_kept: bool,
        free: Vec<Rc<BufferSlot>>,
        gauges: &PoolGauges,
    ) -> u32 {
        let index = u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks");
        let total = free.len();
        for slot in &free {
            slot.home.set(index);
        }
        gauges.class(class).add_capacity(total as u64);
        self.blocks.push(Block {
            class,
            is_kept,
            whole: None,
            free,
            total,
            previous: NONE,
            next: NONE,
        });
        if total > 0 {
            self.link(index);
        }
        index
    }

    /// A buffer to be lent.
    pub fn pop(&mut self, class: Class, gauges: &PoolGauges) -> Option<Rc<BufferSlot>> {
        match self.pop_from(class, true) {
            Some(slot) => Some(slot),
            None => self.pop_shared(class, gauges),
        }
    }

    /// A buffer of shared memory, split from a larger one if needed.
    fn pop_shared(&mut self, class: Class, gauges: &PoolGauges) -> Option<Rc<BufferSlot>> {
        if self.list(class, false).free == 0 {
            let larger = class.larger()?;
            if larger == Class::Large {
                self.splits = self.splits.checked_sub(1)?;
            }
            let Some(whole) = self.pop_shared(larger, gauges) else {
                self.splits += usize::from(larger == Class::Large);
                return None;
            };
            gauges.class(larger).take_capacity(1);
            self.split(class, whole, gauges);
        }
        self.pop_from(class, false)
    }

    fn split(&mut self, class: Class, whole: Rc<BufferSlot>, gauges: &PoolGauges) {
        let index = match whole.split.get() {
            NONE => {
                let index = self.add_block(class, false, whole.parts(), gauges);
                whole.split.set(index);
                index
            }
            // It was split before: its parts exist.
            index => {
                gauges.class(class).add_capacity(PARTS as u64);
                for part in &self.blocks[index as usize].free {
                    part.is_poisoned.set(whole.is_poisoned.get());
                }
                self.link(index);
                index
            }
        };
        self.blocks[index as usize].whole = Some(whole);
    }

    fn pop_from(&mut self, class: Class, is_kept: bool) -> Option<Rc<BufferSlot>> {
        let list = self.list(class, is_kept);
        let index = list.head;
        let block = self.blocks.get_mut(index as usize)?;
        let slot = block.free.pop()?;
        list_of(&mut self.lists, class, is_kept).free -= 1;
        if block.free.is_empty() {
            self.unlink(index);
        }
        Some(slot)
    }

    /// Takes a buffer back. If all parts of a split buffer are free, they are merged.
    pub fn give_back(&mut self, slot: Rc<BufferSlot>, gauges: &PoolGauges) {
        let index = slot.home.get();
        let block = &mut self.blocks[index as usize];
        let (class, is_kept) = (block.class, block.is_kept);
        block.free.push(slot);
        if block.free.len() == 1 {
            self.link(index);
        } else {
            list_of(&mut self.lists, class, is_kept).free += 1;
        }
        let block = &mut self.blocks[index as usize];
        if block.free.len() < block.total {
            return;
        }
        let Some(whole) = block.whole.take() else {
            return;
        };
        // All parts are free, so none is lent.
        let is_poisoned = block.free.iter().all(|part| part.is_poisoned.get());
        whole.is_poisoned.set(is_poisoned);
        self.unlink(index);
        gauges.class(class).take_capacity(PARTS as u64);
        gauges.class(whole.class).add_capacity(1);
        self.splits += usize::from(whole.class == Class::Large);
        self.give_back(whole, gauges);
    }

    /// Buffers of a class that could be made of memory that is free for every class.
    pub fn room(&self, class: Class) -> usize {
        let Some(larger) = class.larger() else {
            return 0;
        };
        let mut whole = self.list(larger, false).free;
        if larger == Class::Large {
            whole = whole.min(self.splits);
        }
        (whole + self.room(larger)) * PARTS
    }

    fn list(&self, class: Class, is_kept: bool) -> BlockList {
        self.lists[class.index()][usize::from(is_kept)]
    }

    /// Lists a block that has free buffers.
    fn link(&mut self, index: u32) {
        let block = &mut self.blocks[index as usize];
        let list = list_of(&mut self.lists, block.class, block.is_kept);
        block.previous = NONE;
        block.next = std::mem::replace(&mut list.head, index);
        list.free += block.free.len();
        let next = block.next;
        if let Some(next) = self.blocks.get_mut(next as usize) {
            next.previous = index;
        }
    }

    /// Takes a block and its free buffers off its list.
    fn unlink(&mut self, index: u32) {
        let block = &self.blocks[index as usize];
        let (previous, next) = (block.previous, block.next);
        let list = list_of(&mut self.lists, block.class, block.is_kept);
        list.free -= block.free.len();
        match previous {
            NONE => list.head = next,
            previous => self.blocks[previous as usize].next = next,
        }
        if let Some(next) = self.blocks.get_mut(next as usize) {
            next.previous = previous;
        }
    }
}

fn list_of(lists: &mut [[BlockList; 2]; 3], class: Class, is_kept: bool) -> &mut BlockList {
    &mut lists[class.index()][usize::from(is_kept)]
}
