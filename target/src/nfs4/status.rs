//! Which status an operation answers for which failure of the store.

use millrace_store::{Kind, StoreError};
use millrace_wire::nfs4::OperationStatus;

use crate::access::AccessError;

/// The status that has the meaning of a store's error.
pub(super) fn status(error: StoreError) -> OperationStatus {
    match error {
        StoreError::NotOwner => OperationStatus::NotOwner,
        StoreError::NotFound => OperationStatus::NoEntry,
        StoreError::Io => OperationStatus::Io,
        StoreError::Denied => OperationStatus::AccessDenied,
        StoreError::Exists => OperationStatus::Exists,
        StoreError::CrossDevice => OperationStatus::CrossDevice,
        StoreError::NotDirectory => OperationStatus::NotDirectory,
        StoreError::IsDirectory => OperationStatus::IsDirectory,
        StoreError::Invalid => OperationStatus::Invalid,
        StoreError::TooLarge => OperationStatus::FileTooBig,
        StoreError::NoSpace => OperationStatus::NoSpace,
        StoreError::TooManyLinks => OperationStatus::TooManyLinks,
        StoreError::NameTooLong => OperationStatus::NameTooLong,
        StoreError::NotEmpty => OperationStatus::NotEmpty,
        StoreError::Quota => OperationStatus::Quota,
        StoreError::Stale => OperationStatus::Stale,
        StoreError::NotSync | StoreError::Delay => OperationStatus::Delay,
        StoreError::BadCookie => OperationStatus::BadCookie,
        StoreError::NotSupported => OperationStatus::NotSupported,
        StoreError::ReadOnly => OperationStatus::ReadOnly,
        StoreError::NoXattr => OperationStatus::NoExtendedAttribute,
        StoreError::XattrTooLong => OperationStatus::ExtendedAttributeTooBig,
        StoreError::NoDevice => OperationStatus::NoDeviceOrAddress,
        _ => OperationStatus::ServerFault,
    }
}

/// The status of an operation that wants a directory and met another object.
pub(super) fn no_directory(kind: Kind) -> OperationStatus {
    match kind {
        Kind::Symlink => OperationStatus::Symlink,
        _ => OperationStatus::NotDirectory,
    }
}

/// The status of an operation that wants a regular file and met another object; OK for one.
pub(super) fn no_file(kind: Kind) -> OperationStatus {
    match kind {
        Kind::File => OperationStatus::Ok,
        Kind::Directory => OperationStatus::IsDirectory,
        Kind::Symlink => OperationStatus::Symlink,
        Kind::Special(_) => OperationStatus::WrongType,
    }
}

/// The status of an operation that may not use its handle. To clients that may not use an export,
/// its handles are stale.
pub(super) fn of_access(error: AccessError) -> OperationStatus {
    match error {
        AccessError::BadHandle => OperationStatus::BadHandle,
        AccessError::Stale | AccessError::NotAdmitted => OperationStatus::Stale,
        AccessError::ReadOnly => OperationStatus::ReadOnly,
        // The client calls again.
        AccessError::OtherCaller => OperationStatus::Delay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_data_12_errors_of_stores_have_a_status_and_a_shortage_is_a_delay() {
        for (error, expected) in [
            (StoreError::NoSpace, OperationStatus::NoSpace),
            (StoreError::Quota, OperationStatus::Quota),
            (StoreError::Io, OperationStatus::Io),
            (StoreError::TooLarge, OperationStatus::FileTooBig),
            (StoreError::ReadOnly, OperationStatus::ReadOnly),
            (StoreError::Stale, OperationStatus::Stale),
            (StoreError::Delay, OperationStatus::Delay),
        ] {
            assert_eq!(status(error), expected);
        }
    }
}
