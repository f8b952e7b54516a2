//! Calls as their owner sees them.

use millrace_mempool::Slice;
use millrace_wire::nfs4::{self, Compound, Operation};
use millrace_wire::rpc::{Accepted, CallOutcome, Denied, ReplyHeader};
use millrace_wire::rpcrdma::ErrorBody;
use millrace_wire::xdr::{self, BoundedBytes, Decode, Decoder, Encode, Taken};

use super::binding;
use super::gss::SecurityFault;
use millrace_wire::nfs3;

/// An eligible item of the arguments at a place that the caller knows.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Length of the item, and where its data would begin, counted from the first byte of the
    /// arguments, with all items in place.
    pub taken: Taken,
    /// The data.
    pub slices: &'a [Slice],
}

/// Data of eligible items, which the arguments leave apart.
///
/// The memory must stay as it is until the call has completed, though the connection keeps clones
/// of the slices. Every slice becomes a segment of its own, unless the header has no room for so
/// many.
#[derive(Clone, Copy, Debug, Default)]
pub enum Data<'a> {
    /// There is none.
    #[default]
    None,
    /// The one item that the arguments encode as [`Bulk::apart`](xdr::Bulk::apart).
    One(&'a [Slice]),
    /// Items of arguments that are encoded already, in ascending order of position.
    Parts(&'a [Part<'a>]),
}

/// A call to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a, A> {
    /// The caller's own word, given back with the completion.
    pub token: u64,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// The arguments, without the separate data.
    pub arguments: A,
    /// The separate data.
    pub data: Data<'a>,
    /// Room for eligible results, one entry for each, as large as the result may get.
    ///
    /// After the call only as many bytes as the reply tells are the result. The server may have
    /// written into the rest, and into all of it if the call fails.
    pub sinks: &'a [&'a [Slice]],
    /// Bytes of the largest possible reply from its XID on, without the eligible results. See
    /// [`binding`].
    pub largest_reply: usize,
}

impl<'a, A: Encode> Call<'a, A> {
    /// A call of NFS version 3 without data and sinks. `asked` is the `count` or `maxcount` of
    /// READDIR and READDIRPLUS.
    #[must_use]
    pub const fn nfs3(token: u64, procedure: nfs3::Procedure, arguments: A, asked: u32) -> Self {
        Self {
            token,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: procedure as u32,
            arguments,
            data: Data::None,
            sinks: &[],
            largest_reply: binding::largest_reply(procedure, asked),
        }
    }

    /// The same call with data.
    #[must_use]
    pub fn with_data(self, data: &'a [Slice]) -> Self {
        Self {
            data: Data::One(data),
            ..self
        }
    }

    /// The same call with room for results.
    #[must_use]
    pub fn with_sinks(self, sinks: &'a [&'a [Slice]]) -> Self {
        Self { sinks, ..self }
    }
}

impl<'a> Call<'a, Compound<'a>> {
    /// A COMPOUND of NFS version 4 with these operations of a minor version, without data and sinks.
    /// `largest_reply` is that of the call.
    #[must_use]
    pub const fn compound(
        minor_version: u32,
        operations: &'a [Operation<'a>],
        largest_reply: usize,
    ) -> Self {
        Self {
            token: 0,
            program: nfs3::PROGRAM,
            version: nfs4::VERSION,
            procedure: nfs4::COMPOUND,
            arguments: Compound {
                tag: BoundedBytes(b""),
                minor_version,
                operations,
            },
            data: Data::None,
            sinks: &[],
            largest_reply,
        }
    }
}

/// Names a call of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    pub(super) index: u32,
    pub(super) sequence: u64,
}

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many calls as [`Settings::calls`](super::Settings::calls) are in the connection's hands.
    #[error("too many calls at once")]
    Full,
    /// The pool has no buffer for the message now.
    #[error("no memory for the message")]
    NoMemory,
    /// The message is longer than the largest buffer, or has too many items.
    #[error("the message is too long")]
    TooLong,
    /// The arguments do not encode.
    #[error("the arguments do not encode: {0}")]
    Encode(xdr::Error),
    /// The length of an item and that of its data differ.
    #[error("the arguments and their data do not agree")]
    Data,
}

/// Why a call came to no RPC reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// RDMA_ERROR: the server serves other versions of RPC-over-RDMA.
    #[error("the server speaks RPC-over-RDMA versions {low} to {high}")]
    Version {
        /// Lowest version served.
        low: u32,
        /// Highest version served.
        high: u32,
    },
    /// RDMA_ERROR: the server could not use the call's header or chunks.
    #[error("the server refused the header or the chunks (ERR_CHUNK)")]
    Chunk,
    /// RDMA_ERROR of version two: the server could not parse the call's header.
    #[error("the server could not parse the header (BAD_XDR)")]
    BadXdr,
    /// RDMA_ERROR of version two: the reply has no room, and the connection could make none, or
    /// made some in vain.
    #[error(
        "the server has no room for the reply: {needed} bytes in segment {segment} (CANT_REPLY)"
    )]
    CannotReply {
        /// Whether the procedure has run.
        processed: bool,
        /// The first segment that is too short, counted from one at the first segment of the first
        /// write chunk and on into the reply chunk; zero if the server could not tell.
        segment: u32,
        /// Bytes needed in that segment.
        needed: u32,
    },
    /// RDMA_ERROR of version two: the server does not know the message type.
    #[error("the server does not know the message type (INVAL_PROC)")]
    InvalidProcedure,
    /// RDMA_ERROR of version two: the server does not know the optional operation.
    #[error("the server does not know the optional operation (INVAL_OPTION)")]
    InvalidOption,
    /// RDMA_ERROR with a code that its version does not have.
    #[error("the server answered with the unknown RDMA error {0}")]
    UnknownError(u32),
    /// The reply contradicts the offered chunks.
    #[error("the reply does not agree with the chunks that were offered")]
    BadReply,
    /// The call was refused by the server's end of its security context, or the reply is not the
    /// server's.
    #[error("{0}")]
    Security(SecurityFault),
    /// No reply within [`Settings::timeout`](super::Settings::timeout).
    #[error("no reply in time")]
    TimedOut,
    /// Cancelled by its owner.
    #[error("cancelled")]
    Cancelled,
    /// The connection ended first.
    #[error("the connection ended")]
    Disconnected,
    /// No form of the call fits the limits of the connection.
    #[error("the call fits in no form")]
    TooLong,
}

impl From<ErrorBody<'_>> for CallError {
    fn from(body: ErrorBody<'_>) -> Self {
        match body {
            ErrorBody::Version { low, high } => Self::Version { low, high },
            ErrorBody::Chunk => Self::Chunk,
            ErrorBody::BadXdr => Self::BadXdr,
            ErrorBody::CannotReply {
                processed,
                segment,
                needed,
            } => Self::CannotReply {
                processed,
                segment,
                needed,
            },
            ErrorBody::InvalidProcedure => Self::InvalidProcedure,
            ErrorBody::InvalidOption => Self::InvalidOption,
            ErrorBody::Unknown { code, .. } => Self::UnknownError(code),
        }
    }
}

/// The end of a call. All its keys are dead.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The caller's own word.
    pub token: u64,
    /// Which call it was.
    pub id: CallId,
    /// What came of it.
    pub result: Result<Reply<'a>, CallError>,
}

/// The receiver of completions. Completed calls have ended: their memory is free.
pub type Sink<'a> = &'a mut dyn FnMut(Completion<'_>);

/// An RPC reply.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The message from its XID on, without the data in write chunks.
    pub message: &'a [u8],
    /// For each write chunk offered, the bytes that the server says it wrote there; `None` where
    /// the result stayed in the message. Empty if no write chunk was offered.
    pub written: &'a [Option<u32>],
}

/// Why a reply holds no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// It does not decode.
    #[error("the reply does not decode: {0}")]
    Decode(#[from] xdr::Error),
    /// The call was let in and failed.
    #[error("the server answered {0:?}")]
    Failed(Accepted),
    /// The call was turned away.
    #[error("the server turned the call away: {0:?}")]
    Denied(Denied),
}

impl<'a> Reply<'a> {
    /// Reads the results of a call that succeeded.
    ///
    /// # Errors
    /// As [`RpcError`] tells.
    pub fn results<T: Decode<'a>>(&self) -> Result<T, RpcError> {
        let mut input = Decoder::with_results(self.message, self.written);
        let header = ReplyHeader::decode(&mut input)?;
        match header.outcome {
            CallOutcome::Accepted {
                status: Accepted::Success,
                ..
            } => Ok(T::decode(&mut input)?),
            CallOutcome::Accepted { status, .. } => Err(RpcError::Failed(status)),
            CallOutcome::Denied(denied) => Err(RpcError::Denied(denied)),
        }
    }
}
