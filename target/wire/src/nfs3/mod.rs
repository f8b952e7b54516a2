//! NFS version 3 (RFC 1813).
//!
//! Arguments and results of all procedures, for both roles. Names may have any length that fits the
//! message. The server checks their length and characters, since these faults have NFS errors. Data
//! of READ and WRITE and texts of symbolic links are [`Bulk`](crate::xdr::Bulk), as they may travel
//! in chunks (RFC 8267 section 4).

mod arguments;
mod directory;
mod handle;
mod results;
mod types;

pub use arguments::*;
pub use directory::*;
pub use handle::FileHandle;
pub use results::*;
pub use types::*;

use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result, xdr_enum};

/// Program number.
pub const PROGRAM: u32 = 100_003;
/// Program version.
pub const VERSION: u32 = 3;
/// Port of NFS on TCP and UDP.
pub const PORT: u16 = 2049;
/// Port of NFS on RDMA (RFC 8267 section 6.3).
pub const RDMA_PORT: u16 = 20049;

xdr_enum! {
    /// Procedures (RFC 1813 section 3).
    pub enum Procedure {
        Null = 0, "NULL", "do nothing";
        Getattr = 1, "GETATTR", "get file attributes";
        Setattr = 2, "SETATTR", "set file attributes";
        Lookup = 3, "LOOKUP", "look up a name";
        Access = 4, "ACCESS", "check access permission";
        Readlink = 5, "READLINK", "read from a symbolic link";
        Read = 6, "READ", "read from a file";
        Write = 7, "WRITE", "write to a file";
        Create = 8, "CREATE", "create a file";
        Mkdir = 9, "MKDIR", "create a directory";
        Symlink = 10, "SYMLINK", "create a symbolic link";
        Mknod = 11, "MKNOD", "create a special node";
        Remove = 12, "REMOVE", "remove a file";
        Rmdir = 13, "RMDIR", "remove a directory";
        Rename = 14, "RENAME", "rename a file or directory";
        Link = 15, "LINK", "create a link to a file";
        Readdir = 16, "READDIR", "read from a directory";
        Readdirplus = 17, "READDIRPLUS", "read from a directory with attributes";
        Fsstat = 18, "FSSTAT", "get changing file system figures";
        Fsinfo = 19, "FSINFO", "get fixed file system figures";
        Pathconf = 20, "PATHCONF", "get limits of names and links";
        Commit = 21, "COMMIT", "commit cached data";
    }
}

xdr_enum! {
    /// Status of a procedure (RFC 1813 section 2.6).
    pub enum Status {
        Ok = 0, "NFS3_OK", "the call succeeded";
        NotOwner = 1, "NFS3ERR_PERM", "not owner";
        NoEntry = 2, "NFS3ERR_NOENT", "no such file or directory";
        Io = 5, "NFS3ERR_IO", "input or output error";
        NoDeviceOrAddress = 6, "NFS3ERR_NXIO", "no such device or address";
        AccessDenied = 13, "NFS3ERR_ACCES", "permission denied";
        Exists = 17, "NFS3ERR_EXIST", "file exists";
        CrossDevice = 18, "NFS3ERR_XDEV", "link across file systems";
        NoDevice = 19, "NFS3ERR_NODEV", "no such device";
        NotDirectory = 20, "NFS3ERR_NOTDIR", "not a directory";
        IsDirectory = 21, "NFS3ERR_ISDIR", "is a directory";
        Invalid = 22, "NFS3ERR_INVAL", "invalid argument";
        FileTooBig = 27, "NFS3ERR_FBIG", "file too large";
        NoSpace = 28, "NFS3ERR_NOSPC", "no space left";
        ReadOnly = 30, "NFS3ERR_ROFS", "read-only file system";
        TooManyLinks = 31, "NFS3ERR_MLINK", "too many hard links";
        NameTooLong = 63, "NFS3ERR_NAMETOOLONG", "name too long";
        NotEmpty = 66, "NFS3ERR_NOTEMPTY", "directory not empty";
        Quota = 69, "NFS3ERR_DQUOT", "quota exceeded";
        Stale = 70, "NFS3ERR_STALE", "the file handle's object is gone";
        Remote = 71, "NFS3ERR_REMOTE", "too many levels of remote in path";
        BadHandle = 10001, "NFS3ERR_BADHANDLE", "illegal file handle";
        NotSync = 10002, "NFS3ERR_NOT_SYNC", "the object's change time is not the guard's";
        BadCookie = 10003, "NFS3ERR_BAD_COOKIE", "stale directory cookie";
        NotSupported = 10004, "NFS3ERR_NOTSUPP", "operation not supported";
        TooSmall = 10005, "NFS3ERR_TOOSMALL", "buffer or request too small";
        ServerFault = 10006, "NFS3ERR_SERVERFAULT", "an error without a number of its own";
        BadType = 10007, "NFS3ERR_BADTYPE", "object type not supported";
        Jukebox = 10008, "NFS3ERR_JUKEBOX", "started but slow: try again later";
    }
}

/// Results of a procedure that failed: the status, and the results that a failure has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<F> {
    /// Any but [`Status::Ok`].
    pub status: Status,
    /// Attributes, mostly.
    pub detail: F,
}

/// Results of a procedure.
pub type Outcome<T, F> = core::result::Result<T, Failure<F>>;

impl<T: Encode, F: Encode> Encode for Outcome<T, F> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Ok(results) => {
                Status::Ok.encode(out)?;
                results.encode(out)
            }
            Err(Failure {
                status: Status::Ok, ..
            }) => Err(Error::Value),
            Err(Failure { status, detail }) => {
                status.encode(out)?;
                detail.encode(out)
            }
        }
    }
}

impl<'a, T: Decode<'a>, F: Decode<'a>> Decode<'a> for Outcome<T, F> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        match Status::decode(input)? {
            Status::Ok => T::decode(input).map(Ok),
            status => F::decode(input).map(|detail| Err(Failure { status, detail })),
        }
    }
}
