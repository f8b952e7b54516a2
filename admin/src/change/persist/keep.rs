//! Writing of a configuration by another process than the server.

use std::io;
use std::path::Path;

use super::{Disk, HostDisk, Staged, rewritten};
use crate::config::{Config, edit_text};

/// Writes a configuration to its file, with unchanged parts left as they are, and a backup.
///
/// # Errors
///
/// The file cannot be read or written, or is no regular file; it is then unchanged.
pub fn keep(file: &Path, config: &Config) -> io::Result<()> {
    let old = HostDisk.read(file)?;
    let known = std::str::from_utf8(&old).ok();
    let edited = known.and_then(|text| edit_text(text, config));
    let text = edited.unwrap_or_else(|| rewritten(config));
    Staged::new(&HostDisk, file, old, &text)?.commit()
}
