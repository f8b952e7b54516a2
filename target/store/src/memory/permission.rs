//! Permission checks.

use super::attributes::{HAS_LIST, STICKY, Stored};
use super::inode::Inode;
use crate::{AccessMask, Caller, Kind, Result, StoreError};

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;

/// An object and its attributes of one moment, as permissions are judged by them.
#[derive(Clone, Copy)]
pub(super) struct Judged<'i> {
    /// `None` for an object that is being made, which has no list yet.
    inode: Option<&'i Inode>,
    pub stored: &'i Stored,
}

impl<'i> Judged<'i> {
    /// An object that is being made.
    pub fn new(stored: &'i Stored) -> Self {
        Self {
            inode: None,
            stored,
        }
    }
}

impl Inode {
    /// Judges by attributes that were read.
    pub fn judged<'i>(&'i self, stored: &'i Stored) -> Judged<'i> {
        Judged {
            inode: Some(self),
            stored,
        }
    }
}

/// Whether the permission bits, and the access control list if there is one, give the caller all
/// `wanted` rights.
pub(super) fn allows(caller: &Caller, object: Judged<'_>, wanted: u32) -> bool {
    let stored = object.stored;
    if caller.uid == 0 {
        return true;
    }
    if stored.mode & HAS_LIST != 0
        && let Some(kept) = object.inode.map(|inode| inode.lists.load())
        && let Some(kept) = &*kept
    {
        return kept
            .lists
            .access
            .allows(caller, (stored.uid, stored.gid), stored.mode, wanted);
    }
    let class = if caller.uid == stored.uid {
        6
    } else if caller.in_group(stored.gid) {
        3
    } else {
        0
    };
    (stored.mode >> class) & wanted == wanted
}

/// [`StoreError::Denied`] unless [`allows`].
pub(super) fn require(caller: &Caller, object: Judged<'_>, wanted: u32) -> Result<()> {
    if allows(caller, object, wanted) {
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
pub(super) fn require_read(caller: &Caller, object: Judged<'_>) -> Result<()> {
    if owns(caller, object.stored) || allows(caller, object, EXECUTE) {
        return Ok(());
    }
    require(caller, object, READ)
}

/// Whether the caller may write data; the owner may always, as with [`require_read`].
pub(super) fn require_write(caller: &Caller, object: Judged<'_>) -> Result<()> {
    if owns(caller, object.stored) {
        Ok(())
    } else {
        require(caller, object, WRITE)
    }
}

/// Whether the caller may take a name of `object` out of a directory.
pub(super) fn require_removal(
    caller: &Caller,
    directory: Judged<'_>,
    object: &Stored,
) -> Result<()> {
    require(caller, directory, WRITE | EXECUTE)?;
    let directory = directory.stored;
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
    object: Judged<'_>,
    wanted: AccessMask,
) -> AccessMask {
    let (stored, mut granted) = (object.stored, 0);
    let mut grant = |needed, rights| {
        if allows(caller, object, needed) {
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
