//! The kernel's calls that change one attribute, on an object that may be open as a path only. They
//! run with the rights of the calling thread.

use std::os::fd::BorrowedFd;

use rustix::fs::{Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Result;

use crate::SetTime;
use crate::posix::sys::calls;

/// Changes the owner or group of an object. The kernel clears set-id bits.
pub(in crate::posix) fn own(
    object: BorrowedFd<'_>,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    calls::chown(object, uid, gid)
}

/// Sets the permission, set-id and sticky bits of anything but a symbolic link.
pub(in crate::posix) fn mode(object: BorrowedFd<'_>, mode: u32) -> Result<()> {
    calls::chmod(object, Mode::from_raw_mode(mode))
}

/// Sets times. Nanoseconds have been checked.
pub(in crate::posix) fn times(
    object: BorrowedFd<'_>,
    accessed: SetTime,
    modified: SetTime,
) -> Result<()> {
    let times = Timestamps {
        last_access: timespec(accessed),
        last_modification: timespec(modified),
    };
    calls::utimens(object, &times)
}

fn timespec(time: SetTime) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        SetTime::Keep => special(UTIME_OMIT),
        SetTime::Now => special(UTIME_NOW),
        SetTime::To(time) => Timespec {
            tv_sec: i64::try_from(time.seconds).unwrap_or(i64::MAX),
            tv_nsec: time.nanoseconds.into(),
        },
    }
}
