//! Log lines.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Reads the configuration's filter.
pub fn filter(text: &str) -> Result<EnvFilter> {
    EnvFilter::try_new(text).with_context(|| {
        format!("log: `{text}` is no filter; use a level such as info, or info,millrace=debug")
    })
}

/// Writes log lines to standard error from now on.
pub fn start(filter: EnvFilter, format: Format) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        Format::Text => lines.with_target(false).init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
}
