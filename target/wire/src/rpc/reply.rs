//! Reply headers.

use super::{AUTH_NONE, MessageType, OpaqueAuth};
use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result, xdr_enum};

xdr_enum! {
    /// Why a credential or verifier was refused (RFC 5531 section 9, `auth_stat`).
    pub enum AuthStatus {
        Ok = 0, "AUTH_OK", "no objection";
        BadCredential = 1, "AUTH_BADCRED", "the credential does not decode or its seal is broken";
        RejectedCredential = 2, "AUTH_REJECTEDCRED", "a new session must begin";
        BadVerifier = 3, "AUTH_BADVERF", "the verifier does not decode or its seal is broken";
        RejectedVerifier = 4, "AUTH_REJECTEDVERF", "the verifier has expired or was replayed";
        TooWeak = 5, "AUTH_TOOWEAK", "a stronger flavor is asked for";
        InvalidResponse = 6, "AUTH_INVALIDRESP", "the reply's verifier is wrong";
        Failed = 7, "AUTH_FAILED", "a reason that is not told";
        KerberosGeneric = 8, "AUTH_KERB_GENERIC", "a Kerberos error";
        TimeExpired = 9, "AUTH_TIMEEXPIRE", "the credential's time is over";
        TicketFile = 10, "AUTH_TKT_FILE", "trouble with the ticket file";
        Decode = 11, "AUTH_DECODE", "the authenticator does not decode";
        NetworkAddress = 12, "AUTH_NET_ADDR", "the ticket is for another address";
        GssCredentialProblem = 13, "RPCSEC_GSS_CREDPROBLEM", "no credentials for the user";
        GssContextProblem = 14, "RPCSEC_GSS_CTXPROBLEM", "trouble with the security context";
    }
}

/// The status of an accepted call (RFC 5531 section 9, `accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Executed; the results follow.
    Success,
    /// The server does not have the program.
    ProgramUnavailable,
    /// The server has other versions of the program.
    ProgramMismatch {
        /// Lowest version here.
        low: u32,
        /// Highest version here.
        high: u32,
    },
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments do not decode.
    GarbageArguments,
    /// Another error of the server.
    SystemError,
}

/// Why a call was denied (RFC 5531 section 9, `reject_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Another version of RPC.
    RpcMismatch {
        /// Lowest version here.
        low: u32,
        /// Highest version here.
        high: u32,
    },
    /// The credential or verifier was refused.
    Auth(AuthStatus),
}

/// The body of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome<'a> {
    /// The call was accepted.
    Accepted {
        /// The responder's verifier.
        verifier: OpaqueAuth<'a>,
        /// The status.
        status: Accepted,
    },
    /// The call was denied.
    Denied(Denied),
}

/// The header of a reply (RFC 5531 section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader<'a> {
    /// Transaction identifier of the call.
    pub xid: u32,
    /// The body.
    pub outcome: CallOutcome<'a>,
}

/// The header of a reply with an empty verifier.
#[must_use]
pub const fn answer_to(xid: u32, status: Accepted) -> ReplyHeader<'static> {
    ReplyHeader {
        xid,
        outcome: CallOutcome::Accepted {
            verifier: OpaqueAuth::NONE,
            status,
        },
    }
}

impl Encode for Accepted {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match *self {
            Self::Success => out.u32(0),
            Self::ProgramUnavailable => out.u32(1),
            Self::ProgramMismatch { low, high } => {
                out.u32(2)?;
                out.u32(low)?;
                out.u32(high)
            }
            Self::ProcedureUnavailable => out.u32(3),
            Self::GarbageArguments => out.u32(4),
            Self::SystemError => out.u32(5),
        }
    }
}

impl Decode<'_> for Accepted {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        Ok(match input.u32()? {
            0 => Self::Success,
            1 => Self::ProgramUnavailable,
            2 => Self::ProgramMismatch {
                low: input.u32()?,
                high: input.u32()?,
            },
            3 => Self::ProcedureUnavailable,
            4 => Self::GarbageArguments,
            5 => Self::SystemError,
            _ => return Err(Error::Value),
        })
    }
}

impl Encode for Denied {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match *self {
            Self::RpcMismatch { low, high } => {
                out.u32(0)?;
                out.u32(low)?;
                out.u32(high)
            }
            Self::Auth(status) => {
                out.u32(1)?;
                status.encode(out)
            }
        }
    }
}

impl Decode<'_> for Denied {
    fn decode(input: &mut Decoder<'_>) -> Result<Self> {
        match input.u32()? {
            0 => Ok(Self::RpcMismatch {
                low: input.u32()?,
                high: input.u32()?,
            }),
            1 => AuthStatus::decode(input).map(Self::Auth),
            _ => Err(Error::Value),
        }
    }
}

/// What nearly every reply has behind its XID: a reply, accepted, with an empty verifier, executed.
const SUCCESS: [u32; 5] = [MessageType::Reply.number(), 0, AUTH_NONE, 0, 0];

impl Encode for ReplyHeader<'_> {
    #[inline]
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        let success = CallOutcome::Accepted {
            verifier: OpaqueAuth::NONE,
            status: Accepted::Success,
        };
        if self.outcome == success {
            let [reply, accepted, flavor, body, status] = SUCCESS;
            return out.words([self.xid, reply, accepted, flavor, body, status]);
        }
        out.u32(self.xid)?;
        MessageType::Reply.encode(out)?;
        match &self.outcome {
            CallOutcome::Accepted { verifier, status } => {
                out.u32(0)?;
                verifier.encode(out)?;
                status.encode(out)
            }
            CallOutcome::Denied(denied) => {
                out.u32(1)?;
                denied.encode(out)
            }
        }
    }
}

impl<'a> Decode<'a> for ReplyHeader<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        let xid = input.u32()?;
        if MessageType::decode(input)? != MessageType::Reply {
            return Err(Error::Value);
        }
        let outcome = match input.u32()? {
            0 => CallOutcome::Accepted {
                verifier: OpaqueAuth::decode(input)?,
                status: Accepted::decode(input)?,
            },
            1 => CallOutcome::Denied(Denied::decode(input)?),
            _ => return Err(Error::Value),
        };
        Ok(Self { xid, outcome })
    }
}
