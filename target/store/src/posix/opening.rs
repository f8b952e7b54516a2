//! Opening objects by handle and by name. All of this may block: it runs in jobs of helpers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::errors::store_error;
use super::file_system::FileSystem;
use super::handle::{self, Place};
use super::inside;
use super::sys::handles;
use super::volume::{Mounts, Volume};
use crate::{Attributes, Handle, Kind, Result, SpecialKind, StoreError, Time};

/// How objects are opened: as names for system calls, without access to their data, and never
/// through a symbolic link.
pub(super) const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An object just opened.
pub(super) struct Opened {
    /// By which clients know it.
    pub handle: Handle,
    /// Opened as a path only.
    pub path: OwnedFd,
    /// As they were then.
    pub attributes: Attributes,
    /// Where it is.
    pub file_system: Arc<FileSystem>,
}

/// Opens an object by its handle. Needs the rights of the process itself, not of a caller.
///
/// # Errors
/// [`StoreError::Stale`] if there is no such object in the volume any more, or never was.
pub(super) fn open_handle(volume: &Volume, handle: &Handle) -> Result<Opened> {
    let (id, place) = handle::unpack(handle).ok_or(StoreError::Stale)?;
    if *handle == volume.root() {
        let path = rustix::fs::openat(volume.root_path(), c".", PATH, Mode::empty());
        let path = path.map_err(lost)?;
        return finish(volume, *handle, path, Arc::clone(volume.home()));
    }
    let Place::Kernel(kernel) = place else {
        return Err(StoreError::Stale);
    };
    let file_system = Some(volume.home()).filter(|home| home.id == id && home.kernel_handles);
    let file_system = file_system.ok_or(StoreError::Stale)?;
    let path = handles::open_by_handle(file_system.mount.as_fd(), &kernel, PATH).map_err(lost)?;
    let opened = finish(volume, *handle, path, Arc::clone(file_system))?;
    if inside::holds(volume, &opened, &kernel)? {
        Ok(opened)
    } else {
        Err(StoreError::Stale)
    }
}

/// Opens what a name in a directory stands for: the object itself, also if that is a symbolic link.
/// `.` and `..` are names; the root is its own parent. Runs with the rights of whoever asks: that
/// the directory may be searched is for the kernel to say.
///
/// # Errors
/// [`StoreError::Invalid`] for what is no name; [`StoreError::Stale`] if the directory is not in
/// the volume any more; what the kernel says.
pub(super) fn open_name(volume: &Volume, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Opened> {
    check_name(name)?;
    inside::require(volume, directory)?;
    // The parent of the root is outside. Elsewhere it is checked where this led: the directory may
    // be moved meanwhile.
    let up = name == b"..";
    let name: &[u8] = if up && inside::is_root(volume, directory)? {
        b"."
    } else {
        name
    };
    let mut resolve = ResolveFlags::NO_MAGICLINKS;
    if volume.config().mounts == Mounts::Hide {
        resolve |= ResolveFlags::NO_XDEV;
    }
    let path = match rustix::fs::openat2(directory, name, PATH, Mode::empty(), resolve) {
        Ok(path) => path,
        // A mount that is to be hidden, where what it covers is out of reach.
        Err(Errno::XDEV) => return Err(StoreError::Denied),
        Err(Errno::NOENT) if is_gone(directory) => return Err(StoreError::Stale),
        Err(error) => return Err(store_error(error)),
    };
    if up {
        if is_gone(directory) {
            return Err(StoreError::Stale);
        }
        inside::require(volume, path.as_fd())?;
    }
    opened_of(volume, directory, name, path)
}

/// Whether a directory that is open has been removed.
fn is_gone(directory: BorrowedFd<'_>) -> bool {
    stat(directory).is_ok_and(|found| found.stx_nlink == 0)
}

/// What is known of an object that was just made or found as `name` in a directory, and opened as a
/// path or otherwise.
///
/// # Errors
/// What the kernel says; [`StoreError::Stale`] if it is removed already.
pub(super) fn opened_of(
    volume: &Volume,
    _directory: BorrowedFd<'_>,
    _name: &[u8],
    path: OwnedFd,
) -> Result<Opened> {
    let file_system = Arc::clone(volume.home());
    let handle = if inside::is_root(volume, path.as_fd())? {
        volume.root()
    } else {
        let kernel = handles::handle_of(path.as_fd()).map_err(store_error)?;
        handle::pack(file_system.id, &Place::Kernel(kernel))
    };
    finish(volume, handle, path, file_system)
}

/// An object's attributes.
///
/// # Errors
/// What the kernel says.
pub(super) fn attributes_of(volume: &Volume, object: BorrowedFd<'_>) -> Result<Attributes> {
    let stat = stat(object).map_err(store_error)?;
    Ok(attributes(volume, &stat))
}

/// Refuses what is no name of one component (RFC 1813 section 3.2).
///
/// # Errors
/// [`StoreError::Invalid`].
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(StoreError::Invalid);
    }
    Ok(())
}

/// What the kernel knows without asking anybody else.
pub(super) fn stat(object: BorrowedFd<'_>) -> std::result::Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(object, c"", flags, StatxFlags::BASIC_STATS)
}

/// [`attributes_of`] what the kernel said.
pub(super) fn attributes(volume: &Volume, stat: &Statx) -> Attributes {
    let mode = u32::from(stat.stx_mode);
    let device = (stat.stx_rdev_major, stat.stx_rdev_minor);
    let time = |time: rustix::fs::StatxTimestamp| Time {
        seconds: u64::try_from(time.tv_sec).unwrap_or(0),
        nanoseconds: time.tv_nsec,
    };
    Attributes {
        kind: match FileType::from_raw_mode(mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::BlockDevice => Kind::Special(SpecialKind::Block(device.0, device.1)),
            FileType::CharacterDevice => Kind::Special(SpecialKind::Character(device.0, device.1)),
            FileType::Fifo => Kind::Special(SpecialKind::Fifo),
            FileType::Socket => Kind::Special(SpecialKind::Socket),
            FileType::RegularFile | FileType::Unknown => Kind::File,
        },
        mode: mode & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        inode: stat.stx_ino,
        file_system: volume.file_system_number(device_of(stat)),
        accessed: time(stat.stx_atime),
        modified: time(stat.stx_mtime),
        changed: time(stat.stx_ctime),
    }
}

/// The device number of the file system that an object is on.
pub(super) fn device_of(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

/// Completes what was opened; an object without a name is gone.
fn finish(
    volume: &Volume,
    handle: Handle,
    path: OwnedFd,
    file_system: Arc<FileSystem>,
) -> Result<Opened> {
    let attributes = attributes_of(volume, path.as_fd())?;
    if attributes.links == 0 {
        return Err(StoreError::Stale);
    }
    Ok(Opened {
        handle,
        path,
        attributes,
        file_system,
    })
}

/// What it means that a handle does not open.
fn lost(error: Errno) -> StoreError {
    match error {
        // File systems say so of handles that they never made.
        Errno::INVAL | Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::OVERFLOW => {
            StoreError::Stale
        }
        other => store_error(other),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::posix::volume::{Direct, Groups, Limits, Sync, VolumeConfig};

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("millrace-opening-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn volume(root: &Path, mounts: Mounts) -> Volume {
        Volume::open(VolumeConfig {
            name: "test".into(),
            root: root.to_owned(),
            direct: Direct::Auto,
            sync: Sync::Strict,
            groups: Groups::Client,
            mounts,
            limits: Limits::default(),
            state: None,
        })
        .unwrap()
    }

    fn find(volume: &Volume, path: &[&[u8]]) -> Result<Opened> {
        let mut found = open_handle(volume, &volume.root())?;
        for name in path {
            found = open_name(volume, found.path.as_fd(), name)?;
        }
        Ok(found)
    }

    #[test]
    fn names_and_handles_lead_to_the_same_objects() {
        let folder = Folder::new("same");
        std::fs::create_dir_all(folder.0.join("a/b")).unwrap();
        std::fs::write(folder.0.join("a/b/file"), b"twelve bytes").unwrap();
        std::os::unix::fs::symlink("/", folder.0.join("a/link")).unwrap();
        for mounts in [Mounts::Hide, Mounts::Cross] {
            let volume = volume(&folder.0, mounts);
            let paths: [&[&[u8]]; 7] = [
                &[],
                &[b"a"],
                &[b"a", b"b"],
                &[b"a", b"b", b"file"],
                &[b"a", b"link"],
                &[b"a", b"b", b"..", b".", b"b"],
                &[b"..", b".."],
            ];
            for path in paths {
                let found = find(&volume, path).unwrap();
                let again = open_handle(&volume, &found.handle).unwrap();
                assert_eq!(again.attributes, found.attributes);
                let other = self::volume(&folder.0, mounts);
                let again = open_handle(&other, &found.handle).unwrap();
                assert_eq!(again.attributes, found.attributes);
                assert_eq!(again.handle, found.handle);
            }
            let file = find(&volume, &[b"a", b"b", b"file"]).unwrap();
            assert_eq!(file.attributes.size, 12);
            assert_eq!(file.attributes.kind, Kind::File);
            let link = find(&volume, &[b"a", b"link"]).unwrap();
            assert_eq!(link.attributes.kind, Kind::Symlink);
            let root = find(&volume, &[b"a", b".."]).unwrap();
            assert_eq!(root.handle, volume.root());
            assert_eq!(find(&volume, &[b"none"]).err(), Some(StoreError::NotFound));
            std::fs::remove_file(folder.0.join("a/b/file")).unwrap();
            let gone = open_handle(&volume, &file.handle);
            assert_eq!(gone.err(), Some(StoreError::Stale));
            std::fs::write(folder.0.join("a/b/file"), b"twelve bytes").unwrap();
        }
    }
}
