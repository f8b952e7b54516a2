//! Waiting for a buffer.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use millrace_primitives::Waiter;

use crate::pool::Inner;
use crate::{Buffer, Class};

/// Waits for a buffer; see [`crate::Pool::acquire`]. Dropping it at any time loses nothing.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    pool: Rc<Inner>,
    class: Class,
    waiter: Option<Waiter>,
}

impl Acquire {
    pub(crate) fn new(pool: Rc<Inner>, class: Class) -> Self {
        Self {
            pool,
            class,
            waiter: None,
        }
    }
}

impl Future for Acquire {
    type Output = Buffer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Buffer> {
        let this = &mut *self;
        let lease = match &this.waiter {
            Some(waiter) => this.pool.poll_waiter(this.class, waiter, context.waker()),
            None => match this.pool.take(this.class) {
                Some(lease) => return Poll::Ready(Buffer::new(lease)),
                None => {
                    this.waiter = Some(this.pool.join(this.class, context.waker()));
                    None
                }
            },
        };
        match lease {
            Some(lease) => {
                this.waiter = None;
                Poll::Ready(Buffer::new(lease))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.pool.leave(self.class, &waiter);
        }
    }
}
