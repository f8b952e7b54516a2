//! Exclusive creation (RFC 1813 section 3.3.8), also where servers end at any time.
//!
//! The file is made with mode bits that mark it as unfinished. Then its verifier is set as an
//! extended attribute, which the cluster lets only one creator do, and then its attributes. A file
//! that a server left unfinished is claimed by the next creator: nobody was answered that it is his.

use std::ffi::CStr;

use rustix::io::Errno;

use super::access_lists::default_list;
use super::call::{CallContext, Changed, FoundObject};
use super::create::{EXCLUSIVE_MODE, Shown, finish};
use crate::{Kind, Result, SetAttributes, StoreError};

/// Of an unfinished file: accessible by nobody, with a bit that means nothing for files.
pub(super) const UNFINISHED: u32 = 0o1000;

/// The attribute of the verifier. Clients see the name space `user` only.
const VERIFIER: &CStr = c"trusted.millrace.verifier";

/// Gives a file to the creator with this verifier, if it is unfinished or already his.
///
/// # Errors
/// [`StoreError::Exists`]: it is another's.
pub(super) fn claim(
    context: &CallContext,
    place: &FoundObject,
    file: FoundObject,
    verifier: [u8; 8],
    set: &SetAttributes,
) -> Result<Changed<Shown>> {
    let superuser = &context.session.superuser;
    if is_unfinished(&file) {
        if file.attributes.uid != context.caller.uid {
            return Err(StoreError::Exists);
        }
        let flags = libc::XATTR_CREATE;
        match file.inode.set_xattr(superuser, VERIFIER, &verifier, flags) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(context.error(error)),
        }
    }
    match file.inode.xattr(superuser, VERIFIER, verifier.len()) {
        Ok(found) if found == verifier => {}
        Ok(_) | Err(Errno::NODATA | Errno::RANGE) => return Err(StoreError::Exists),
        Err(error) => return Err(context.error(error)),
    }
    if !is_unfinished(&file) {
        let shown = (file.handle, file.attributes);
        return Ok(Changed {
            other: Some(file.inode),
            ..Changed::place(shown)
        });
    }
    let mut mode = set.mode.unwrap_or(EXCLUSIVE_MODE);
    if let Some(default) = default_list(context, place)? {
        mode &= 0o7000 | default.mode();
    }
    finish(context, file, mode, set)
}

/// Whether an exclusive creation began and did not end.
fn is_unfinished(file: &FoundObject) -> bool {
    let found = &file.attributes;
    found.kind == Kind::File && found.mode == UNFINISHED && found.size == 0
}
