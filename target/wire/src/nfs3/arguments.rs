//! Arguments of the procedures (RFC 1813 section 3.3). NULL has none.

use super::FileHandle;
use super::types::{
    CookieVerifier, CreateVerifier, Device, FileType, NameInDirectory, SetAttributes, Stability,
    Time,
};
use crate::xdr::{Bulk, Decode, Decoder, Encode, Encoder, Error, Result, xdr_struct};

/// Arguments of GETATTR, READLINK, FSSTAT, FSINFO and PATHCONF: the object.
pub type ObjectArguments = FileHandle;
/// Arguments of LOOKUP, REMOVE and RMDIR: the entry.
pub type EntryArguments<'a> = NameInDirectory<'a>;

xdr_struct! {
    /// Arguments of SETATTR.
    pub struct SetattrArguments {
        /// The object.
        pub object: FileHandle,
        /// What to set.
        pub attributes: SetAttributes,
        /// The change time that the object must have, or the call fails with
        /// [`NotSync`](super::Status::NotSync).
        pub guard: Option<Time>,
    }
}

xdr_struct! {
    /// Arguments of ACCESS.
    pub struct AccessArguments {
        /// The object.
        pub object: FileHandle,
        /// The rights asked about, a mask of [`access`](super::access).
        pub access: u32,
    }
}

xdr_struct! {
    /// Arguments of READ.
    pub struct ReadArguments {
        /// The file.
        pub file: FileHandle,
        /// First byte.
        pub offset: u64,
        /// Bytes wanted.
        pub count: u32,
    }
}

xdr_struct! {
    /// Arguments of WRITE.
    pub struct WriteArguments<'a> {
        /// The file.
        pub file: FileHandle,
        /// First byte.
        pub offset: u64,
        /// Bytes to write. The server checks that this is the length of the data.
        pub count: u32,
        /// How stable the data must be before the reply.
        pub stable: Stability,
        /// The data; may travel in a read chunk.
        pub data: Bulk<'a>,
    }
}

/// How CREATE treats a file that exists (`createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Succeed, and set its attributes.
    Unchecked(SetAttributes),
    /// Fail.
    Guarded(SetAttributes),
    /// Fail, unless it was created by a call with the same verifier.
    Exclusive(CreateVerifier),
}

impl Encode for CreateHow {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Unchecked(attributes) => {
                out.u32(0)?;
                attributes.encode(out)
            }
            Self::Guarded(attributes) => {
                out.u32(1)?;
                attributes.encode(out)
            }
            Self::Exclusive(verifier) => {
                out.u32(2)?;
                verifier.encode(out)
            }
        }
    }
}

impl Decode<'_> for CreateHow {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        match input.u32()? {
            0 => SetAttributes::decode(input).map(Self::Unchecked),
            1 => SetAttributes::decode(input).map(Self::Guarded),
            2 => CreateVerifier::decode(input).map(Self::Exclusive),
            _ => Err(Error::Value),
        }
    }
}

xdr_struct! {
    /// Arguments of CREATE.
    pub struct CreateArguments<'a> {
        /// The entry to make.
        pub entry: NameInDirectory<'a>,
        /// How.
        pub how: CreateHow,
    }
}

xdr_struct! {
    /// Arguments of MKDIR.
    pub struct MkdirArguments<'a> {
        /// The entry to make.
        pub entry: NameInDirectory<'a>,
        /// Attributes of the new directory.
        pub attributes: SetAttributes,
    }
}

xdr_struct! {
    /// Arguments of SYMLINK.
    pub struct SymlinkArguments<'a> {
        /// The entry to make.
        pub entry: NameInDirectory<'a>,
        /// Attributes of the new link.
        pub attributes: SetAttributes,
        /// The text; may travel in a read chunk.
        pub text: Bulk<'a>,
    }
}

/// What MKNOD makes (`mknoddata3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Character device.
    Character(SetAttributes, Device),
    /// Block device.
    Block(SetAttributes, Device),
    /// Socket.
    Socket(SetAttributes),
    /// Named pipe.
    Fifo(SetAttributes),
    /// Not a type of special file: the call fails with [`BadType`](super::Status::BadType).
    Other(FileType),
}

impl Encode for Node {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Character(attributes, device) => {
                FileType::Character.encode(out)?;
                attributes.encode(out)?;
                device.encode(out)
            }
            Self::Block(attributes, device) => {
                FileType::Block.encode(out)?;
                attributes.encode(out)?;
                device.encode(out)
            }
            Self::Socket(attributes) => {
                FileType::Socket.encode(out)?;
                attributes.encode(out)
            }
            Self::Fifo(attributes) => {
                FileType::Fifo.encode(out)?;
                attributes.encode(out)
            }
            Self::Other(kind) => match kind {
                FileType::Regular | FileType::Directory | FileType::Symlink => kind.encode(out),
                _ => Err(Error::Value),
            },
        }
    }
}

impl Decode<'_> for Node {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        let kind = FileType::decode(input)?;
        let mut attributes = || SetAttributes::decode(input);
        Ok(match kind {
            FileType::Character => Self::Character(attributes()?, Device::decode(input)?),
            FileType::Block => Self::Block(attributes()?, Device::decode(input)?),
            FileType::Socket => Self::Socket(attributes()?),
            FileType::Fifo => Self::Fifo(attributes()?),
            FileType::Regular | FileType::Directory | FileType::Symlink => Self::Other(kind),
        })
    }
}

xdr_struct! {
    /// Arguments of MKNOD.
    pub struct MknodArguments<'a> {
        /// The entry to make.
        pub entry: NameInDirectory<'a>,
        /// What to make.
        pub node: Node,
    }
}

xdr_struct! {
    /// Arguments of RENAME.
    pub struct RenameArguments<'a> {
        /// The old entry.
        pub from: NameInDirectory<'a>,
        /// The new entry.
        pub to: NameInDirectory<'a>,
    }
}

xdr_struct! {
    /// Arguments of LINK.
    pub struct LinkArguments<'a> {
        /// The object.
        pub object: FileHandle,
        /// The entry to make.
        pub entry: NameInDirectory<'a>,
    }
}

xdr_struct! {
    /// Arguments of READDIR.
    pub struct ReaddirArguments {
        /// The directory.
        pub directory: FileHandle,
        /// Where to go on; zero for the beginning.
        pub cookie: u64,
        /// The verifier that came with the cookie.
        pub verifier: CookieVerifier,
        /// Most bytes of the results without their status.
        pub count: u32,
    }
}

xdr_struct! {
    /// Arguments of READDIRPLUS.
    pub struct ReaddirplusArguments {
        /// The directory.
        pub directory: FileHandle,
        /// Where to go on; zero for the beginning.
        pub cookie: u64,
        /// The verifier that came with the cookie.
        pub verifier: CookieVerifier,
        /// Most bytes of numbers, names and cookies.
        pub dircount: u32,
        /// Most bytes of the results without their status.
        pub maxcount: u32,
    }
}

xdr_struct! {
    /// Arguments of COMMIT.
    pub struct CommitArguments {
        /// The file.
        pub file: FileHandle,
        /// First byte.
        pub offset: u64,
        /// Bytes to commit; zero for all from the offset on.
        pub count: u32,
    }
}
