//! Translation of the kernel's errors to those of stores.

use std::io;

use rustix::io::Errno;

use crate::StoreError;

/// The meaning of an error of the kernel, from the standard library's type.
pub(super) fn io_error(error: &io::Error) -> StoreError {
    match Errno::from_io_error(error) {
        Some(errno) => store_error(errno),
        None if error.kind() == io::ErrorKind::WouldBlock => StoreError::Delay,
        None => StoreError::Io,
    }
}

/// The meaning of an error of the kernel (RFC 1813 section 2.6). For a lack of resources on the
/// server, such as descriptors, clients are asked to retry.
pub(crate) fn store_error(error: Errno) -> StoreError {
    match error {
        Errno::PERM => StoreError::NotOwner,
        Errno::NOENT => StoreError::NotFound,
        Errno::ACCESS => StoreError::Denied,
        Errno::EXIST => StoreError::Exists,
        Errno::XDEV => StoreError::CrossDevice,
        Errno::NOTDIR => StoreError::NotDirectory,
        Errno::ISDIR => StoreError::IsDirectory,
        Errno::INVAL => StoreError::Invalid,
        Errno::FBIG => StoreError::TooLarge,
        Errno::NOSPC => StoreError::NoSpace,
        Errno::ROFS => StoreError::ReadOnly,
        Errno::MLINK => StoreError::TooManyLinks,
        Errno::NAMETOOLONG => StoreError::NameTooLong,
        Errno::NOTEMPTY => StoreError::NotEmpty,
        Errno::DQUOT => StoreError::Quota,
        Errno::STALE => StoreError::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => StoreError::NotSupported,
        Errno::NXIO | Errno::NODEV => StoreError::NoDevice,
        Errno::AGAIN
        | Errno::INTR
        | Errno::BUSY
        | Errno::MFILE
        | Errno::NFILE
        | Errno::NOMEM
        | Errno::NOBUFS
        | Errno::TXTBSY => StoreError::Delay,
        _ => StoreError::Io,
    }
}
