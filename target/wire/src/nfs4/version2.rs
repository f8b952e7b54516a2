//! Operations that minor version 2 adds (RFC 7862 section 15).

use super::attributes::Bitmap;
use super::types::{FailureResults, HandleBytes, StateId, Verifier};
use super::{OperationOutcome, OperationStatus};
use crate::nfs3::Stability;
use crate::xdr::{Array, Decode, Decoder, Encode, Encoder, Result, xdr_struct, xdr_union};

/// What SEEK looks for (`data_content4`). Others are no malformed arguments: the server answers
/// [`UnionNotSupported`](OperationStatus::UnionNotSupported).
pub mod content {
    /// Data.
    pub const DATA: u32 = 0;
    /// A hole.
    pub const HOLE: u32 = 1;
}

/// Bits of IO_ADVISE's hints (`IO_ADVISE_type4`).
pub mod advice {
    /// No advice.
    pub const NORMAL: u32 = 0;
    /// In ascending order.
    pub const SEQUENTIAL: u32 = 1;
    /// In descending order.
    pub const SEQUENTIAL_BACKWARDS: u32 = 2;
    /// In no order.
    pub const RANDOM: u32 = 3;
    /// Soon.
    pub const WILL_NEED: u32 = 4;
    /// Soon, where it is cheap.
    pub const WILL_NEED_OPPORTUNISTIC: u32 = 5;
    /// Not soon.
    pub const DONT_NEED: u32 = 6;
    /// Once.
    pub const NO_REUSE: u32 = 7;
    /// For reading.
    pub const READ: u32 = 8;
    /// For writing.
    pub const WRITE: u32 = 9;
    /// The object is like its neighbours.
    pub const INITIAL_PROXIMITY: u32 = 10;
}

xdr_struct! {
    /// Arguments of ALLOCATE and DEALLOCATE.
    pub struct SpaceOperation {
        /// The state that allows it.
        pub state: StateId,
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
    }
}

xdr_struct! {
    /// Arguments of CLONE.
    pub struct CloneOperation {
        /// The state that allows reading of the source.
        pub source_state: StateId,
        /// The state that allows writing of the destination.
        pub destination_state: StateId,
        /// First byte in the source.
        pub source_offset: u64,
        /// First byte in the destination.
        pub destination_offset: u64,
        /// Bytes; zero for all to the end of the source.
        pub count: u64,
    }
}

xdr_struct! {
    /// An address (`netaddr4`; RFC 5665).
    pub struct NetworkAddress<'a> {
        /// Network identifier.
        pub netid: &'a [u8],
        /// Universal address.
        pub address: &'a [u8],
    }
}

xdr_union! {
    /// A server of a copy (`netloc4`).
    pub enum NetworkLocation<'a> {
        /// By name.
        Name(name: &'a [u8]) = 1,
        /// By URL.
        Url(url: &'a [u8]) = 2,
        /// By address.
        Address(address: NetworkAddress<'a>) = 3,
    }
}

xdr_struct! {
    /// Arguments of COPY.
    pub struct CopyOperation<'a> {
        /// The state that allows reading of the source.
        pub source_state: StateId,
        /// The state that allows writing of the destination.
        pub destination_state: StateId,
        /// First byte in the source.
        pub source_offset: u64,
        /// First byte in the destination.
        pub destination_offset: u64,
        /// Bytes; zero for all to the end of the source.
        pub count: u64,
        /// Whether bytes must be copied in order.
        pub consecutive: bool,
        /// Whether the reply must wait for the copy.
        pub synchronous: bool,
        /// Servers of the source; none if it is this one.
        pub source_servers: Array<'a, NetworkLocation<'a>>,
    }
}

xdr_struct! {
    /// The outcome of a copy's writes (`write_response4`).
    pub struct CopiedData {
        /// The copy that goes on, if it is asynchronous.
        pub callback: Option<StateId>,
        /// Bytes.
        pub count: u64,
        /// How stable they are.
        pub committed: Stability,
        /// Changes when unstable data may be lost.
        pub verifier: Verifier,
    }
}

xdr_struct! {
    /// How a copy is, or could be, done (`copy_requirements4`).
    pub struct CopyRequirements {
        /// In order.
        pub consecutive: bool,
        /// Before the reply.
        pub synchronous: bool,
    }
}

xdr_struct! {
    /// Results of a successful COPY.
    pub struct CopyOk {
        /// What was written.
        pub written: CopiedData,
        /// How.
        pub requirements: CopyRequirements,
    }
}

/// Why COPY failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFailure {
    /// [`OffloadRequirements`](OperationStatus::OffloadRequirements): so it could be done.
    Requirements(CopyRequirements),
    /// Any status but OK and [`OffloadRequirements`](OperationStatus::OffloadRequirements).
    Other(OperationStatus),
}

impl FailureResults<'_> for CopyFailure {
    fn status(&self) -> OperationStatus {
        match self {
            Self::Requirements(_) => OperationStatus::OffloadRequirements,
            Self::Other(status) => *status,
        }
    }

    fn encode_detail(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Requirements(requirements) => requirements.encode(out),
            Self::Other(OperationStatus::OffloadRequirements) => Err(crate::xdr::Error::Value),
            Self::Other(_) => Ok(()),
        }
    }

    fn decode_detail(status: OperationStatus, input: &mut Decoder<'_>) -> Result<Self> {
        match status {
            OperationStatus::OffloadRequirements => {
                CopyRequirements::decode(input).map(Self::Requirements)
            }
            other => Ok(Self::Other(other)),
        }
    }
}

/// Results of COPY.
pub type CopyReply = OperationOutcome<CopyOk, CopyFailure>;

xdr_struct! {
    /// Results of OFFLOAD_STATUS.
    pub struct OffloadStatusReply {
        /// Bytes copied so far.
        pub count: u64,
        /// How the copy ended, if it has.
        pub complete: Option<OperationStatus>,
    }
}

xdr_struct! {
    /// Arguments of IO_ADVISE.
    pub struct IoAdviseOperation {
        /// The state that allows input and output.
        pub state: StateId,
        /// First byte.
        pub offset: u64,
        /// Bytes; zero for all from the offset on.
        pub count: u64,
        /// Bits of [`advice`].
        pub hints: Bitmap,
    }
}

xdr_struct! {
    /// Data in results of READ_PLUS (`data4`). Never in a chunk of its own (RFC 8267 section 6.1).
    pub struct DataSegment<'a> {
        /// First byte.
        pub offset: u64,
        /// The data.
        pub data: &'a [u8],
    }
}

xdr_struct! {
    /// A hole in results of READ_PLUS (`data_info4`).
    pub fixed struct HoleSegment {
        /// First byte.
        pub offset: u64,
        /// Bytes.
        pub length: u64,
    }
}

xdr_union! {
    /// A part of a file in results of READ_PLUS (`read_plus_content`).
    pub enum FileSegment<'a> {
        /// Data.
        Data(segment: DataSegment<'a>) = 0,
        /// A hole.
        Hole(segment: HoleSegment) = 1,
    }
}

xdr_struct! {
    /// Results of READ_PLUS.
    pub struct ReadPlusReply<'a> {
        /// Whether the file ends behind the last segment.
        pub eof: bool,
        /// The segments, in ascending order.
        pub segments: Array<'a, FileSegment<'a>>,
    }
}

xdr_struct! {
    /// Arguments of SEEK.
    pub struct SeekOperation {
        /// The state that allows reading.
        pub state: StateId,
        /// Where to begin.
        pub offset: u64,
        /// What to look for, one of [`content`].
        pub what: u32,
    }
}

xdr_struct! {
    /// Results of SEEK.
    pub struct SeekReply {
        /// Whether there is no data up to the end of the file.
        pub eof: bool,
        /// Where it begins.
        pub offset: u64,
    }
}

/// How an asynchronous copy ended (`offload_info4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadOutcome {
    /// All is written.
    Written(CopiedData),
    /// It failed with this status, any but OK, after so many bytes.
    Failed(OperationStatus, u64),
}

impl Encode for OffloadOutcome {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Written(written) => {
                OperationStatus::Ok.encode(out)?;
                written.encode(out)
            }
            Self::Failed(OperationStatus::Ok, _) => Err(crate::xdr::Error::Value),
            Self::Failed(status, bytes) => {
                status.encode(out)?;
                out.u64(*bytes)
            }
        }
    }
}

impl Decode<'_> for OffloadOutcome {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        match OperationStatus::decode(input)? {
            OperationStatus::Ok => CopiedData::decode(input).map(Self::Written),
            status => Ok(Self::Failed(status, input.u64()?)),
        }
    }
}

xdr_struct! {
    /// Arguments of CB_OFFLOAD.
    pub struct CallbackOffload<'a> {
        /// The destination.
        pub handle: HandleBytes<'a>,
        /// The copy.
        pub copy: StateId,
        /// How it ended.
        pub outcome: OffloadOutcome,
    }
}
