//! SIGTERM and SIGINT: the first one stops in order, the second at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
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
