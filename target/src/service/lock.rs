//! The lock of a state directory: one process uses it at a time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Its file in the state directory.
const FILE: &str = "lock";

/// The right to use a state directory. It is released with the last clone of the file, so at the
/// latest with the process, when all of its operations have ended.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Locks the directory, and makes it if it does not exist.
    ///
    /// # Errors
    /// It cannot be used, or another process uses it.
    pub fn take(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(FILE))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(in_use(directory)),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks whether the directory could be locked. Changes nothing.
    ///
    /// # Errors
    /// Another process uses it, or its file cannot be opened.
    pub fn look(directory: &Path) -> io::Result<()> {
        let file = match File::open(directory.join(FILE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        // Concurrent checks do not conflict.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(in_use(directory)),
            Err(error) => Err(error.into()),
        }
    }
}

fn in_use(directory: &Path) -> io::Error {
    let text = format!(
        "{} is used by another millraced; each needs a directory of its own",
        directory.display()
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("state");
        let lock = StateLock::take(&directory).unwrap();
        let error = StateLock::take(&directory).unwrap_err();
        assert!(error.to_string().contains("used by another millraced"));
        drop(lock);
        StateLock::take(&directory).unwrap();
    }
}
