//! What all rooms of the data path count with.
//!
//! - [`Counter`], [`Gauge`], [`Histogram`]: numbers with one writer, readable from any thread
//!   without a lock.
#![forbid(unsafe_code)]

mod counter;
mod histogram;

pub use counter::{CoreBlock, Counter, Gauge};
pub use histogram::{BUCKETS, Histogram, HistogramSnapshot};
