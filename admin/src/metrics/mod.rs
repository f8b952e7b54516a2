//! Metrics, collected and written when Prometheus asks.
//!
//! The data path writes counters of `millrace_primitives`. A subsystem implements [`MetricsSource`]
//! and fills the families of [`catalogue`] from its counters when asked. [`Metrics`] holds the
//! sources and writes the text that Prometheus reads. No metrics library is called on the data
//! path.

pub mod catalogue;
mod exporter;
mod families;
mod process;
pub mod reference;

pub use exporter::{CONTENT_TYPE, Metrics, MetricsSource, RenderError};
pub use families::{Families, Family, Kind, Label};

#[cfg(test)]
mod tests;
