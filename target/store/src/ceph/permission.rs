//! Rights of callers where the library does not check them: it knows open files, which have been
//! opened by a caller, and NFS version 3 knows none.

use super::call::{CallContext, FoundObject};
use crate::access_list_format::{ACCESS, LONGEST, decode};
use crate::{AccessList, AccessMask, Attributes, Caller, Kind, Result, StoreError};

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;

/// Whether the caller is the owner or above.
pub(super) fn owns(caller: &Caller, found: &Attributes) -> bool {
    caller.uid == 0 || caller.uid == found.uid
}

/// Whether permission bits give a caller all `wanted` rights.
fn bits_allow(caller: &Caller, found: &Attributes, wanted: u32) -> bool {
    let class = if caller.uid == found.uid {
        6
    } else if caller.in_group(found.gid) {
        3
    } else {
        0
    };
    found.mode >> class & wanted == wanted
}

impl CallContext {
    /// The access control list of an object, if it has one.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn access_list(&self, object: &FoundObject) -> Result<Option<AccessList>> {
        if object.attributes.kind == Kind::Symlink {
            return Ok(None);
        }
        let superuser = &self.session.superuser;
        match object.inode.xattr(superuser, ACCESS, LONGEST) {
            Ok(value) => decode(&value).map(Some),
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Whether the caller has all `wanted` rights to an object.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn allows(&self, object: &FoundObject, wanted: u32) -> Result<bool> {
        let (caller, found) = (&self.caller, &object.attributes);
        if caller.uid == 0 {
            return Ok(true);
        }
        if caller.uid != found.uid
            && let Some(list) = self.access_list(object)?
        {
            return Ok(list.allows(caller, (found.uid, found.gid), found.mode, wanted));
        }
        Ok(bits_allow(caller, found, wanted))
    }

    /// [`StoreError::Denied`] unless [`CallContext::allows`].
    ///
    /// # Errors
    /// That, and errors of the cluster.
    pub fn require(&self, object: &FoundObject, wanted: u32) -> Result<()> {
        if self.allows(object, wanted)? {
            Ok(())
        } else {
            Err(StoreError::Denied)
        }
    }

    /// Whether the caller may read data. The server does not know the open files of a client. So the
    /// owner may always read, and execute permission includes read permission (RFC 1813 section 4.4).
    ///
    /// # Errors
    /// As [`CallContext::require`].
    pub fn require_read(&self, object: &FoundObject) -> Result<()> {
        if owns(&self.caller, &object.attributes) || self.allows(object, EXECUTE)? {
            return Ok(());
        }
        self.require(object, READ)
    }

    /// Whether the caller may write data; the owner may always.
    ///
    /// # Errors
    /// As [`CallContext::require`].
    pub fn require_write(&self, object: &FoundObject) -> Result<()> {
        if owns(&self.caller, &object.attributes) {
            Ok(())
        } else {
            self.require(object, WRITE)
        }
    }

    /// Which of the wanted rights the caller has (RFC 1813 section 3.3.4).
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn access(&self, object: &FoundObject, wanted: AccessMask) -> Result<AccessMask> {
        let found = &object.attributes;
        let mut granted = 0;
        let mut grant = |needed, rights| -> Result<()> {
            if self.allows(object, needed)? {
                granted |= rights;
            }
            Ok(())
        };
        grant(READ, AccessMask::READ)?;
        if found.kind == Kind::Directory {
            grant(EXECUTE, AccessMask::LOOKUP)?;
            let change = AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
            grant(WRITE | EXECUTE, change)?;
        } else {
            grant(WRITE, AccessMask::MODIFY | AccessMask::EXTEND)?;
            // The superuser may execute only what somebody may execute.
            if found.kind == Kind::File && found.mode & 0o111 != 0 {
                grant(EXECUTE, AccessMask::EXECUTE)?;
            }
        }
        Ok(AccessMask(granted & wanted.0))
    }
}
