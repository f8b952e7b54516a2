//! Files generated from the catalogue: the reference page and the Grafana dashboard. Also the check
//! that queries use existing metrics.
//!
//! `cargo run -p millrace-admin --example metrics-reference -- --write` writes the files below
//! `deploy/`; a test compares them with the catalogue.

mod dashboard;
mod names;
mod page;
mod panels;

pub use dashboard::dashboard;
pub use names::{series, unknown};
pub use page::page;

/// The files' paths, below the project's folder, and their content.
pub fn files() -> [(&'static str, String); 2] {
    [
        ("deploy/METRICS.md", page()),
        ("deploy/grafana/millrace.json", dashboard()),
    ]
}

#[cfg(test)]
mod tests;
