//! Which status each procedure answers for which failure of the store.

use millrace_store::StoreError;
use millrace_wire::nfs3::{Procedure, Status};

/// Errors that every procedure may answer (RFC 1813 section 3.3 names the first four with each,
/// section 2.6 the last as one that any call may meet).
const COMMON: [Status; 5] = [
    Status::Io,
    Status::Stale,
    Status::BadHandle,
    Status::ServerFault,
    Status::Jukebox,
];

/// The status of a procedure that failed in the store.
pub(super) fn status(procedure: Procedure, error: StoreError) -> Status {
    legal(procedure, natural(error))
}

/// The nearest to `status` that RFC 1813 lets the procedure answer.
pub(super) fn legal(procedure: Procedure, status: Status) -> Status {
    let allowed =
        |status: &Status| COMMON.contains(status) || own_errors(procedure).contains(status);
    let instead: &[Status] = match status {
        Status::NotOwner => &[Status::NotOwner, Status::AccessDenied],
        Status::AccessDenied => &[Status::AccessDenied, Status::Io],
        Status::IsDirectory | Status::Invalid => &[status, Status::Invalid, Status::AccessDenied],
        Status::NameTooLong => &[Status::NameTooLong, Status::Invalid],
        Status::NotEmpty => &[Status::NotEmpty, Status::Exists],
        Status::FileTooBig => &[Status::FileTooBig, Status::Invalid],
        Status::Quota => &[Status::Quota, Status::NoSpace],
        Status::ReadOnly => &[Status::ReadOnly, Status::Io],
        Status::NoDevice => &[Status::NoDevice, Status::Io],
        Status::TooManyLinks => &[Status::TooManyLinks, Status::NoSpace],
        Status::NotSupported => &[Status::NotSupported, Status::Invalid],
        Status::NotDirectory => &[Status::NotDirectory, Status::Invalid],
        _ => &[status],
    };
    instead
        .iter()
        .copied()
        .find(allowed)
        .unwrap_or(Status::ServerFault)
}

fn natural(error: StoreError) -> Status {
    match error {
        StoreError::NotOwner => Status::NotOwner,
        StoreError::NotFound => Status::NoEntry,
        StoreError::Io => Status::Io,
        StoreError::Denied => Status::AccessDenied,
        StoreError::Exists => Status::Exists,
        StoreError::CrossDevice => Status::CrossDevice,
        StoreError::NotDirectory => Status::NotDirectory,
        StoreError::IsDirectory => Status::IsDirectory,
        StoreError::Invalid => Status::Invalid,
        StoreError::TooLarge => Status::FileTooBig,
        StoreError::NoSpace => Status::NoSpace,
        StoreError::TooManyLinks => Status::TooManyLinks,
        StoreError::NameTooLong => Status::NameTooLong,
        StoreError::NotEmpty => Status::NotEmpty,
        StoreError::Quota => Status::Quota,
        StoreError::Stale => Status::Stale,
        StoreError::NotSync => Status::NotSync,
        StoreError::BadCookie => Status::BadCookie,
        StoreError::NotSupported => Status::NotSupported,
        StoreError::ReadOnly => Status::ReadOnly,
        StoreError::NoDevice => Status::NoDevice,
        StoreError::Delay => Status::Jukebox,
        _ => Status::ServerFault,
    }
}

/// The errors that RFC 1813 section 3.3 names for a procedure beyond the common ones. REMOVE may
/// answer `NFS3ERR_ISDIR` too: clients turn it into what POSIX wants of `unlink`.
fn own_errors(procedure: Procedure) -> &'static [Status] {
    use Status::{
        AccessDenied, BadCookie, BadType, CrossDevice, Exists, FileTooBig, Invalid, IsDirectory,
        NameTooLong, NoDeviceOrAddress, NoEntry, NoSpace, NotDirectory, NotEmpty, NotOwner,
        NotSupported, NotSync, Quota, ReadOnly, TooManyLinks, TooSmall,
    };
    match procedure {
        Procedure::Null
        | Procedure::Getattr
        | Procedure::Access
        | Procedure::Fsstat
        | Procedure::Fsinfo
        | Procedure::Pathconf => &[],
        // RFC 1813 names none for it, but its lists are not definitive (section 3.3), and only
        // these say why a caller is refused.
        Procedure::Commit => &[AccessDenied, Invalid, ReadOnly],
        Procedure::Setattr => &[
            NotOwner,
            AccessDenied,
            Invalid,
            NoSpace,
            ReadOnly,
            Quota,
            NotSync,
            NotSupported,
            FileTooBig,
        ],
        Procedure::Lookup => &[NoEntry, AccessDenied, NotDirectory, NameTooLong],
        Procedure::Readlink => &[Invalid, AccessDenied, NotSupported],
        Procedure::Read => &[NoDeviceOrAddress, AccessDenied, Invalid],
        Procedure::Write => &[AccessDenied, FileTooBig, Quota, NoSpace, ReadOnly, Invalid],
        Procedure::Create | Procedure::Mkdir | Procedure::Symlink => &[
            AccessDenied,
            Exists,
            NotDirectory,
            NoSpace,
            ReadOnly,
            NameTooLong,
            Quota,
            NotSupported,
        ],
        Procedure::Mknod => &[
            AccessDenied,
            Exists,
            NotDirectory,
            NoSpace,
            ReadOnly,
            NameTooLong,
            Quota,
            NotSupported,
            BadType,
        ],
        Procedure::Remove => &[
            NoEntry,
            AccessDenied,
            NotDirectory,
            NameTooLong,
            ReadOnly,
            IsDirectory,
        ],
        Procedure::Rmdir => &[
            NoEntry,
            AccessDenied,
            Invalid,
            Exists,
            NotDirectory,
            NameTooLong,
            ReadOnly,
            NotEmpty,
            NotSupported,
        ],
        Procedure::Rename => &[
            NoEntry,
            AccessDenied,
            Exists,
            CrossDevice,
            NotDirectory,
            IsDirectory,
            Invalid,
            NoSpace,
            ReadOnly,
            TooManyLinks,
            NameTooLong,
            NotEmpty,
            Quota,
            NotSupported,
        ],
        Procedure::Link => &[
            AccessDenied,
            Exists,
            CrossDevice,
            NotDirectory,
            Invalid,
            NoSpace,
            ReadOnly,
            TooManyLinks,
            NameTooLong,
            Quota,
            NotSupported,
        ],
        Procedure::Readdir => &[AccessDenied, NotDirectory, BadCookie, TooSmall],
        Procedure::Readdirplus => &[
            AccessDenied,
            NotDirectory,
            BadCookie,
            TooSmall,
            NotSupported,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_keep_their_meaning_where_it_is_legal() {
        assert_eq!(
            status(Procedure::Lookup, StoreError::NotFound),
            Status::NoEntry
        );
        assert_eq!(
            status(Procedure::Read, StoreError::IsDirectory),
            Status::Invalid
        );
        assert_eq!(
            status(Procedure::Remove, StoreError::IsDirectory),
            Status::IsDirectory
        );
        assert_eq!(
            status(Procedure::Remove, StoreError::NotOwner),
            Status::AccessDenied
        );
        assert_eq!(
            status(Procedure::Setattr, StoreError::NotOwner),
            Status::NotOwner
        );
        assert_eq!(
            status(Procedure::Create, StoreError::Invalid),
            Status::AccessDenied
        );
        assert_eq!(
            status(Procedure::Getattr, StoreError::NoSpace),
            Status::ServerFault
        );
        assert_eq!(status(Procedure::Write, StoreError::Delay), Status::Jukebox);
    }

    #[test]
    fn nothing_illegal_is_answered() {
        for &procedure in Procedure::ALL {
            for &any in Status::ALL.iter().filter(|&&status| status != Status::Ok) {
                let answered = legal(procedure, any);
                assert!(COMMON.contains(&answered) || own_errors(procedure).contains(&answered));
            }
        }
    }
}
