//! What can go wrong in a session.

use millrace_gss::InitiatorError;
use millrace_wire::nfs3::{Procedure, Status};
use millrace_wire::nfs4::OperationStatus;
use millrace_wire::{mount, xdr};

use crate::requester::call::{CallError, RpcError, SubmitError};
use crate::requester::connection::RequesterState;

/// Why a procedure has no results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's own answer.
    #[error("{}: {} ({})", .0.name(), .1.name(), .1.text())]
    Nfs(Procedure, Status),
    /// An operation of COMPOUND failed.
    #[error("{}: {} ({})", .0, .1.name(), .1.text())]
    Nfs4(&'static str, OperationStatus),
    /// A COMPOUND has results of other operations than it had.
    #[error("COMPOUND: results of other operations than were asked for")]
    OtherResults,
    /// MOUNT was refused.
    #[error("MNT: {} ({})", .0.name(), .0.text())]
    Mount(mount::Status),
    /// The reply holds no results.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// There is no reply.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There is no ticket for the server.
    #[error(transparent)]
    Initiator(#[from] InitiatorError),
    /// The server made no context of the client's token.
    #[error(
        "the server refuses the Kerberos ticket (GSS status {major:#x}, {minor:#x}): its log has the \
         reason"
    )]
    Context {
        /// Major status.
        major: u32,
        /// Minor status, of the mechanism.
        minor: u32,
    },
    /// The server is not the one that the ticket is for.
    #[error("the server did not prove that it is the service that the ticket is for")]
    ContextVerifier,
    /// The server does not speak RPCSEC_GSS.
    #[error("the server has no Kerberos; millraced needs the section `gss` in its configuration")]
    NoKerberos,
    /// The call could not be made.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// No connection.
    #[error("no connection: {0}")]
    Connect(RequesterState),
    /// The pool has no buffer of that size.
    #[error("no memory")]
    Memory,
    /// The server answered what no server may.
    #[error("{}: {what}", .procedure.name())]
    Protocol {
        /// Which procedure.
        procedure: Procedure,
        /// The error.
        what: &'static str,
    },
    /// The system's.
    #[error(transparent)]
    Io(std::io::Error),
}

impl Error {
    /// The server's status, if it was that.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Nfs(_, status) => Some(*status),
            _ => None,
        }
    }
}

impl From<xdr::Error> for Error {
    fn from(error: xdr::Error) -> Self {
        Self::Rpc(RpcError::Decode(error))
    }
}
