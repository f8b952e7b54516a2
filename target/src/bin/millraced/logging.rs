//! Log lines.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use millrace::service::LogHook;
use tracing_subscriber::{EnvFilter, reload};

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

/// Writes log lines to standard error from now on. Gives the way to change the filter later.
pub fn start(filter: EnvFilter, format: Format) -> LogHook {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        Format::Text => {
            let lines = lines.with_target(false).with_filter_reloading();
            let hook = hook(lines.reload_handle());
            lines.init();
            hook
        }
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let hook = hook(lines.reload_handle());
            lines.init();
            hook
        }
    }
}

fn hook<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> LogHook {
    Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
}
