//! Names and directories (RFC 8881 sections 18.4, 18.9, 18.13 and 18.23 to 18.26).

use super::OperationStatus;
use super::attributes::{AttributeSource, Attributes, Bitmap, encode_attributes};
use super::types::{ChangeInfo, ObjectType, Verifier};
use crate::nfs3::{Device, DirectoryEntry, DirectoryWriter};
use crate::xdr::{
    Bulk, Decode, Decoder, Encode, Encoder, Error, List, Result, pad, xdr_struct, xdr_union,
};

xdr_union! {
    /// What CREATE makes (`createtype4`).
    pub enum NewObject<'a> {
        /// A regular file: answer [`BadType`](OperationStatus::BadType).
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        Block(device: Device) = 3,
        /// A character device.
        Character(device: Device) = 4,
        /// A symbolic link. The text may travel in a read chunk (RFC 8267 section 6.1).
        Symlink(text: Bulk<'a>) = 5,
        /// A socket.
        Socket = 6,
        /// A named pipe.
        Fifo = 7,
        /// A directory of named attributes: answer [`BadType`](OperationStatus::BadType).
        AttributeDirectory = 8,
        /// A named attribute: answer [`BadType`](OperationStatus::BadType).
        NamedAttribute = 9,
    }
}

impl NewObject<'_> {
    /// Its type.
    #[must_use]
    pub const fn object_type(&self) -> ObjectType {
        match self {
            Self::Regular => ObjectType::Regular,
            Self::Directory => ObjectType::Directory,
            Self::Block(_) => ObjectType::Block,
            Self::Character(_) => ObjectType::Character,
            Self::Symlink(_) => ObjectType::Symlink,
            Self::Socket => ObjectType::Socket,
            Self::Fifo => ObjectType::Fifo,
            Self::AttributeDirectory => ObjectType::AttributeDirectory,
            Self::NamedAttribute => ObjectType::NamedAttribute,
        }
    }
}

xdr_struct! {
    /// Arguments of CREATE.
    pub struct CreateOperation<'a> {
        /// What to make.
        pub object: NewObject<'a>,
        /// Its name.
        pub name: &'a [u8],
        /// Its attributes.
        pub attributes: Attributes<'a>,
    }
}

xdr_struct! {
    /// Results of CREATE.
    pub struct CreateReply {
        /// The directory.
        pub directory: ChangeInfo,
        /// Attributes that were set.
        pub attributes_set: Bitmap,
    }
}

xdr_struct! {
    /// Arguments of RENAME.
    pub struct RenameOperation<'a> {
        /// Name in the saved directory.
        pub from: &'a [u8],
        /// Name in the current directory.
        pub to: &'a [u8],
    }
}

xdr_struct! {
    /// Results of RENAME.
    pub struct RenameReply {
        /// The saved directory.
        pub from: ChangeInfo,
        /// The current directory.
        pub to: ChangeInfo,
    }
}

xdr_struct! {
    /// Arguments of READDIR.
    pub struct ReaddirOperation {
        /// Where to go on; zero for the beginning.
        pub cookie: u64,
        /// The verifier that came with the cookie.
        pub verifier: Verifier,
        /// Most bytes of names and cookies; zero for no bound.
        pub dircount: u32,
        /// Most bytes of the results without their status.
        pub maxcount: u32,
        /// Attributes wanted.
        pub attributes: Bitmap,
    }
}

xdr_struct! {
    /// An entry in READDIR's results (`entry4`).
    pub struct ListedName<'a> {
        /// Where to go on behind this entry.
        pub cookie: u64,
        /// The name.
        pub name: &'a [u8],
        /// The object's attributes.
        pub attributes: Attributes<'a>,
    }
}

/// Results of READDIR as received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReaddirReply<'a> {
    /// Verifier to send with the cookies.
    pub verifier: Verifier,
    /// The entries.
    pub entries: List<'a, ListedName<'a>>,
    /// Whether the directory ends behind the last entry.
    pub eof: bool,
}

impl<'a> Decode<'a> for ReaddirReply<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        Ok(Self {
            verifier: Decode::decode(input)?,
            entries: Decode::decode(input)?,
            eof: input.bool()?,
        })
    }
}

impl Encode for ReaddirReply<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        self.verifier.encode(out)?;
        self.entries.encode(out)?;
        out.bool(self.eof)
    }
}

/// An entry to append to results of READDIR.
#[derive(Clone, Copy, Debug)]
pub struct NameToList<'a, S> {
    /// Where to go on behind this entry.
    pub cookie: u64,
    /// The name.
    pub name: &'a [u8],
    /// Attributes wanted.
    pub wanted: Bitmap,
    /// The object's attributes.
    pub attributes: S,
}

impl<S: AttributeSource> Encode for NameToList<'_, S> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.u64(self.cookie)?;
        out.opaque(self.name)?;
        encode_attributes(out, self.wanted, &self.attributes)
    }
}

impl<S: AttributeSource> DirectoryEntry for NameToList<'_, S> {
    fn directory_bytes(&self) -> usize {
        // Cookie and name with its length word.
        let name = self.name.len();
        name.saturating_add(8 + 4 + pad(name))
    }
}

/// Begins successful results of READDIR, status included. Entries are [`NameToList`]. The writer
/// stops at the bounds of the arguments and at the room of `out`.
///
/// # Errors
/// [`Error::Full`] without room for an empty list.
pub fn write_readdir<'e, 'b>(
    out: &'e mut Encoder<'b>,
    arguments: &ReaddirOperation,
    verifier: Verifier,
) -> Result<DirectoryWriter<'e, 'b>> {
    OperationStatus::Ok.encode(out)?;
    let start = out.position();
    verifier.encode(out)?;
    let dircount = match arguments.dircount {
        0 => u32::MAX,
        bound => bound,
    };
    DirectoryWriter::entries(out, start, dircount, arguments.maxcount).ok_or(Error::Full)
}
