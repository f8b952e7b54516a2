//! The filter of the log.

use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;

use super::ticket::ChangeRefused;

/// Replaces the filter of log lines.
pub type LogHook = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// The service's access to the filter of the log.
#[derive(Default)]
pub struct LogFilter {
    hook: OnceLock<LogHook>,
}

impl LogFilter {
    /// Sets the function for new filters. Only the first call has an effect.
    pub fn set_hook(&self, hook: LogHook) {
        let _ = self.hook.set(hook);
    }

    /// Parses a filter.
    ///
    /// # Errors
    /// The error, and the accepted values.
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

    /// Sets the filter of log lines from now on.
    ///
    /// # Errors
    /// Why the previous one stays.
    pub fn set(&self, filter: EnvFilter) -> Result<(), String> {
        let set = self.hook.get().map_or(Ok(()), |hook| hook(filter));
        set.map_err(|error| format!("log: the filter is unchanged: {error}"))
    }
}
