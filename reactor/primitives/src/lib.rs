//! What all rooms of the data path count with and wait with.
//!
//! - [`Counter`], [`Gauge`], [`Histogram`]: numbers with one writer, readable from any thread
//!   without a lock.
//! - [`WaitQueue`]: tasks that wait for a grant, first in, first out. [`TurnQueue`]: the same,
//!   where the first goes on by itself.
#![forbid(unsafe_code)]

mod counter;
mod histogram;
#[cfg(test)]
mod tests;
mod turn;
mod wait;

pub use counter::{CoreBlock, Counter, Gauge};
pub use histogram::{BUCKETS, Histogram, HistogramSnapshot};
pub use turn::{Turn, TurnQueue};
pub use wait::{Departure, WaitQueue, Waiter};
