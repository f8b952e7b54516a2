//! The file systems mounted below the folder of a volume, if clients may enter them
//! ([`super::volume::Mounts::Cross`]).
//!
//! They are looked up in the host's mount table when a name or a handle leads to one, and dropped
//! when nothing of them is open, so that they can be unmounted.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::descriptor::path_of;
use super::file_system::{FileSystem, readable};

/// The most that are kept open.
const MOST: usize = 1024;

/// The mounts below a folder with open objects.
#[derive(Default)]
pub(super) struct MountsBelow {
    open: Mutex<Vec<Arc<FileSystem>>>,
    count: AtomicUsize,
}

/// A line of `/proc/self/mountinfo`.
struct Mount {
    id: u64,
    point: PathBuf,
    kind: String,
}

impl MountsBelow {
    /// The file system of the mount with this number.
    ///
    /// # Errors
    /// [`Errno::STALE`] if there is none below the folder.
    pub fn by_mount(
        &self,
        folder: BorrowedFd<'_>,
        within: &[u8],
        id: u64,
    ) -> Result<Arc<FileSystem>, Errno> {
        let open = self.lock();
        if let Some(there) = open.iter().find(|there| there.mount_id == id) {
            return Ok(Arc::clone(there));
        }
        drop(open);
        let found = mounts_below(folder)?;
        let mount = found.iter().find(|mount| mount.id == id);
        let mount = mount.ok_or(Errno::STALE)?;
        self.add(open_mount(mount, within)?)
    }

    /// The file systems with this identity: usually one, with one mount.
    ///
    /// # Errors
    /// The host's mounts cannot be read.
    pub fn by_identity(
        &self,
        folder: BorrowedFd<'_>,
        within: &[u8],
        id: u64,
    ) -> Result<Vec<Arc<FileSystem>>, Errno> {
        let known = self.lock().clone();
        let with = |all: &[Arc<FileSystem>]| -> Vec<_> {
            all.iter().filter(|one| one.id == id).cloned().collect()
        };
        let found = with(&known);
        if !found.is_empty() {
            return Ok(found);
        }
        for mount in mounts_below(folder)? {
            if known.iter().any(|there| there.mount_id == mount.id) {
                continue;
            }
            // One that cannot be opened cannot be served; others can.
            if let Ok(opened) = open_mount(&mount, within)
                && opened.id == id
            {
                self.add(opened)?;
            }
        }
        Ok(with(&self.lock()))
    }

    /// Drops those without open objects. May block.
    pub fn prune(&self) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut open = self.lock();
        let (used, unused) = std::mem::take(&mut *open)
            .into_iter()
            .partition(|one| Arc::strong_count(one) > 1);
        *open = used;
        self.count.store(open.len(), Relaxed);
        drop(open);
        drop::<Vec<_>>(unused);
    }

    fn add(&self, opened: FileSystem) -> Result<Arc<FileSystem>, Errno> {
        let mut open = self.lock();
        if let Some(there) = open.iter().find(|there| there.mount_id == opened.mount_id) {
            return Ok(Arc::clone(there));
        }
        if open.len() >= MOST {
            return Err(Errno::MFILE);
        }
        let opened = Arc::new(opened);
        open.push(Arc::clone(&opened));
        self.count.store(open.len(), Relaxed);
        Ok(opened)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<FileSystem>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel's number of the mount that a file was opened in.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn mount_of(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(file, c"", flags, StatxFlags::MNT_ID)?.stx_mnt_id)
}

fn open_mount(mount: &Mount, within: &[u8]) -> Result<FileSystem, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path: OwnedFd = rustix::fs::openat(CWD, &mount.point, flags, Mode::empty())?;
    let opened = FileSystem::of(readable(path), within, true)?;
    // Another may have been mounted over it in the meantime.
    if opened.mount_id == mount.id {
        Ok(opened)
    } else {
        Err(Errno::STALE)
    }
}

/// The mounts below a folder, except automounts that access would trigger.
fn mounts_below(folder: BorrowedFd<'_>) -> Result<Vec<Mount>, Errno> {
    let folder = PathBuf::from(OsString::from_vec(path_of(folder)?));
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
    let below = mounts.filter(|mount| is_below(&mount.point, &folder) && mount.kind != "autofs");
    Ok(below.collect())
}

fn is_below(path: &Path, folder: &Path) -> bool {
    path != folder && path.starts_with(folder)
}

/// Parses a line (proc_pid_mountinfo(5)): number, parent, device, root, mount point, options,
/// optional fields up to a dash, type.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let point = unescape(fields.nth(3)?);
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(Mount {
        id,
        point: OsString::from_vec(point).into(),
        kind,
    })
}

/// Blanks and backslashes are encoded as a backslash and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let digits = others.first_chunk::<3>().filter(|_| *first == b'\\');
        let byte = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        plain.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &others[3..] } else { others };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_mount_table_are_read() {
        let line = b"36 35 98:0 /mnt1 /mnt\\040with\\134slash\\011 rw,noatime master:1 - ext3 /dev/root rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.id, 36);
        assert_eq!(mount.point, Path::new("/mnt with\\slash\t"));
        assert_eq!(mount.kind, "ext3");
        assert!(parse(b"").is_none());
        assert!(parse(b"36 35 98:0 /mnt1").is_none());
        assert!(parse(b"36 35 98:0 / /mnt rw").is_none());
    }

    #[test]
    fn below_is_not_beside() {
        let below = |path, folder| is_below(Path::new(path), Path::new(folder));
        assert!(below("/srv/data/x", "/srv/data"));
        assert!(below("/proc", "/"));
        assert!(!below("/srv/data", "/srv/data"));
        assert!(!below("/srv/data2", "/srv/data"));
        assert!(!below("/srv", "/srv/data"));
    }
}
