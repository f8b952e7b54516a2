//! Log lines.

mod limit;
mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use millrace::service::LogHook;
use millrace::service::hardening::{ThreadKind, confine_thread};
use millrace_admin::metrics::{Families, MetricsSource, catalogue};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};

use limit::LineLimit;
use queue::{LINES_MAX, LogQueue, StandardError};

/// Timeout of writing the last lines of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// Plain text.
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

/// The log of the process, from its start.
pub struct Log {
    queue: LogQueue,
    limit: LineLimit,
}

impl MetricsSource for Log {
    fn collect(&self, out: &mut Families) {
        out.number(&catalogue::LOG_DROPPED, &[], self.queue.dropped());
        out.number(&catalogue::LOG_LEFT_OUT, &[], self.limit.left_out());
    }
}

/// Writes the pending log lines when dropped, if they are read.
pub struct LogFlush(LogQueue);

impl Drop for LogFlush {
    fn drop(&mut self) {
        self.0.flush(FLUSH_TIMEOUT);
    }
}

impl Log {
    /// To be dropped at the end of the process.
    pub fn flush_at_end(&self) -> LogFlush {
        LogFlush(self.queue.clone())
    }
}

/// Writes log lines to standard error from now on, on a thread of its own. Returns the handle for
/// changing the filter. The thread avoids the reactors' cores.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    filter: EnvFilter,
    format: Format,
    reactors: Vec<usize>,
) -> Result<(Arc<Log>, LogHook)> {
    let limit = LineLimit::default();
    // A failure to avoid the reactors' cores is reported by other threads.
    let prepare = move || {
        let _ = millrace_reactor::step_aside(&reactors);
        confine_thread(ThreadKind::Log);
    };
    let queue = LogQueue::start(StandardError, LINES_MAX, prepare, report(limit.clone()));
    let queue = queue.context("cannot start a thread")?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(queue.clone());
    let hook = match format {
        Format::Text => {
            let lines = lines.with_target(false).with_filter_reloading();
            let hook = hook(lines.reload_handle());
            lines.finish().with(limit.clone()).init();
            hook
        }
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let hook = hook(lines.reload_handle());
            lines.finish().with(limit.clone()).init();
            hook
        }
    };
    log_panics(queue.clone());
    Ok((Arc::new(Log { queue, limit }), hook))
}

/// Reports lines that were not written.
fn report(limit: LineLimit) -> impl FnMut(u64) {
    let mut told = 0;
    move |dropped| {
        for (place, lines) in limit.take_report() {
            tracing::warn!(
                place,
                lines,
                "too many log lines of one kind: some were left out"
            );
        }
        if dropped > told {
            let lines = dropped - told;
            tracing::warn!(
                lines,
                "log lines were dropped: the reader of the log was too slow"
            );
            told = dropped;
        }
    }
}

/// Panics are written as log lines: the standard library's handler waits for the reader.
fn log_panics(queue: LogQueue) {
    panic::set_hook(Box::new(move |panic| {
        let thread = thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => tracing::error!(thread, "{panic}\n{trace}"),
            _ => tracing::error!(thread, "{panic}"),
        }
        // A panic of another thread may end the process.
        if !thread.starts_with("reactor-") {
            queue.flush(FLUSH_TIMEOUT);
        }
    }));
}

fn hook<S: 'static>(handle: reload::Handle<EnvFilter, S>) -> LogHook {
    Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
}
