//! Extended attributes as Linux names them: those of clients are in the name space `user.`, which
//! clients do not see.

use std::ffi::CString;

use crate::{Result, StoreError, XATTR_NAME_MAX};

const PREFIX: &[u8] = b"user.";

/// The longest list of names (XATTR_LIST_MAX).
pub const LIST_MAX: usize = 64 << 10;

/// The full name of a client's attribute.
pub fn full_name(name: &[u8]) -> Result<CString> {
    match name.len() {
        0 => Err(StoreError::Invalid),
        length if length > XATTR_NAME_MAX => Err(StoreError::NameTooLong),
        _ => CString::new([PREFIX, name].concat()).map_err(|_| StoreError::Invalid),
    }
}

/// Appends the names that are the client's, each with its zero.
pub fn append_names(list: &[u8], names: &mut Vec<u8>) {
    for name in list.split_inclusive(|byte| *byte == 0) {
        names.extend_from_slice(name.strip_prefix(PREFIX).unwrap_or_default());
    }
}
