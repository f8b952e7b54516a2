//! The destination of a capture.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::failure::Failure;

/// A file created with its first bytes, or the standard output.
pub struct Destination {
    path: Option<PathBuf>,
    file: Option<File>,
    gone: bool,
}

impl Destination {
    /// For a path; `-` is the standard output, which must not be a terminal.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let standard = path.as_os_str() == "-";
        if standard && io::stdout().is_terminal() {
            return Err(Failure::usage(
                "a capture is not written to a terminal; name a file with -o, or use a pipe",
            ));
        }
        Ok(Self {
            path: (!standard).then(|| path.to_owned()),
            file: None,
            gone: false,
        })
    }

    pub fn name(&self) -> String {
        match &self.path {
            Some(path) => path.display().to_string(),
            None => "the standard output".to_owned(),
        }
    }

    /// Whether the reader of the standard output has closed it, as some readers do at their end.
    pub fn reader_has_gone(&self) -> bool {
        self.gone
    }

    fn pass_on(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(path) = &self.path else {
            let mut out = io::stdout().lock();
            return out.write_all(bytes).and_then(|()| out.flush());
        };
        if self.file.is_none() {
            // It has clients' data, so it is readable by its owner only.
            let opened = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)?;
            self.file = Some(opened);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Ok(()),
        }
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.pass_on(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.gone = self.path.is_none() && error.kind() == io::ErrorKind::BrokenPipe;
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
