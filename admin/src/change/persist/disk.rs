//! The interface of a disk.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::config::TEXT_MAX;
use crate::regular;

/// A disk. A file's content survives a loss of power only after [`Disk::sync`] of the file, and its
/// name only after [`Disk::sync_folder`] of its folder.
pub trait Disk: Send + Sync {
    /// The file itself, with symbolic links resolved.
    ///
    /// # Errors
    ///
    /// It does not exist.
    fn resolve(&self, file: &Path) -> io::Result<PathBuf>;

    /// The content.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is longer than the limit of configurations.
    fn read(&self, file: &Path) -> io::Result<Vec<u8>>;

    /// The names in a folder.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Makes a file with this content, and with the owner, group and permissions of the file
    /// `like`. An existing file of that name is removed first.
    ///
    /// # Errors
    ///
    /// It cannot be made, or cannot have that owner.
    fn create(&self, file: &Path, content: &[u8], like: &Path) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    ///
    /// The disk reports an error.
    fn sync(&self, file: &Path) -> io::Result<()>;

    /// Renames a file to `to`, atomically replacing an existing one.
    ///
    /// # Errors
    ///
    /// It fails; nothing has changed.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// It fails.
    fn remove(&self, file: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    ///
    /// The disk reports an error.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The host's file systems.
pub struct HostDisk;

impl Disk for HostDisk {
    fn resolve(&self, file: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(file)
    }

    fn read(&self, file: &Path) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let (file, _) = regular::open(file)?;
        file.take(TEXT_MAX as u64 + 1).read_to_end(&mut content)?;
        if content.len() > TEXT_MAX {
            let message =
                format!("longer than {TEXT_MAX} bytes, the most a configuration may have");
            return Err(io::Error::other(message));
        }
        Ok(content)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let entries = fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn create(&self, file: &Path, content: &[u8], like: &Path) -> io::Result<()> {
        match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let like = fs::metadata(like)?;
        let mut new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(file)?;
        let own = new.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(&new, Some(like.uid()), Some(like.gid())).map_err(|error| {
                let owner = format!("its owner {}:{} cannot be kept", like.uid(), like.gid());
                io::Error::new(error.kind(), format!("{owner}: {error}"))
            })?;
        }
        new.set_permissions(fs::Permissions::from_mode(like.mode() & 0o777))?;
        new.write_all(content)
    }

    fn sync(&self, file: &Path) -> io::Result<()> {
        File::open(file)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}
