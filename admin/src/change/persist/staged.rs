//! A configuration on its way into the file.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::Disk;
use crate::config::{Config, TEXT_MAX, parse, to_yaml};

/// The head of every file that is written.
pub(super) const HEAD: &str = "\
# Written through the API of millraced. The file that stood here before, with its comments, is
# beside this one under the same name with .bak at its end.
";

/// A new file that is durable beside the old one, and has only to take its place. Dropped before
/// that, it is taken away.
pub struct Staged<'a> {
    disk: &'a dyn Disk,
    places: Places,
    /// The content of the file as it is, for going back.
    old: Vec<u8>,
    /// What is still to be done.
    left: Left,
}

struct Places {
    file: PathBuf,
    folder: PathBuf,
    new: PathBuf,
    backup: PathBuf,
    new_backup: PathBuf,
}

/// Steps to the new file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// The backup is that of the last file by other hands, and stays.
    File,
    BackupAndFile,
}

impl<'a> Staged<'a> {
    /// Puts `config` beside `file`, which keeps its content until [`Staged::commit`].
    ///
    /// # Errors
    ///
    /// The file cannot be read, the configuration is too long for a file, or nothing can be
    /// written beside the file.
    pub fn new(disk: &'a dyn Disk, file: &Path, config: &Config) -> io::Result<Self> {
        let places = Places::of(disk.resolve(file)?)?;
        let old = disk.read(&places.file)?;
        let text = text(config);
        if text.len() > TEXT_MAX {
            let length = text.len();
            return Err(io::Error::other(format!(
                "the configuration takes {length} bytes; a file may have {TEXT_MAX}"
            )));
        }
        let mut staged = Self {
            disk,
            places,
            old,
            left: Left::Nothing,
        };
        if staged.old == text.as_bytes() {
            return Ok(staged);
        }
        // A file that holds nothing but what the API wrote has no comments to keep: the backup
        // stays that of the last file by other hands.
        let kept = is_ours(&staged.old) && disk.read(&staged.places.backup).is_ok();
        staged.left = if kept {
            Left::File
        } else {
            Left::BackupAndFile
        };
        let places = &staged.places;
        staged.create(&places.new, text.as_bytes())?;
        if !kept {
            staged.create(&places.new_backup, &staged.old)?;
        }
        Ok(staged)
    }

    /// Puts the new file in the old one's place; durable when this returns.
    ///
    /// # Errors
    ///
    /// The disk refuses. The file is the old one then, unless the error says otherwise.
    pub fn commit(mut self) -> io::Result<()> {
        let places = &self.places;
        if self.left == Left::Nothing {
            return Ok(());
        }
        if self.left == Left::BackupAndFile {
            let renamed = self.disk.rename(&places.new_backup, &places.backup);
            renamed.map_err(|error| told(&places.backup, &error))?;
            // Before the old file loses its name: never a new file without a backup.
            self.sync_folder()?;
        }
        let renamed = self.disk.rename(&places.new, &places.file);
        renamed.map_err(|error| told(&places.file, &error))?;
        if let Err(error) = self.sync_folder() {
            return Err(self.restore(error));
        }
        self.left = Left::Nothing;
        Ok(())
    }

    /// The new file has the name, but nobody knows whether it keeps it through a loss of power.
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

    /// With the owner and permissions of the file, and durable but for its name.
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
        if self.left != Left::Nothing {
            // They may not have been made, or have become what they were for.
            let _ = self.disk.remove(&self.places.new);
            let _ = self.disk.remove(&self.places.new_backup);
        }
    }
}

impl Places {
    fn of(file: PathBuf) -> io::Result<Self> {
        let no_file = || io::Error::other("it is not a file");
        let folder = file.parent().ok_or_else(no_file)?.to_owned();
        let name = file.file_name().ok_or_else(no_file)?;
        let named = |before: &str, after: &str| {
            let mut whole = OsString::from(before);
            whole.push(name);
            whole.push(after);
            folder.join(whole)
        };
        Ok(Self {
            new: named(".", ".new"),
            backup: named("", ".bak"),
            new_backup: named(".", ".bak.new"),
            folder: folder.clone(),
            file,
        })
    }
}

/// The whole text of the file.
pub(super) fn text(config: &Config) -> String {
    HEAD.to_owned() + &to_yaml(config)
}

/// Whether a file is word for word what the API writes.
fn is_ours(content: &[u8]) -> bool {
    let Ok(found) = std::str::from_utf8(content) else {
        return false;
    };
    found.starts_with(HEAD) && parse(found, "").is_ok_and(|config| text(&config) == found)
}

fn told(file: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.display()))
}
