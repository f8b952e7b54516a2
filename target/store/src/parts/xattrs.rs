//! Extended attributes of the user's name space (RFC 8276). Names have no prefix.

use crate::{Caller, Handle, Modified, Result};

/// Longest name in bytes: what the host leaves beside its prefix `user.`.
pub const XATTR_NAME_MAX: usize = 250;
/// Longest value in bytes.
pub const XATTR_VALUE_MAX: usize = 64 << 10;

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattrHow {
    /// Made or replaced.
    Either,
    /// Made: [`StoreError::Exists`](crate::StoreError::Exists) if it is there.
    Create,
    /// Replaced: [`StoreError::NoXattr`](crate::StoreError::NoXattr) if it is not.
    Replace,
}

part! { $
/// Extended attributes of files and directories; other objects have none
/// ([`StoreError::Invalid`](crate::StoreError::Invalid)). Names are not empty, without zero bytes
/// and at most [`XATTR_NAME_MAX`] bytes long, values at most [`XATTR_VALUE_MAX`]. A store whose
/// [`Properties::xattrs`](crate::Properties::xattrs) is false answers
/// [`StoreError::NotSupported`](crate::StoreError::NotSupported).
pub trait ExtendedAttributes, forwarded by forward_extended_attributes, with {} {
    /// The value of an attribute, appended to `value`.
    async fn xattr(&self, caller: &Caller, object: Handle, name: &[u8], value: &mut Vec<u8>) -> Result<()>;

    /// Sets an attribute.
    async fn set_xattr(&self, caller: &Caller, object: Handle, name: &[u8], value: &[u8], how: SetXattrHow) -> Modified<()>;

    /// The names of all attributes, each followed by a zero byte, appended to `names`. Their order
    /// stays as long as none is set or removed.
    async fn xattrs(&self, caller: &Caller, object: Handle, names: &mut Vec<u8>) -> Result<()>;

    /// Removes an attribute.
    async fn remove_xattr(&self, caller: &Caller, object: Handle, name: &[u8]) -> Modified<()>;
}
}
