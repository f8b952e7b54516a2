//! SIGTERM and SIGINT: the first one stops in order, the second at once. SIGHUP has the
//! configuration read again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// The signals that stop the process, caught.
pub struct StopSignals(Signals);

impl StopSignals {
    /// Catches them from now on.
    pub fn catch() -> io::Result<Self> {
        Signals::new([SIGINT, SIGTERM]).map(Self)
    }

    /// Waits for one.
    pub fn wait(&mut self) {
        self.0.forever().next();
    }

    /// Lets the next one end the process at once.
    pub fn end_at_next(&self) -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::new(AtomicBool::new(true)))?;
        }
        Ok(())
    }
}

/// SIGHUP, caught.
pub struct ReloadSignal(Signals);

impl ReloadSignal {
    /// Catches it from now on.
    pub fn catch() -> io::Result<Self> {
        Signals::new([SIGHUP]).map(Self)
    }

    /// Calls `reload` for those that came and those to come, on a thread of its own that ends with
    /// the process. Those that come during a call are one more call together.
    pub fn serve(mut self, reload: impl Fn() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name("millrace-reload".to_owned());
        thread.spawn(move || self.0.forever().for_each(|_| reload()))?;
        Ok(())
    }
}
