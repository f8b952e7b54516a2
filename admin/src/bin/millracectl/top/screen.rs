//! The terminal, restored however the program ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The terminal with its alternate screen, without line editing. Dropping it restores the terminal;
/// a panic does so before its message is printed.
pub struct Screen {
    terminal: DefaultTerminal,
    ended: Arc<AtomicBool>,
}

impl Screen {
    /// # Errors
    ///
    /// The terminal cannot be set up.
    pub fn open() -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&ended))?;
        }
        Ok(Self {
            terminal: ratatui::try_init()?,
            ended,
        })
    }

    /// Whether a signal has requested the end of the program.
    pub fn is_told_to_end(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// # Errors
    ///
    /// The terminal was closed.
    pub fn draw(&mut self, show: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(show).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
