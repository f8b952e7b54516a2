//! A configuration about to be written to the file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::Disk;
use crate::config::{Config, TEXT_MAX, to_yaml};

/// The head of a rewritten file.
pub(super) const HEAD: &str = "\
# Written through the API of millraced. The file that stood here before, with its comments, is
# beside this one under the same name with .bak and a number at its end: the largest is the latest.
";

/// The number of backups kept.
const BACKUPS: usize = 5;

/// A new file that is durable beside the old one, and has only to replace it. Dropped before that,
/// it is removed.
pub struct Staged<'a> {
    disk: &'a dyn Disk,
    places: Places,
    /// The current content of the file, for undoing.
    old: Vec<u8>,
    /// Whether the commit is still to be done.
    is_due: bool,
}

struct Places {
    file: PathBuf,
    folder: PathBuf,
    new: PathBuf,
    backup: PathBuf,
    new_backup: PathBuf,
    /// Surplus backups after adding the new one.
    former: Vec<PathBuf>,
}

impl<'a> Staged<'a> {
    /// Writes `text` beside `file`, which keeps its content `old` until [`Staged::commit`].
    ///
    /// # Errors
    ///
    /// The text is too long for a file, or nothing can be written beside the file.
    pub fn new(disk: &'a dyn Disk, file: &Path, old: Vec<u8>, text: &str) -> io::Result<Self> {
        if text.len() > TEXT_MAX {
            let length = text.len();
            return Err(io::Error::other(format!(
                "the configuration takes {length} bytes; a file may have {TEXT_MAX}"
            )));
        }
        let mut staged = Self {
            disk,
            places: Places::of(disk, disk.resolve(file)?)?,
            old,
            is_due: false,
        };
        if staged.old == text.as_bytes() {
            return Ok(staged);
        }
        staged.is_due = true;
        let places = &staged.places;
        staged.create(&places.new, text.as_bytes())?;
        staged.create(&places.new_backup, &staged.old)?;
        Ok(staged)
    }

    /// Replaces the old file by the new one; durable when this returns.
    ///
    /// # Errors
    ///
    /// The disk reports an error. The file is then the old one, unless the error says otherwise.
    pub fn commit(mut self) -> io::Result<()> {
        let places = &self.places;
        if !self.is_due {
            return Ok(());
        }
        let renamed = self.disk.rename(&places.new_backup, &places.backup);
        renamed.map_err(|error| told(&places.backup, &error))?;
        // Before the old file is replaced: never a new file without a backup.
        self.sync_folder()?;
        let renamed = self.disk.rename(&places.new, &places.file);
        renamed.map_err(|error| told(&places.file, &error))?;
        if let Err(error) = self.sync_folder() {
            return Err(self.restore(error));
        }
        for former in &places.former {
            // A surplus backup does no harm.
            let _ = self.disk.remove(former);
        }
        self.is_due = false;
        Ok(())
    }

    /// The new file has the name, but possibly not durably.
    fn restore(&self, error: io::Error) -> io::Error {
        let places = &self.places;
        let restored = self
            .create(&places.new, &self.old)
            .and_then(|()| self.disk.rename(&places.new, &places.file))
            .and_then(|()| self.sync_folder());
        match restored {
            Ok(()) => error,
            Err(failure) => {
                let told = format!("{error}; the file may hold the new configuration: {failure}");
                io::Error::new(error.kind(), told)
            }
        }
    }

    /// A file with the owner and permissions of the original, durable except for its name.
    fn create(&self, file: &Path, content: &[u8]) -> io::Result<()> {
        let created = self.disk.create(file, content, &self.places.file);
        created
            .and_then(|()| self.disk.sync(file))
            .map_err(|error| told(file, &error))
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = &self.places.folder;
        self.disk
            .sync_folder(folder)
            .map_err(|error| told(folder, &error))
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if self.is_due {
            // They may not have been made, or have been renamed.
            let _ = self.disk.remove(&self.places.new);
            let _ = self.disk.remove(&self.places.new_backup);
        }
    }
}

impl Places {
    fn of(disk: &dyn Disk, file: PathBuf) -> io::Result<Self> {
        let no_file = || io::Error::other("it is not a file");
        let folder = file.parent().ok_or_else(no_file)?.to_owned();
        let name = file.file_name().ok_or_else(no_file)?.to_owned();
        let named = |before: &str, after: &str| {
            let mut whole = OsString::from(before);
            whole.push(&name);
            whole.push(after);
            folder.join(whole)
        };
        let there = disk.list(&folder).map_err(|error| told(&folder, &error))?;
        let mut numbers: Vec<u64> = there.iter().filter_map(|one| number(one, &name)).collect();
        numbers.sort_unstable();
        let next = numbers.last().map_or(1, |last| last.saturating_add(1));
        let too_many = (numbers.len() + 1).saturating_sub(BACKUPS);
        let former = numbers.iter().take(too_many);
        Ok(Self {
            new: named(".", ".new"),
            backup: named("", &format!(".bak.{next}")),
            new_backup: named(".", ".bak.new"),
            former: former
                .map(|number| named("", &format!(".bak.{number}")))
                .collect(),
            folder: folder.clone(),
            file,
        })
    }
}

/// The number of a backup of the file with this name.
fn number(backup: &OsStr, name: &OsStr) -> Option<u64> {
    let text = backup.to_str()?.strip_prefix(name.to_str()?)?;
    let number = text.strip_prefix(".bak.")?;
    // Canonical numbers only.
    let found: u64 = number.parse().ok()?;
    (found.to_string() == number).then_some(found)
}

/// The text of a rewritten file.
pub fn rewritten(config: &Config) -> String {
    HEAD.to_owned() + &to_yaml(config)
}

fn told(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}
