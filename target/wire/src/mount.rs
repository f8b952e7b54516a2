//! MOUNT version 3 (RFC 1813 appendix I): from the path of an export to its first file handle.

use arrayvec::ArrayVec;

use crate::nfs3::FileHandle;
use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, List, Result, xdr_enum, xdr_struct};

/// Program number.
pub const PROGRAM: u32 = 100_005;
/// Program version.
pub const VERSION: u32 = 3;

/// Most bytes of a path (MNTPATHLEN).
pub const MAX_PATH: usize = 1024;
/// Most bytes of a host's or group's name (MNTNAMLEN).
pub const MAX_NAME: usize = 255;

xdr_enum! {
    /// Procedures.
    pub enum Procedure {
        Null = 0, "NULL", "do nothing";
        Mount = 1, "MNT", "add a mount entry";
        Dump = 2, "DUMP", "return the mount entries";
        Unmount = 3, "UMNT", "remove a mount entry";
        UnmountAll = 4, "UMNTALL", "remove all mount entries of the caller";
        Export = 5, "EXPORT", "return the exports";
    }
}

xdr_enum! {
    /// Status of MNT (`mountstat3`).
    pub enum Status {
        Ok = 0, "MNT3_OK", "mounted";
        NotOwner = 1, "MNT3ERR_PERM", "not owner";
        NoEntry = 2, "MNT3ERR_NOENT", "no such file or directory";
        Io = 5, "MNT3ERR_IO", "input or output error";
        AccessDenied = 13, "MNT3ERR_ACCES", "permission denied";
        NotDirectory = 20, "MNT3ERR_NOTDIR", "not a directory";
        Invalid = 22, "MNT3ERR_INVAL", "invalid argument";
        NameTooLong = 63, "MNT3ERR_NAMETOOLONG", "name too long";
        NotSupported = 10004, "MNT3ERR_NOTSUPP", "operation not supported";
        ServerFault = 10006, "MNT3ERR_SERVERFAULT", "a failure on the server";
    }
}

macro_rules! bounded {
    ($(#[$meta:meta])* $name:ident, $bound:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a>(pub &'a [u8]);

        impl Encode for $name<'_> {
            fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
                if self.0.len() > $bound { Err(Error::TooLong) } else { out.opaque(self.0) }
            }
        }

        impl<'a> Decode<'a> for $name<'a> {
            fn decode(input: &mut Decoder<'a>) -> Result<Self> {
                input.string($bound).map(Self)
            }
        }
    };
}

bounded! {
    /// A path on the server (`dirpath`): arguments of MNT and UMNT.
    Path, MAX_PATH
}

bounded! {
    /// The name of a host or of a group of hosts (`name`).
    Name, MAX_NAME
}

/// Authentication flavors that an export accepts, best first. A list of more than 16 does not
/// decode.
pub type Flavors = ArrayVec<u32, 16>;

/// Results of a MNT that succeeded (`mountres3_ok`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOk {
    /// Handle of the path's directory.
    pub handle: FileHandle,
    /// Flavors that the export accepts.
    pub flavors: Flavors,
}

/// Results of MNT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountResults {
    /// Mounted.
    Ok(MountOk),
    /// Refused, with any status but [`Status::Ok`].
    Err(Status),
}

impl Encode for MountResults {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Ok(MountOk { handle, flavors }) => {
                Status::Ok.encode(out)?;
                handle.encode(out)?;
                out.u32(u32::try_from(flavors.len()).map_err(|_| Error::TooLong)?)?;
                flavors.iter().try_for_each(|&flavor| out.u32(flavor))
            }
            Self::Err(Status::Ok) => Err(Error::Value),
            Self::Err(status) => status.encode(out),
        }
    }
}

impl Decode<'_> for MountResults {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        match Status::decode(input)? {
            Status::Ok => {}
            status => return Ok(Self::Err(status)),
        }
        let handle = FileHandle::decode(input)?;
        let mut flavors = Flavors::new();
        for _ in 0..input.length(flavors.capacity())? {
            flavors.push(input.u32()?);
        }
        Ok(Self::Ok(MountOk { handle, flavors }))
    }
}

xdr_struct! {
    /// An entry of the server's list of mounts (`mountbody`).
    pub struct Mounted<'a> {
        /// The client.
        pub host: Name<'a>,
        /// The path.
        pub path: Path<'a>,
    }
}

/// Results of DUMP, as received. Sent by [`encode_list`](crate::xdr::encode_list) over
/// [`Mounted`].
pub type DumpResults<'a> = List<'a, Mounted<'a>>;

/// An export, as received (`exportnode`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Export<'a> {
    /// The path.
    pub path: Path<'a>,
    /// Who may mount it; none for everyone.
    pub groups: List<'a, Name<'a>>,
}

impl Encode for Export<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        self.path.encode(out)?;
        self.groups.encode(out)
    }
}

impl<'a> Decode<'a> for Export<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        Ok(Self {
            path: Path::decode(input)?,
            groups: List::decode(input)?,
        })
    }
}

/// Results of EXPORT, as received. Sent by [`encode_list`](crate::xdr::encode_list) over
/// [`ExportEntry`].
pub type ExportResults<'a> = List<'a, Export<'a>>;

/// An export to send.
#[derive(Clone, Copy, Debug)]
pub struct ExportEntry<'a, G> {
    /// The path.
    pub path: Path<'a>,
    /// Who may mount it, an iterator over [`Name`]; none for everyone.
    pub groups: G,
}

impl<'g, G: IntoIterator<Item = Name<'g>> + Clone> Encode for ExportEntry<'_, G> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        self.path.encode(out)?;
        crate::xdr::encode_list(self.groups.clone(), out)
    }
}
