//! Taking memory on behalf of an account.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use millrace_primitives::Waiter;

use crate::account::MemoryAccount;
use crate::pool::Inner;
use crate::{Acquire, Buffer, Class, Pool};

/// Why a call gets no memory and should not wait any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMemory {
    /// The connection has ended.
    #[error("the connection ended while its call waited for memory")]
    Ended,
    /// The time to wait is over.
    #[error("no memory became free in time")]
    Late,
}

/// The reason why a call waits for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryWait {
    /// Its client holds as much as it may.
    Share,
    /// All memory of the class is lent.
    Pool,
}

/// The account that a reactor takes memory for at the moment.
#[derive(Default)]
pub(crate) struct Served {
    pub account: Option<Rc<MemoryAccount>>,
    /// Requests that would wait end with [`NoMemory::Late`].
    pub is_late: bool,
    /// The reason why the latest request waits.
    pub waits: Option<MemoryWait>,
}

/// A guard: while it lives, memory is charged to one account. It lasts for one poll of a call.
pub struct Charging<'a> {
    pool: &'a Pool,
    before: Served,
}

impl<'a> Charging<'a> {
    pub(crate) fn new(pool: &'a Pool, account: &Rc<MemoryAccount>, is_late: bool) -> Self {
        let served = Served {
            account: Some(Rc::clone(account)),
            is_late,
            waits: None,
        };
        let before = pool.inner().served.replace(served);
        Self { pool, before }
    }

    /// The reason why a memory request of the call waits, if one does.
    #[must_use]
    pub fn waits(&self) -> Option<MemoryWait> {
        self.pool.inner().served.borrow().waits
    }
}

impl Drop for Charging<'_> {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        self.pool.inner().served.replace(before);
    }
}

/// A charge before its buffer is there. Dropping it ends the charge.
struct Charge {
    /// Empty once the charge is the buffer's.
    account: Option<Rc<MemoryAccount>>,
    class: Class,
}

impl Charge {
    fn new(account: Rc<MemoryAccount>, class: Class) -> Self {
        Self {
            account: Some(account),
            class,
        }
    }

    /// Moves the charge to a buffer.
    fn settle(mut self, buffer: Buffer) -> Buffer {
        if let Some(account) = self.account.take() {
            buffer.charge(account);
        }
        buffer
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            account.release(self.class);
        }
    }
}

enum Stage {
    /// Not polled yet.
    New,
    /// In the queue of the account's share.
    Share(Rc<MemoryAccount>, Waiter),
    /// In the queue of the pool.
    Pool(Option<Charge>, Acquire),
    Done,
}

/// Waits for a buffer for the current account; see [`Pool::obtain`]. Dropping it at any time loses
/// no buffer.
#[must_use = "futures do nothing unless polled"]
pub struct Obtain {
    pool: Rc<Inner>,
    class: Class,
    stage: Stage,
}

impl Obtain {
    pub(crate) fn new(pool: Rc<Inner>, class: Class) -> Self {
        Self {
            pool,
            class,
            stage: Stage::New,
        }
    }

    /// Asks the share first, and then the pool.
    fn begin(&mut self, context: &mut Context<'_>) {
        let account = self.pool.served.borrow().account.clone();
        self.stage = match account {
            None => Stage::Pool(None, Acquire::new(Rc::clone(&self.pool), self.class)),
            Some(account) if account.try_charge(self.class) => self.charged(account),
            Some(account) => {
                let waiter = account.join(self.class, context.waker());
                Stage::Share(account, waiter)
            }
        };
    }

    fn charged(&self, account: Rc<MemoryAccount>) -> Stage {
        let class = self.class;
        let charge = Some(Charge::new(account, class));
        Stage::Pool(charge, Acquire::new(Rc::clone(&self.pool), class))
    }

    fn give_up(&mut self) {
        if let Stage::Share(account, waiter) = std::mem::replace(&mut self.stage, Stage::Done) {
            account.leave(self.class, &waiter);
        }
    }

    /// Why the current account's requests should not wait any longer, if so.
    fn refusal(&self) -> Option<NoMemory> {
        let served = self.pool.served.borrow();
        let account = served.account.as_ref();
        if account.is_some_and(|account| account.has_ended()) {
            return Some(NoMemory::Ended);
        }
        served.is_late.then_some(NoMemory::Late)
    }
}

impl Future for Obtain {
    type Output = Result<Buffer, NoMemory>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if matches!(this.stage, Stage::New) {
            this.begin(context);
        }
        if let Stage::Share(account, waiter) = &this.stage
            && account.poll_charge(this.class, waiter, context.waker())
        {
            let account = Rc::clone(account);
            this.stage = this.charged(account);
        }
        if let Stage::Pool(charge, acquire) = &mut this.stage
            && let Poll::Ready(buffer) = Pin::new(acquire).poll(context)
        {
            let charge = charge.take();
            this.stage = Stage::Done;
            return Poll::Ready(Ok(match charge {
                Some(charge) => charge.settle(buffer),
                None => buffer,
            }));
        }
        if let Some(refusal) = this.refusal() {
            this.give_up();
            return Poll::Ready(Err(refusal));
        }
        let waits = match this.stage {
            Stage::Share(..) => MemoryWait::Share,
            _ => MemoryWait::Pool,
        };
        this.pool.served.borrow_mut().waits = Some(waits);
        Poll::Pending
    }
}

impl Drop for Obtain {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Pool {
    /// Makes an account the current one until the guard is dropped: [`Pool::try_obtain`] and
    /// [`Pool::obtain`] charge it. With `is_late`, requests that would have to wait end with
    /// [`NoMemory::Late`].
    #[must_use = "nothing is charged once it is dropped"]
    pub fn charging(&self, account: &Rc<MemoryAccount>, is_late: bool) -> Charging<'_> {
        Charging::new(self, account, is_late)
    }

    /// A buffer at once, charged to the current account; `None` when its share or the class is used
    /// up, or when other requests wait.
    pub fn try_obtain(&self, class: Class) -> Option<Buffer> {
        let account = self.inner().served.borrow().account.clone();
        let Some(account) = account else {
            return self.try_acquire(class);
        };
        if !account.try_charge(class) {
            return None;
        }
        let charge = Charge::new(account, class);
        self.try_acquire(class).map(|buffer| charge.settle(buffer))
    }

    /// Waits for a buffer, charged to the current account: first in the queue of its share, holding
    /// no buffer, and then in that of the class. Without an account this is [`Pool::acquire`].
    ///
    /// # Errors
    /// The future ends with [`NoMemory`] when the connection has ended or the time is over.
    pub fn obtain(&self, class: Class) -> Obtain {
        Obtain::new(Rc::clone(self.inner()), class)
    }

    /// Waits for a buffer of at least `bytes` bytes, at most the largest class's, for a call that
    /// holds others already.
    ///
    /// Calls that hold a buffer and wait for one of the same class could deadlock. So the smallest
    /// class that fits is only tried, and the request waits for the largest class.
    ///
    /// # Errors
    /// As [`Pool::obtain`].
    pub async fn obtain_another(&self, bytes: usize) -> Result<Buffer, NoMemory> {
        let fitting = Class::for_size(bytes).and_then(|class| self.try_obtain(class));
        match fitting {
            Some(buffer) => Ok(buffer),
            None => self.obtain(Class::Large).await,
        }
    }
}
