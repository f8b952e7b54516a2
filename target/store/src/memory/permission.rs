//! Permission checks.

use super::attributes::{STICKY, Stored};
use crate::{AccessMask, Caller, Kind, Result, StoreError};

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;

/// Whether the permission bits give the caller all `wanted` rights.
pub(super) fn allows(caller: &Caller, stored: &Stored, wanted: u32) -> bool {
    let class = if caller.uid == stored.uid {
        6
    } else if caller.in_group(stored.gid) {
        3
    } else {
        0
    };
    caller.uid == 0 || (stored.mode >> class) & wanted == wanted
}

/// [`StoreError::Denied`] unless [`allows`].
pub(super) fn require(caller: &Caller, stored: &Stored, wanted: u32) -> Result<()> {
    if allows(caller, stored, wanted) {
        Ok(())
    } else {
        Err(StoreError::Denied)
    }
}

/// Whether the caller is the owner or above.
pub(super) fn owns(caller: &Caller, stored: &Stored) -> bool {
    caller.uid == 0 || caller.uid == stored.uid
}

/// Whether the caller may read data. The server does not know the open files of a client. So the
/// owner may always read, and execute permission includes read permission (RFC 1813 section 4.4).
pub(super) fn require_read(caller: &Caller, stored: &Stored) -> Result<()> {
    if owns(caller, stored) || allows(caller, stored, EXECUTE) {
        return Ok(());
    }
    require(caller, stored, READ)
}

/// Whether the caller may write data; the owner may always, as with [`require_read`].
pub(super) fn require_write(caller: &Caller, stored: &Stored) -> Result<()> {
    if owns(caller, stored) {
        Ok(())
    } else {
        require(caller, stored, WRITE)
    }
}

/// Whether the caller may take a name of `object` out of a directory.
pub(super) fn require_removal(caller: &Caller, directory: &Stored, object: &Stored) -> Result<()> {
    require(caller, directory, WRITE | EXECUTE)?;
    let sticky = directory.mode & STICKY != 0;
    if sticky && !owns(caller, directory) && !owns(caller, object) {
        return Err(StoreError::Denied);
    }
    Ok(())
}

/// Which of the wanted rights the caller has (RFC 1813 section 3.3.4).
pub(super) fn access(
    caller: &Caller,
    kind: Kind,
    stored: &Stored,
    wanted: AccessMask,
) -> AccessMask {
    let mut granted = 0;
    let mut grant = |needed, rights| {
        if allows(caller, stored, needed) {
            granted |= rights;
        }
    };
    grant(READ, AccessMask::READ);
    if kind == Kind::Directory {
        grant(EXECUTE, AccessMask::LOOKUP);
        let change = AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
        grant(WRITE | EXECUTE, change);
    } else {
        grant(WRITE, AccessMask::MODIFY | AccessMask::EXTEND);
        // The superuser passes all checks, except for execution of a file without any execute bit.
        if kind == Kind::File && stored.mode & 0o111 != 0 {
            grant(EXECUTE, AccessMask::EXECUTE);
        }
    }
    AccessMask(granted & wanted.0)
}
