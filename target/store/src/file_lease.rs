//! Leases of files: while one lasts, no other server of the same file changes it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// How the holder of a lease is told that others wait for its end. Clones are the same.
#[derive(Clone)]
pub struct LeaseBreak(Arc<BreakState>);

struct BreakState {
    is_broken: AtomicBool,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl LeaseBreak {
    /// Calls `tell` once, on any thread, when the lease has to end. That must not block.
    #[must_use]
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(BreakState {
            is_broken: AtomicBool::new(false),
            tell: Box::new(tell),
        }))
    }

    /// The lease has to end.
    pub fn announce(&self) {
        if !self.0.is_broken.swap(true, SeqCst) {
            (self.0.tell)();
        }
    }

    fn is_broken(&self) -> bool {
        self.0.is_broken.load(SeqCst)
    }
}

/// A lease of a file ([`Store::lease`](crate::Store::lease)). It ends when this is dropped, on
/// whichever thread.
pub struct FileLease {
    _held: Box<dyn Any + Send>,
    end: LeaseBreak,
    time: Duration,
}

impl FileLease {
    /// A lease that ends when `held` is dropped. That must not block. `time`: how long it may last
    /// when it has to end.
    #[must_use]
    pub fn new(held: impl Any + Send, end: LeaseBreak, time: Duration) -> Self {
        Self {
            _held: Box::new(held),
            end,
            time,
        }
    }

    /// Whether it has to end. If not, its holder will be told.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.end.is_broken()
    }

    /// How long it may last when it has to end.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }
}

impl fmt::Debug for FileLease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("FileLease");
        shown.field("is_broken", &self.is_broken());
        shown.field("time", &self.time).finish_non_exhaustive()
    }
}
