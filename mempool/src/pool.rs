//! The pool of one reactor: free buffers by size class, and the requests that wait for them.

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;

use millrace_primitives::{Departure, WaitQueue, Waiter};

use crate::Class;
use crate::acquire::Acquire;
use crate::arena::{Arena, ArenaError, UnusedArena};
use crate::blocks::Blocks;
use crate::buffer::{Buffer, BufferSlot, Lease};
use crate::gauges::PoolGauges;
use crate::obtain::Served;
use crate::registry::Registry;

/// The size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Bytes, rounded up to whole pages and to 2 MiB.
    pub bytes: usize,
}

/// The buffers of one reactor. Clones share them, and all stay on its thread.
#[derive(Clone)]
pub struct Pool {
    inner: Rc<Inner>,
}

impl Pool {
    /// Maps the memory and cuts each class's reserve.
    ///
    /// # Errors
    /// See [`Registry::arena`].
    pub fn new(registry: &Registry, config: PoolConfig) -> Result<Self, ArenaError> {
        let arena = registry.arena(config.bytes)?.into_arena();
        let bytes = arena.len();
        let inner = Rc::new_cyclic(|weak| {
            let mut state = PoolState::default();
            let gauges = Arc::new(PoolGauges::default());
            gauges.add_bytes(bytes);
            state.blocks.add(&arena, weak, &gauges);
            state.blocks.reserve(bytes, &gauges);
            state.arenas.push(arena);
            Inner {
                registry: registry.clone(),
                this: weak.clone(),
                gauges,
                served: RefCell::default(),
                state: RefCell::new(state),
            }
        });
        Ok(Self { inner })
    }

    /// A buffer at once, or `None` when the class is empty or others wait for it.
    pub fn try_acquire(&self, class: Class) -> Option<Buffer> {
        self.inner.take(class).map(Buffer::new)
    }

    /// Waits for a buffer. Requests of one class are served in the order of their first polls.
    pub fn acquire(&self, class: Class) -> Acquire {
        Acquire::new(Rc::clone(&self.inner), class)
    }

    pub(crate) fn inner(&self) -> &Rc<Inner> {
        &self.inner
    }

    /// Its gauges, which any thread may read.
    pub fn gauges(&self) -> Arc<PoolGauges> {
        Arc::clone(&self.inner.gauges)
    }

    /// Buffers of a class that exist, lent or free, and those that the memory that is free for
    /// every class would make.
    pub fn attainable(&self, class: Class) -> u64 {
        let state = self.inner.state.borrow();
        self.inner.gauges.class(class).capacity() + state.blocks.room(class) as u64
    }

    /// Its arenas.
    pub fn arenas(&self) -> Vec<Arc<Arena>> {
        self.inner.state.borrow().arenas.clone()
    }

    /// Bytes of the pages under the memory that the pool began with.
    pub fn page_size(&self) -> usize {
        let state = self.inner.state.borrow();
        let first = state.arenas.first();
        first.map_or(0, |arena| arena.page_size())
    }

    /// Adds memory that is free for every class. Mapping it stalls the calling thread;
    /// [`Pool::add`] takes memory that another thread has mapped.
    ///
    /// # Errors
    /// See [`Registry::arena`]; the pool is as before then.
    pub fn grow(&self, bytes: usize) -> Result<(), ArenaError> {
        self.add(self.inner.registry.arena(bytes)?);
        Ok(())
    }

    /// Adds memory that another thread has mapped ([`Registry::arena`]), so that this one does not
    /// stall.
    pub fn add(&self, arena: UnusedArena) {
        let arena = arena.into_arena();
        self.inner.gauges.add_bytes(arena.len());
        let (pool, gauges) = (&self.inner.this, &self.inner.gauges);
        let mut state = self.inner.state.borrow_mut();
        state.blocks.add(&arena, pool, gauges);
        state.arenas.push(arena);
        drop(state);
        self.inner.serve_all_waiters();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("gauges", &self.inner.gauges)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    registry: Registry,
    this: Weak<Self>,
    gauges: Arc<PoolGauges>,
    /// The account that memory is taken for at the moment.
    pub served: RefCell<Served>,
    state: RefCell<PoolState>,
}

/// Invariant: while a class has waiters, it has no free slot, and no other class has one that could
/// be split for it.
#[derive(Default)]
struct PoolState {
    arenas: Vec<Arc<Arena>>,
    blocks: Blocks,
    /// By class.
    waiting: [WaitQueue<Lease>; 3],
}

impl Inner {
    pub fn take(&self, class: Class) -> Option<Lease> {
        let mut state = self.state.borrow_mut();
        if !state.waiting[class.index()].is_empty() {
            return None;
        }
        let mut slot = state.blocks.pop(class, &self.gauges)?;
        self.gauges.class(class).lend();
        BufferSlot::check_poison(&mut slot);
        Some(Lease::new(slot))
    }

    pub fn join(&self, class: Class, waker: &Waker) -> Waiter {
        self.gauges.class(class).begin_wait();
        let waiting = &mut self.state.borrow_mut().waiting;
        waiting[class.index()].join((), waker.clone())
    }

    pub fn poll_waiter(&self, class: Class, waiter: &Waiter, waker: &Waker) -> Option<Lease> {
        // Dropping a waker may call the pool, so none is dropped while the state is borrowed.
        let mut waker = waker.clone();
        self.state.borrow_mut().waiting[class.index()].poll(waiter, &mut waker)
    }

    pub fn leave(&self, class: Class, waiter: &Waiter) {
        let left = self.state.borrow_mut().waiting[class.index()].leave(waiter);
        if matches!(left, Departure::Waiting(_)) {
            self.gauges.class(class).end_wait();
        }
        // A buffer that this request was given and did not take goes to the next one.
        drop(left);
    }

    /// Takes back the slot of the last lease.
    pub fn give_back(&self, mut slot: Rc<BufferSlot>) {
        BufferSlot::poison(&mut slot);
        let class = slot.class;
        let account = slot.account.take();
        let mut state = self.state.borrow_mut();
        self.gauges.class(class).give_back();
        state.blocks.give_back(slot, &self.gauges);
        let somebody_waits = state.waiting.iter().any(|queue| !queue.is_empty());
        drop(state);
        if somebody_waits {
            // Requests of its class come first, then those that can use it whole or split.
            self.serve_waiters(class);
            self.serve_all_waiters();
        }
        // The request that is woken finds the buffer free.
        if let Some(account) = account {
            account.release(class);
        }
    }

    fn serve_all_waiters(&self) {
        for class in Class::ALL {
            self.serve_waiters(class);
        }
    }

    fn serve_waiters(&self, class: Class) {
        loop {
            let mut state = self.state.borrow_mut();
            if state.waiting[class.index()].is_empty() {
                return;
            }
            let Some(slot) = state.blocks.pop(class, &self.gauges) else {
                return;
            };
            let gauges = self.gauges.class(class);
            gauges.end_wait();
            gauges.lend();
            let served = state.waiting[class.index()].grant(Lease::new(slot));
            drop(state);
            if let Ok(waker) = served {
                waker.wake();
            }
        }
    }
}
