//! Interruption by Ctrl-C or a request to end: programs that were started end with this one, and
//! files of no further use are removed.
//!
//! Such a signal ends the process without dropping any value. So these programs and files are
//! listed here while they exist. A thread of its own ends and removes them, and then ends the
//! process with the status that a shell shows for the signal (130 for Ctrl-C).
//!
//! A command that runs until it is ended takes the first signal as its end ([`ends_in_order`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Held while something is being started, so that nothing comes after the end.
static LEFT: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

/// The first signal is left to the command.
static IS_LEFT_TO_COMMAND: AtomicBool = AtomicBool::new(false);

/// The command has been asked to end.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

#[derive(Debug, PartialEq, Eq)]
enum Leftover {
    Process(u32),
    File(PathBuf),
}

/// Sees to interruptions from here on.
///
/// # Errors
/// If signals cannot be caught.
pub fn catch() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(move || {
            let asks = |_: &i32| {
                IS_LEFT_TO_COMMAND.load(Ordering::Relaxed)
                    && !IS_ASKED.swap(true, Ordering::Relaxed)
            };
            let Some(signal) = signals.forever().find(|signal| !asks(signal)) else {
                return;
            };
            // Never let go of: what would be started next waits for the end of the process.
            for leftover in lock().drain(..) {
                leftover.clear();
            }
            std::process::exit(128 + signal);
        })?;
    Ok(())
}

/// From now on the first signal only asks the command to end ([`is_asked_to_end`]). The second ends
/// the process.
pub fn ends_in_order() {
    IS_LEFT_TO_COMMAND.store(true, Ordering::Relaxed);
}

/// Whether a signal asked for the end of a command that [`ends_in_order`].
#[must_use]
pub fn is_asked_to_end() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// A program that ends with this one, and with this value.
#[derive(Debug)]
pub struct OwnedProgram(Child);

impl OwnedProgram {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut left = lock();
        let child = command.spawn()?;
        left.push(Leftover::Process(child.id()));
        Ok(Self(child))
    }

    /// The number of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// What the system says.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        // The number may be another's as soon as the end is known.
        let mut left = lock();
        let status = self.0.try_wait()?;
        if status.is_some() {
            forget(&mut left, &Leftover::Process(self.0.id()));
        }
        Ok(status)
    }

    /// Kills it and waits until it is gone.
    ///
    /// # Errors
    /// What the system says.
    pub fn end(&mut self) -> io::Result<()> {
        let mut left = lock();
        let killed = self.0.kill();
        forget(&mut left, &Leftover::Process(self.0.id()));
        drop(left);
        killed?;
        self.0.wait().map(drop)
    }
}

impl Drop for OwnedProgram {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A file that is removed when this value is dropped or the process ends.
#[derive(Debug)]
pub struct OwnedFile(PathBuf);

impl OwnedFile {
    /// A file that is about to be written.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        lock().push(Leftover::File(path.clone()));
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnedFile {
    fn drop(&mut self) {
        let mut left = lock();
        let _ = fs::remove_file(&self.0);
        forget(&mut left, &Leftover::File(self.0.clone()));
    }
}

fn forget(left: &mut Vec<Leftover>, one: &Leftover) {
    left.retain(|other| other != one);
}

impl Leftover {
    fn clear(self) {
        match self {
            Self::Process(pid) => {
                let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let Some(pid) = pid {
                    // A process that has ended by itself is still a zombie. A paused one ends too.
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            Self::File(path) => {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn lock() -> MutexGuard<'static, Vec<Leftover>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}
