//! The filter of the log.

use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

use super::ticket::ChangeRefused;

/// Puts another filter in place of the one that log lines pass.
pub type LogHook = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The filter of the log, as far as the service has to do with it.
#[derive(Default)]
pub struct LogFilter {
    hook: OnceLock<LogHook>,
}

impl LogFilter {
    /// Whoever writes the log is told of new filters in this way. The first one given counts.
    pub fn set_hook(&self, hook: LogHook) {
        let _ = self.hook.set(hook);
    }

    /// Reads a filter.
    ///
    /// # Errors
    /// What is wrong with it, and what is accepted.
    pub fn parse(text: &str) -> Result<EnvFilter, String> {
        EnvFilter::try_new(text).map_err(|error| {
            format!(
                "`{text}` is no filter ({error}); use a level such as info, or info,millrace=debug"
            )
        })
    }

    /// The same for the key `log`.
    pub fn read(text: &str) -> Result<EnvFilter, ChangeRefused> {
        Self::parse(text).map_err(|reason| ChangeRefused::new("log", reason))
    }

    /// Lets log lines pass this filter from now on.
    ///
    /// # Errors
    /// Why they still pass the one before.
    pub fn set(&self, filter: EnvFilter) -> Result<(), String> {
        let set = self.hook.get().map_or(Ok(()), |hook| hook(filter));
        set.map_err(|error| format!("log: the filter is unchanged: {error}"))
    }
}
