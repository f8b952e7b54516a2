//! Checks of names before a system is called that takes texts with a zero byte at the end.

use std::ffi::CString;

use crate::{Result, StoreError};

/// A name for a new object.
///
/// # Errors
/// [`StoreError::Invalid`] for one that is empty or has a slash or a zero byte,
/// [`StoreError::Exists`] for `.` and `..`. The length is checked by the file system.
pub fn new(name: &[u8]) -> Result<CString> {
    plain(name, [StoreError::Exists; 2])
}

/// A name of a non-directory to remove.
///
/// # Errors
/// As [`new`], but [`StoreError::IsDirectory`] for `.` and `..`.
pub fn removable(name: &[u8]) -> Result<CString> {
    plain(name, [StoreError::IsDirectory; 2])
}

/// A name of a directory to remove.
///
/// # Errors
/// As [`new`], but for `.` and `..` as in RFC 1813 section 3.3.13: [`StoreError::Invalid`] and
/// [`StoreError::Exists`].
pub fn removable_directory(name: &[u8]) -> Result<CString> {
    plain(name, [StoreError::Invalid, StoreError::Exists])
}

/// A name to rename from or to.
///
/// # Errors
/// As [`new`], but [`StoreError::Invalid`] for `.` and `..` (RFC 1813 section 3.3.14).
pub fn movable(name: &[u8]) -> Result<CString> {
    plain(name, [StoreError::Invalid; 2])
}

/// The text of a symbolic link.
///
/// # Errors
/// [`StoreError::Invalid`] if it is empty or has a zero byte: no file system of the kernel supports
/// these.
pub fn link_text(text: &[u8]) -> Result<CString> {
    if text.is_empty() {
        return Err(StoreError::Invalid);
    }
    CString::new(text).map_err(|_| StoreError::Invalid)
}

fn plain(name: &[u8], dots: [StoreError; 2]) -> Result<CString> {
    match name {
        b"" => Err(StoreError::Invalid),
        b"." => Err(dots[0]),
        b".." => Err(dots[1]),
        name if name.contains(&b'/') => Err(StoreError::Invalid),
        name => CString::new(name).map_err(|_| StoreError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component_and_no_dots() {
        let checks = [new, removable, removable_directory, movable];
        for check in checks {
            assert_eq!(check(b"name").unwrap().as_bytes(), b"name");
            assert_eq!(check(b"...").unwrap().as_bytes(), b"...");
            for name in [&b""[..], b"a/b", b"/", b"a\0b", b"\0"] {
                assert_eq!(check(name), Err(StoreError::Invalid));
            }
        }
        let dots = checks.map(|check| [check(b".").unwrap_err(), check(b"..").unwrap_err()]);
        let both = |error| [error; 2];
        let expected = [
            both(StoreError::Exists),
            both(StoreError::IsDirectory),
            [StoreError::Invalid, StoreError::Exists],
            both(StoreError::Invalid),
        ];
        assert_eq!(dots, expected);
    }

    #[test]
    fn texts_of_links_are_not_empty() {
        assert_eq!(link_text(b"../x").unwrap().as_bytes(), b"../x");
        assert_eq!(link_text(b""), Err(StoreError::Invalid));
        assert_eq!(link_text(b"a\0"), Err(StoreError::Invalid));
    }
}
