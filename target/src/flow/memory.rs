//! Serving of calls with memory charged to their clients.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use millrace_mempool::{Charging, MemoryAccount, MemoryWait};
use millrace_reactor::Sleep;

use super::{Cause, Flow};
use crate::rpc::ConnectionRef;

/// The timeout of waiting for memory. A client whose connections complete what was sent to them
/// gets memory back far sooner; connections that do not are ended earlier.
pub const MEMORY_WAIT: Duration = Duration::from_secs(45);

/// Serves a call: memory acquired while it is polled is charged to its connection's account, and
/// waiting for memory has a timeout.
#[must_use = "futures do nothing unless polled"]
pub struct Charged<'a, F> {
    flow: &'a Flow,
    connection: &'a ConnectionRef,
    call: Pin<&'a mut F>,
    waiting: Option<WaitForMemory>,
}

struct WaitForMemory {
    kind: MemoryWait,
    since: Instant,
    deadline: Sleep,
}

impl Flow {
    /// Charges what is taken to an account while the guard lives, for calls that do not wait.
    pub fn charging(&self, account: &Rc<MemoryAccount>) -> Charging<'_> {
        self.recount();
        self.pool().charging(account, false)
    }

    /// Serves a call of a connection, charged to its client.
    pub fn charged<'a, F: Future>(
        &'a self,
        connection: &'a ConnectionRef,
        call: Pin<&'a mut F>,
    ) -> Charged<'a, F> {
        self.recount();
        Charged {
            flow: self,
            connection,
            call,
            waiting: None,
        }
    }
}

impl<F> Charged<'_, F> {
    fn begin_wait(&mut self, kind: MemoryWait) {
        let clock = self.flow.clock();
        self.waiting = Some(WaitForMemory {
            kind,
            since: clock.now(),
            deadline: clock.sleep_until(clock.now() + MEMORY_WAIT),
        });
    }

    fn end_wait(&mut self) {
        if let Some(waited) = self.waiting.take() {
            let now = self.flow.clock().now();
            let time = now.saturating_duration_since(waited.since);
            let cause = match waited.kind {
                MemoryWait::Share => Cause::Share,
                MemoryWait::Pool => Cause::PoolPressure,
            };
            self.flow.throttled(self.connection.share(), cause, time);
        }
    }
}

impl<F: Future> Future for Charged<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        loop {
            let is_late = match &mut this.waiting {
                Some(waiting) => Pin::new(&mut waiting.deadline).poll(context).is_ready(),
                None => false,
            };
            let charging = this.flow.pool().charging(this.connection.memory(), is_late);
            let polled = this.call.as_mut().poll(context);
            let waits = charging.waits();
            drop(charging);
            if polled.is_ready() || waits.is_none() || is_late {
                this.end_wait();
            }
            match waits {
                // The new deadline must be polled, or nothing wakes the call.
                Some(kind) if polled.is_pending() && this.waiting.is_none() => {
                    this.begin_wait(kind);
                    if let Some(waiting) = &mut this.waiting
                        && Pin::new(&mut waiting.deadline).poll(context).is_ready()
                    {
                        this.end_wait();
                        continue;
                    }
                    return Poll::Pending;
                }
                _ => return polled,
            }
        }
    }
}
