//! Stands in for the finding of objects.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, major, minor, openat, statx};

use super::scene::Place;
use crate::posix::errors::store_error;
use crate::posix::volume::Volume;
use crate::{Attributes, Handle, Kind, Result, SpecialKind, Time};

pub(in crate::posix) struct Found {
    pub path: OwnedFd,
    pub handle: Handle,
    pub attributes: Attributes,
}

pub(in crate::posix) fn attributes(_volume: &Volume, path: &OwnedFd) -> Result<Attributes> {
    let s = statx(path, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(store_error)?;
    let time = |t: rustix::fs::StatxTimestamp| Time {
        seconds: t.tv_sec as u64,
        nanoseconds: t.tv_nsec,
    };
    let _ = (major(0), minor(0));
    Ok(Attributes {
        kind: match FileType::from_raw_mode(s.stx_mode.into()) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Special(SpecialKind::Fifo),
            FileType::Socket => Kind::Special(SpecialKind::Socket),
            _ => Kind::File,
        },
        mode: u32::from(s.stx_mode) & 0o7777,
        links: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        size: s.stx_size,
        used: s.stx_blocks * 512,
        inode: s.stx_ino,
        file_system: 0,
        accessed: time(s.stx_atime),
        modified: time(s.stx_mtime),
        changed: time(s.stx_ctime),
    })
}

pub(in crate::posix) fn find(volume: &Volume, place: &Place, name: &CStr) -> Result<Found> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = openat(&place.path, name, flags, Mode::empty()).map_err(store_error)?;
    let attributes = attributes(volume, &path)?;
    Ok(Found {
        path,
        handle: Handle::new(&attributes.inode.to_be_bytes()).expect("short"),
        attributes,
    })
}
