//! Types that several operations share (RFC 8881 section 3.3).

use super::OperationStatus;
use crate::xdr::{BoundedBytes, Decode, Decoder, Encode, Encoder, Result, xdr_enum, xdr_struct};

/// Most bytes of tags, owners and scopes (NFS4_OPAQUE_LIMIT).
pub const OPAQUE_LIMIT: usize = 1024;

/// A file handle: up to 128 bytes that only the server explains (`nfs_fh4`).
pub type HandleBytes<'a> = BoundedBytes<'a, 128>;
/// An owner, a scope or a tag: up to 1,024 bytes.
pub type OwnerBytes<'a> = BoundedBytes<'a, OPAQUE_LIMIT>;
/// A session (`sessionid4`).
pub type SessionId = [u8; 16];
/// A client ID (`clientid4`).
pub type ClientId = u64;
/// A verifier of a client's instance, of directory cookies, of an exclusive create or of unstable
/// writes (`verifier4`).
pub type Verifier = [u8; 8];

xdr_struct! {
    /// Opens, locks and delegations by number (`stateid4`).
    pub struct StateId {
        /// Grows with each change of the state.
        pub sequence: u32,
        /// Which state.
        pub other: [u8; 12],
    }
}

impl StateId {
    /// Access without open (RFC 8881 section 8.2.3).
    pub const ANONYMOUS: Self = Self {
        sequence: 0,
        other: [0; 12],
    };
    /// READ that passes share reservations.
    pub const READ_BYPASS: Self = Self {
        sequence: u32::MAX,
        other: [0xff; 12],
    };
    /// The current stateid of the COMPOUND.
    pub const CURRENT: Self = Self {
        sequence: 1,
        other: [0; 12],
    };
    /// What CLOSE returns, and no operation accepts.
    pub const INVALID: Self = Self {
        sequence: u32::MAX,
        other: [0; 12],
    };

    /// Whether `other` is one of the two values that no server gives to state: all zeros, all ones.
    #[must_use]
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

xdr_struct! {
    /// A point in time, or a length of time (`nfstime4`).
    pub struct Timestamp {
        /// Seconds since 1970; negative before.
        pub seconds: i64,
        /// Nanoseconds, below 10^9 by rights: the server judges.
        pub nanoseconds: u32,
    }
}

/// A time to set (`settime4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeToSet {
    /// The server's clock.
    Server,
    /// This time.
    Client(Timestamp),
}

impl Encode for TimeToSet {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Server => None,
            Self::Client(time) => Some(time),
        }
        .encode(out)
    }
}

impl Decode<'_> for TimeToSet {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        Ok(Option::decode(input)?.map_or(Self::Server, Self::Client))
    }
}

xdr_struct! {
    /// A file system (`fsid4`).
    pub fixed struct FileSystemId {
        /// Major number.
        pub major: u64,
        /// Minor number.
        pub minor: u64,
    }
}

xdr_struct! {
    /// The change attribute of a directory before and after an operation (`change_info4`).
    pub struct ChangeInfo {
        /// Whether nothing else changed the directory in between.
        pub atomic: bool,
        /// Before.
        pub before: u64,
        /// After.
        pub after: u64,
    }
}

xdr_enum! {
    /// Kinds of objects (`nfs_ftype4`).
    pub enum ObjectType {
        Regular = 1, "NF4REG", "regular file";
        Directory = 2, "NF4DIR", "directory";
        Block = 3, "NF4BLK", "block device";
        Character = 4, "NF4CHR", "character device";
        Symlink = 5, "NF4LNK", "symbolic link";
        Socket = 6, "NF4SOCK", "socket";
        Fifo = 7, "NF4FIFO", "named pipe";
        AttributeDirectory = 8, "NF4ATTRDIR", "directory of named attributes";
        NamedAttribute = 9, "NF4NAMEDATTR", "named attribute";
    }
}

xdr_struct! {
    /// An open owner or a lock owner (`state_owner4`).
    pub struct StateOwner<'a> {
        /// Its client. Servers of minor version 1 and above use the session's client instead.
        pub client: ClientId,
        /// The owner within the client.
        pub owner: OwnerBytes<'a>,
    }
}

/// The results of a failed operation.
pub trait FailureResults<'a>: Copy {
    /// The status; any but OK.
    fn status(&self) -> OperationStatus;

    /// Appends what follows the status.
    ///
    /// # Errors
    /// As [`Encode::encode`].
    fn encode_detail(&self, out: &mut Encoder<'_>) -> Result<()>;

    /// Reads what follows the status.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    fn decode_detail(status: OperationStatus, input: &mut Decoder<'a>) -> Result<Self>;
}

/// Nothing but the status, as most operations.
impl FailureResults<'_> for OperationStatus {
    fn status(&self) -> OperationStatus {
        *self
    }

    fn encode_detail(&self, _: &mut Encoder<'_>) -> Result<()> {
        Ok(())
    }

    fn decode_detail(status: OperationStatus, _: &mut Decoder<'_>) -> Result<Self> {
        Ok(status)
    }
}

/// Results of an operation.
pub type OperationOutcome<T, F = OperationStatus> = core::result::Result<T, F>;

impl<'f, T: Encode, F: FailureResults<'f>> Encode for OperationOutcome<T, F> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Ok(results) => {
                OperationStatus::Ok.encode(out)?;
                results.encode(out)
            }
            Err(failure) if failure.status() == OperationStatus::Ok => {
                Err(crate::xdr::Error::Value)
            }
            Err(failure) => {
                failure.status().encode(out)?;
                failure.encode_detail(out)
            }
        }
    }
}

impl<'a, T: Decode<'a>, F: FailureResults<'a>> Decode<'a> for OperationOutcome<T, F> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        match OperationStatus::decode(input)? {
            OperationStatus::Ok => T::decode(input).map(Ok),
            status => F::decode_detail(status, input).map(Err),
        }
    }
}

/// Results that have a status.
pub trait HasStatus {
    /// The status.
    fn status(&self) -> OperationStatus;
}

impl<'f, T, F: FailureResults<'f>> HasStatus for OperationOutcome<T, F> {
    fn status(&self) -> OperationStatus {
        self.as_ref().err().map_or(OperationStatus::Ok, F::status)
    }
}
