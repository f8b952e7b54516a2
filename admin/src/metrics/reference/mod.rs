//! What is made from the catalogue: the reference page and the Grafana dashboard, and the check
//! that queries name metrics that there are.
//!
//! `cargo run -p millrace-admin --example metrics-reference -- --write` writes the files below
//! `deploy/`; a test compares them with what the catalogue makes now.

mod dashboard;
mod names;
mod page;
mod panels;

pub use dashboard::dashboard;
pub use names::{series, unknown};
pub use page::page;

/// Where the files are, below the project's folder, and what is to be in them.
pub fn files() -> [(&'static str, String); 2] {
    [
        ("deploy/METRICS.md", page()),
        ("deploy/grafana/millrace.json", dashboard()),
    ]
}

#[cfg(test)]
mod tests;
