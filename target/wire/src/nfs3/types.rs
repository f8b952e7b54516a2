//! Types that several procedures share (RFC 1813 section 2.6).

use super::FileHandle;
use crate::xdr::{
    Decode, Decoder, Encode, Encoder, Error, FixedLength, Result, xdr_enum, xdr_struct,
};

/// Verifier of directory cookies.
pub type CookieVerifier = [u8; 8];
/// Verifier of an exclusive CREATE.
pub type CreateVerifier = [u8; 8];
/// Verifier of unstable writes. It changes when the server may have lost them.
pub type WriteVerifier = [u8; 8];

/// Attributes after an operation, if the server has them (`post_op_attr`).
pub type PostAttributes = Option<FileAttributes>;

xdr_enum! {
    /// Kinds of objects (`ftype3`).
    pub enum FileType {
        Regular = 1, "NF3REG", "regular file";
        Directory = 2, "NF3DIR", "directory";
        Block = 3, "NF3BLK", "block device";
        Character = 4, "NF3CHR", "character device";
        Symlink = 5, "NF3LNK", "symbolic link";
        Socket = 6, "NF3SOCK", "socket";
        Fifo = 7, "NF3FIFO", "named pipe";
    }
}

xdr_enum! {
    /// How stable written data is (`stable_how`).
    pub enum Stability {
        Unstable = 0, "UNSTABLE", "until the server fails or is told to commit";
        DataSync = 1, "DATA_SYNC", "data on stable storage";
        FileSync = 2, "FILE_SYNC", "data and attributes on stable storage";
    }
}

xdr_struct! {
    /// A point in time (`nfstime3`).
    pub fixed struct Time {
        /// Seconds since 1970.
        pub seconds: u32,
        /// Nanoseconds; below 10^9 in valid messages.
        pub nanoseconds: u32,
    }
}

xdr_struct! {
    /// Numbers of a device (`specdata3`).
    pub fixed struct Device {
        /// Major number.
        pub major: u32,
        /// Minor number.
        pub minor: u32,
    }
}

xdr_struct! {
    /// Attributes of an object (`fattr3`).
    pub fixed struct FileAttributes {
        /// Kind.
        pub kind: FileType,
        /// Permission bits.
        pub mode: u32,
        /// Hard links.
        pub links: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Size in bytes.
        pub size: u64,
        /// Bytes of storage in use.
        pub used: u64,
        /// Device, if it is one.
        pub device: Device,
        /// File system.
        pub fsid: u64,
        /// Number within the file system.
        pub fileid: u64,
        /// Last read.
        pub accessed: Time,
        /// Last change of the data.
        pub modified: Time,
        /// Last change of data or attributes.
        pub changed: Time,
    }
}

impl FileAttributes {
    /// Bytes on the wire.
    pub const LENGTH: usize = <Self as FixedLength>::LENGTH;
}

xdr_struct! {
    /// The attributes before an operation, for weak cache consistency (`wcc_attr`).
    pub fixed struct BeforeAttributes {
        /// Size in bytes.
        pub size: u64,
        /// Last change of the data.
        pub modified: Time,
        /// Last change of data or attributes.
        pub changed: Time,
    }
}

xdr_struct! {
    /// Attributes before and after an operation (`wcc_data`).
    pub struct WeakCacheData {
        /// Before.
        pub before: Option<BeforeAttributes>,
        /// After.
        pub after: PostAttributes,
    }
}

impl WeakCacheData {
    /// Nothing known.
    pub const NONE: Self = Self {
        before: None,
        after: None,
    };
}

/// What to set a time to (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// The server's clock.
    ServerTime,
    /// This time.
    To(Time),
}

impl Encode for SetTime {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Keep => out.u32(0),
            Self::ServerTime => out.u32(1),
            Self::To(time) => {
                out.u32(2)?;
                time.encode(out)
            }
        }
    }
}

impl Decode<'_> for SetTime {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        match input.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::ServerTime),
            2 => Time::decode(input).map(Self::To),
            _ => Err(Error::Value),
        }
    }
}

xdr_struct! {
    /// Attributes to set; `None` leaves one as it is (`sattr3`).
    #[derive(Default)]
    pub struct SetAttributes {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Size in bytes.
        pub size: Option<u64>,
        /// Last read.
        pub accessed: SetTime,
        /// Last change of the data.
        pub modified: SetTime,
    }
}

xdr_struct! {
    /// A name in a directory (`diropargs3`).
    pub struct NameInDirectory<'a> {
        /// The directory.
        pub directory: FileHandle,
        /// The name.
        pub name: &'a [u8],
    }
}

/// Rights that ACCESS asks about (RFC 1813 section 3.3.4).
pub mod access {
    /// Read data or list a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name in a directory.
    pub const LOOKUP: u32 = 0x02;
    /// Change existing data or entries.
    pub const MODIFY: u32 = 0x04;
    /// Add data or entries.
    pub const EXTEND: u32 = 0x08;
    /// Delete an entry.
    pub const DELETE: u32 = 0x10;
    /// Execute a file.
    pub const EXECUTE: u32 = 0x20;
    /// All of them.
    pub const ALL: u32 = 0x3f;
}

/// Properties that FSINFO reports (RFC 1813 section 3.3.19).
pub mod properties {
    /// Hard links are supported.
    pub const LINK: u32 = 0x01;
    /// Symbolic links are supported.
    pub const SYMLINK: u32 = 0x02;
    /// PATHCONF says the same for every object.
    pub const HOMOGENEOUS: u32 = 0x08;
    /// Times can be set exactly as asked.
    pub const CAN_SET_TIME: u32 = 0x10;
}
