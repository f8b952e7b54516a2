//! Attributes in the form of stores.

use super::sys::Statx;
use crate::{Attributes, Kind, SpecialKind, Time};

/// Mode bits that clients see and set.
pub(super) const MODE_BITS: u32 = 0o7777;

/// Attributes of an object, but for the links of directories.
pub(super) fn attributes(found: &Statx) -> Attributes {
    let mode = u32::from(found.mode);
    Attributes {
        kind: kind(mode, found.special),
        mode: mode & MODE_BITS,
        links: found.links,
        uid: found.uid,
        gid: found.gid,
        size: found.size,
        used: found.blocks.saturating_mul(512),
        inode: found.inode,
        file_system: 0,
        accessed: time(&found.accessed),
        modified: time(&found.modified),
        changed: time(&found.changed),
        change: found.version,
    }
}

fn kind(mode: u32, device: u64) -> Kind {
    let numbers = (libc::major(device), libc::minor(device));
    match mode & libc::S_IFMT {
        libc::S_IFDIR => Kind::Directory,
        libc::S_IFLNK => Kind::Symlink,
        libc::S_IFBLK => Kind::Special(SpecialKind::Block(numbers.0, numbers.1)),
        libc::S_IFCHR => Kind::Special(SpecialKind::Character(numbers.0, numbers.1)),
        libc::S_IFIFO => Kind::Special(SpecialKind::Fifo),
        libc::S_IFSOCK => Kind::Special(SpecialKind::Socket),
        _ => Kind::File,
    }
}

fn time(time: &libc::timespec) -> Time {
    Time {
        seconds: u64::try_from(time.tv_sec).unwrap_or(0),
        nanoseconds: u32::try_from(time.tv_nsec).unwrap_or(0),
    }
}
