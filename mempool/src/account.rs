//! Charges for pool memory.
//!
//! A [`MemoryShare`] is one client's part of a pool: how many buffers of each class the client
//! holds and may hold, and its requests that wait until it holds fewer. A [`MemoryAccount`] is the
//! part that one connection of this client holds.
//!
//! Many places take memory for a call, stores included, so the account is no argument. The caller
//! that polls a call names the account by a guard ([`Pool::charging`]). While the guard lives,
//! [`Pool::try_obtain`] and [`Pool::obtain`] charge each buffer to this account, until the last
//! slice of the buffer is dropped, which the fabric does when its operation has completed.
//!
//! [`Pool::charging`]: crate::Pool::charging
//! [`Pool::try_obtain`]: crate::Pool::try_obtain
//! [`Pool::obtain`]: crate::Pool::obtain

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use millrace_primitives::{CoreBlock, Gauge, WaitQueue, Waiter};

use crate::{Buffer, Class};

/// One client's part of a pool.
pub struct MemoryShare {
    classes: [ClassShare; 3],
    gauge: Arc<CoreBlock<Gauge>>,
}

struct ClassShare {
    held: Cell<u32>,
    most: Cell<u32>,
    waiting: RefCell<WaitQueue>,
}

impl MemoryShare {
    /// A share without bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::counted(&Arc::default())
    }

    /// A share without bounds. `gauge` counts the bytes charged to it and to other shares.
    #[must_use]
    pub fn counted(gauge: &Arc<CoreBlock<Gauge>>) -> Self {
        let class = |_| ClassShare {
            held: Cell::new(0),
            most: Cell::new(u32::MAX),
            waiting: RefCell::default(),
        };
        Self {
            classes: Class::ALL.map(class),
            gauge: Arc::clone(gauge),
        }
    }

    /// Buffers of a class that are charged to this share.
    #[must_use]
    pub fn held(&self, class: Class) -> u32 {
        self.of(class).held.get()
    }

    /// Bytes of the buffers that are charged to this share.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let bytes = |&class: &Class| u64::from(self.held(class)) * class.size() as u64;
        Class::ALL.iter().map(bytes).sum()
    }

    /// Requests that wait until fewer of its buffers are held.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let waiting = |class: &ClassShare| class.waiting.borrow().len();
        self.classes.iter().map(waiting).sum()
    }

    /// Sets how many buffers of a class the client may hold, at least one. Buffers beyond the new
    /// bound stay charged until they are released.
    pub fn set_most(&self, class: Class, most: u32) {
        let of = self.of(class);
        if of.most.replace(most.max(1)) < most {
            of.wake();
        }
    }

    /// Whether the client may hold one more buffer of a class.
    #[must_use]
    pub fn has_room(&self, class: Class) -> bool {
        self.of(class).has_room()
    }

    fn of(&self, class: Class) -> &ClassShare {
        &self.classes[class.index()]
    }
}

impl Default for MemoryShare {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = Class::ALL.map(|class| self.held(class));
        let waiting = self.waiting();
        formatter
            .debug_struct("MemoryShare")
            .field("held", &held)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

impl ClassShare {
    fn has_room(&self) -> bool {
        self.held.get() < self.most.get()
    }

    /// Wakes the head of the queue if it can go on.
    fn wake(&self) {
        if self.has_room() {
            // A waker is foreign code: nothing is borrowed while it runs.
            let waker = self.waiting.borrow().first_waker();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// The buffers that one connection holds of its client's share.
#[derive(Debug)]
pub struct MemoryAccount {
    share: Rc<MemoryShare>,
    held: Cell<u32>,
    has_ended: Cell<bool>,
}

impl MemoryAccount {
    /// An account of a client's share, without buffers.
    #[must_use]
    pub fn new(share: &Rc<MemoryShare>) -> Rc<Self> {
        Rc::new(Self {
            share: Rc::clone(share),
            held: Cell::new(0),
            has_ended: Cell::new(false),
        })
    }

    /// The client's share.
    #[must_use]
    pub fn share(&self) -> &Rc<MemoryShare> {
        &self.share
    }

    /// Buffers that are charged to this account.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.get()
    }

    /// Ends the account with its connection: requests that wait for memory end with
    /// [`NoMemory::Ended`](crate::NoMemory::Ended) when they are polled next.
    pub fn end(&self) {
        self.has_ended.set(true);
    }

    /// Whether [`MemoryAccount::end`] was called.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Charges one buffer, if the share has room and no request waits for it.
    pub(crate) fn try_charge(&self, class: Class) -> bool {
        let of = self.share.of(class);
        let may = of.has_room() && of.waiting.borrow().is_empty();
        if may {
            self.count(class);
        }
        may
    }

    /// Charges a buffer that was taken without an account, even beyond the bound of the share.
    pub fn charge(self: &Rc<Self>, buffer: &Buffer) {
        debug_assert!(!buffer.is_charged(), "a buffer is charged to one account");
        self.count(buffer.class());
        buffer.charge(Rc::clone(self));
    }

    fn count(&self, class: Class) {
        let held = &self.share.of(class).held;
        held.set(held.get() + 1);
        self.share.gauge.add(class.size() as u64);
        self.held.set(self.held.get() + 1);
    }

    /// Joins the queue of the share.
    pub(crate) fn join(&self, class: Class, waker: &Waker) -> Waiter {
        let mut waiting = self.share.of(class).waiting.borrow_mut();
        waiting.join((), waker.clone())
    }

    /// Charges one buffer if it is this waiter's turn and the share has room, and ends the wait;
    /// else the waiter keeps waiting with `waker`.
    pub(crate) fn poll_charge(&self, class: Class, waiter: &Waiter, waker: &Waker) -> bool {
        let of = self.share.of(class);
        let may = of.waiting.borrow().is_first(waiter) && of.has_room();
        if may {
            self.count(class);
            self.leave(class, waiter);
        } else {
            // Dropping a waker may call this function, so none is dropped while the queue is
            // borrowed.
            let mut waker = waker.clone();
            of.waiting.borrow_mut().poll(waiter, &mut waker);
        }
        may
    }

    /// Leaves the queue of the share, from any position.
    pub(crate) fn leave(&self, class: Class, waiter: &Waiter) {
        let of = self.share.of(class);
        let left = of.waiting.borrow_mut().leave(waiter);
        drop(left);
        of.wake();
    }

    /// Ends the charge of a buffer that is back in the pool.
    pub(crate) fn release(&self, class: Class) {
        let of = self.share.of(class);
        of.held.set(of.held.get() - 1);
        self.share.gauge.sub(class.size() as u64);
        self.held.set(self.held.get() - 1);
        of.wake();
    }
}
