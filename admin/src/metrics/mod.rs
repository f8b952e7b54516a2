//! Metrics: blocks of atomics with one writer each, read at scrape time.
//!
//! The data path writes [`Counter`], [`Gauge`] and [`Histogram`] slots with plain loads and
//! stores, in a [`CoreBlock`] per core. A subsystem implements [`MetricsSource`] and fills the
//! families of [`catalogue`] from its blocks when asked. [`Metrics`] holds the sources and writes
//! the text that Prometheus reads. No metrics library is called on the data path.

pub mod catalogue;
mod exporter;
mod families;
mod histogram;
mod process;
pub mod reference;
mod slot;

pub use exporter::{CONTENT_TYPE, Metrics, MetricsSource, RenderError};
pub use families::{Families, Family, Kind, Label};
pub use histogram::{BUCKETS, Histogram, HistogramSnapshot};
pub use slot::{CoreBlock, Counter, Gauge};

#[cfg(test)]
mod tests;
