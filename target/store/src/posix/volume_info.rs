//! Information for operators about a volume: its file system, the permitted operations, and its
//! space.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxFlags};
use rustix::thread::CapabilitySet;

use super::volume::Volume;

/// Rights that a process needs to serve a folder like the kernel's own server, and the effect of
/// missing ones.
const RIGHTS: [(&str, CapabilitySet, &str); 8] = [
    (
        "CAP_SETUID",
        CapabilitySet::SETUID,
        "all clients' users act as the server's own user",
    ),
    (
        "CAP_SETGID",
        CapabilitySet::SETGID,
        "all clients' users act as the server's own user",
    ),
    (
        "CAP_DAC_READ_SEARCH",
        CapabilitySet::DAC_READ_SEARCH,
        "file handles end with the process, and become stale when files are moved",
    ),
    (
        "CAP_DAC_OVERRIDE",
        CapabilitySet::DAC_OVERRIDE,
        "owners cannot use files whose mode denies them access, and clients' root has no more \
         rights than other users",
    ),
    (
        "CAP_CHOWN",
        CapabilitySet::CHOWN,
        "clients' root cannot give files away",
    ),
    (
        "CAP_FOWNER",
        CapabilitySet::FOWNER,
        "clients' root cannot change modes and times of others' files",
    ),
    (
        "CAP_FSETID",
        CapabilitySet::FSETID,
        "clients' root cannot keep set-id bits",
    ),
    (
        "CAP_MKNOD",
        CapabilitySet::MKNOD,
        "clients' root cannot make device nodes",
    ),
];

/// Information available from opening on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The type of its file system, by the kernel's name, such as `ext4`; empty if not known.
    pub file_system: String,
    /// Its identity in file handles: the same on every host that has this file system.
    pub identity: u64,
    /// The alignment of direct transfers, in bytes. `None` if not supported, or if it cannot be
    /// queried with a file without a name.
    pub direct_alignment: Option<u32>,
    /// Whether file handles are the kernel's, and remain valid after a restart.
    pub lasting_handles: bool,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Rights that the process should have and does not: the capability, and the effect of its
    /// absence.
    pub missing: Vec<(&'static str, &'static str)>,
}

/// Space on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes used, by everything on the file system.
    pub used_bytes: u64,
    /// Objects, if the file system counts them.
    pub inodes: u64,
    /// Objects that there can be, unless only the bytes bound their number.
    pub total_inodes: Option<u64>,
}

impl Volume {
    /// Information for operators. Blocks on the first call.
    #[must_use]
    pub fn info(&self) -> &VolumeInfo {
        self.known().get_or_init(|| self.look())
    }

    fn look(&self) -> VolumeInfo {
        let home = self.folder().home();
        VolumeInfo {
            file_system: kind(self.folder().host_path()).unwrap_or_default(),
            identity: home.id,
            direct_alignment: direct_alignment(self.folder().host_path()),
            lasting_handles: home.kernel_handles,
            read_only: is_read_only(self.folder().host_path()),
            missing: missing(),
        }
    }

    /// The space on its file system. Blocks.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn space(&self) -> io::Result<FileSystemSpace> {
        let stat = rustix::fs::fstatvfs(self.folder().host_path())?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(FileSystemSpace {
            total_bytes: bytes(stat.f_blocks),
            used_bytes: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
            inodes: stat.f_files.saturating_sub(stat.f_ffree),
            // Btrfs and others tell 0.
            total_inodes: (stat.f_files > 0).then_some(stat.f_files),
        })
    }
}

fn is_read_only(folder: BorrowedFd<'_>) -> bool {
    let stat = rustix::fs::fstatvfs(folder);
    stat.is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The kernel's name for the type of file system of a mount.
fn kind(folder: BorrowedFd<'_>) -> Option<String> {
    let stat = rustix::fs::statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let mount = stat.ok()?.stx_mnt_id;
    kind_of(&fs::read_to_string("/proc/self/mountinfo").ok()?, mount)
}

/// The same from the table of mounts (proc_pid_mountinfo(5)).
fn kind_of(table: &str, mount: u64) -> Option<String> {
    let number = mount.to_string();
    let line = table
        .lines()
        .find(|line| line.split(' ').next() == Some(number.as_str()))?;
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next().map(str::to_owned)
}

/// Queries a file without a name, which is removed at once.
fn direct_alignment(folder: BorrowedFd<'_>) -> Option<u32> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    let stat = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let stat = stat.ok()?;
    let align = stat.stx_dio_mem_align.max(stat.stx_dio_offset_align);
    (align > 0).then_some(align)
}

fn missing() -> Vec<(&'static str, &'static str)> {
    let own = rustix::thread::capabilities(None);
    let own = own.map_or(CapabilitySet::empty(), |own| own.effective);
    missing_of(own)
}

fn missing_of(own: CapabilitySet) -> Vec<(&'static str, &'static str)> {
    let all = RIGHTS.iter();
    let missing = all.filter(|(_, right, _)| !own.contains(*right));
    missing.map(|(name, _, lost)| (*name, *lost)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_mount_is_found_by_its_number() {
        let table = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                     2 21 0:5 / /proc rw - proc proc rw\n\
                     30 21 0:40 / /srv/a\\040b rw shared:7 master:2 - fuse.some some rw\n";
        assert_eq!(kind_of(table, 21).as_deref(), Some("ext4"));
        assert_eq!(kind_of(table, 2).as_deref(), Some("proc"));
        assert_eq!(kind_of(table, 30).as_deref(), Some("fuse.some"));
        assert_eq!(kind_of(table, 3), None);
    }

    #[test]
    fn what_a_process_may_not_do_is_told_with_what_is_lost() {
        assert_eq!(missing_of(CapabilitySet::all()), []);
        let own = CapabilitySet::all().difference(CapabilitySet::DAC_READ_SEARCH);
        let missing = missing_of(own);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].0, "CAP_DAC_READ_SEARCH");
        assert!(missing[0].1.contains("file handles"));
        assert_eq!(missing_of(CapabilitySet::empty()).len(), RIGHTS.len());
    }
}
