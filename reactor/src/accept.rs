//! Pauses of listeners while the system lacks resources for connections.
//!
//! A connection that cannot be accepted for lack of descriptors or memory stays in the listener's
//! queue, and the listener stays readable: a loop that only retried would spin. So accepting pauses
//! until a connection has closed or the time has passed.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// The length of a pause.
const PAUSE: Duration = Duration::from_millis(100);

/// The shortest interval between log lines about it.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Whether an error of accepting means that descriptors or memory are short.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| shortages.contains(&error))
}

/// The pause of one listener.
#[derive(Debug, Default)]
pub struct AcceptPause {
    until: Option<Instant>,
    logged: Option<Instant>,
}

impl AcceptPause {
    /// Begins one. Returns whether to log it: not if another one was logged recently.
    pub fn begin(&mut self, now: Instant) -> bool {
        self.until = Some(now + PAUSE);
        let recent = |logged| now.saturating_duration_since(logged) < LOG_PAUSE;
        if self.logged.is_some_and(recent) {
            return false;
        }
        self.logged = Some(now);
        true
    }

    /// When it ends by itself, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Ends it if its time has passed. Returns whether it has ended now.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Ends it early. Returns whether there was one.
    pub fn end(&mut self) -> bool {
        self.until.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_in_time_or_early_and_is_logged_now_and_then() {
        let start = Instant::now();
        let mut pause = AcceptPause::default();
        assert!(!pause.expire(start) && !pause.end());
        assert!(pause.begin(start));
        assert_eq!(pause.deadline(), Some(start + PAUSE));
        assert!(!pause.expire(start + PAUSE / 2));
        assert!(pause.expire(start + PAUSE));
        assert_eq!(pause.deadline(), None);
        assert!(!pause.begin(start + PAUSE), "said a moment ago");
        assert!(pause.end());
        assert!(!pause.end());
        assert!(pause.begin(start + LOG_PAUSE));
    }

    #[test]
    fn only_a_shortage_makes_a_listener_pause() {
        for (error, is_one) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::NOMEM, true),
            (Errno::CONNABORTED, false),
            (Errno::AGAIN, false),
        ] {
            assert_eq!(is_shortage(&error.into()), is_one, "{error}");
        }
        assert!(!is_shortage(&io::ErrorKind::WouldBlock.into()));
    }
}
