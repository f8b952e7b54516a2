//! SIGTERM and SIGINT: the first one stops in order, the second at once. SIGHUP reloads the
//! configuration.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// The signals that stop the process, caught.
pub struct StopSignals {
    signals: Signals,
    asked: Arc<AtomicBool>,
}

impl StopSignals {
    /// Catches them from now on. After the first, the next one ends the process at once.
    pub fn catch() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the first one does not end the process itself.
            flag::register_conditional_default(signal, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        let signals = Signals::new([SIGINT, SIGTERM])?;
        Ok(Self { signals, asked })
    }

    /// Set by the first one.
    pub fn asked(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Waits for one.
    pub fn wait(&mut self) {
        self.signals.forever().next();
    }
}

/// SIGHUP, caught.
pub struct ReloadSignal(Signals);

impl ReloadSignal {
    /// Catches it from now on.
    pub fn catch() -> io::Result<Self> {
        Signals::new([SIGHUP]).map(Self)
    }

    /// Calls `reload` for past and future signals, on a thread of its own that ends with the
    /// process. Signals during a call cause one further call.
    pub fn serve(mut self, reload: impl Fn() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name("millrace-reload".to_owned());
        thread.spawn(move || self.0.forever().for_each(|_| reload()))?;
        Ok(())
    }
}
