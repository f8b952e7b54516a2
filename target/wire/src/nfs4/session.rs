//! Client IDs, sessions and connections (RFC 8881 sections 18.33 to 18.37 and 18.46 to 18.51).

use super::attributes::Bitmap;
use super::types::{ClientId, OwnerBytes, SessionId, StateId, Timestamp, Verifier};
use super::{OperationOutcome, OperationStatus};
pub use crate::rpc::GssService;
use crate::rpc::{AUTH_NONE, AUTH_SYS, AuthSys, RPCSEC_GSS};
use crate::xdr::{
    Array, Decode, Decoder, Encode, Encoder, Error, Result, xdr_enum, xdr_struct, xdr_union,
};

/// Flags of EXCHANGE_ID (`eia_flags`, `eir_flags`; RFC 8881 section 18.35.3).
pub mod exchange_flags {
    /// Referrals are understood.
    pub const SUPPORTS_REFERRALS: u32 = 0x1;
    /// Migration is understood.
    pub const SUPPORTS_MIGRATION: u32 = 0x2;
    /// Stateids are bound to principals.
    pub const BIND_PRINCIPAL: u32 = 0x100;
    /// Server without pNFS.
    pub const NON_PNFS: u32 = 0x1_0000;
    /// Metadata server.
    pub const PNFS_METADATA: u32 = 0x2_0000;
    /// Data server.
    pub const PNFS_DATA: u32 = 0x4_0000;
    /// A confirmed record is updated (arguments only).
    pub const UPDATE: u32 = 0x4000_0000;
    /// The client ID is confirmed (results only).
    pub const CONFIRMED: u32 = 0x8000_0000;
    /// Flags that arguments may have. Not 4, which minor version 1 does not define and minor version
    /// 2 defines for fencing (RFC 7862 section 14.1): as Linux's server, this one has none.
    pub const ARGUMENTS: u32 = 0x4007_0103;
}

/// Flags of CREATE_SESSION (RFC 8881 section 18.36.3).
pub mod session_flags {
    /// The reply cache outlives the server's process.
    pub const PERSIST: u32 = 1;
    /// The connection carries callbacks too.
    pub const BACKCHANNEL: u32 = 2;
    /// The connection steps up to RDMA.
    pub const RDMA: u32 = 4;
}

/// Status flags of SEQUENCE (RFC 8881 section 18.46.3).
pub mod sequence_flags {
    /// No backchannel of any session of the client works.
    pub const CALLBACK_PATH_DOWN: u32 = 0x1;
    /// GSS contexts of the backchannel will expire.
    pub const CALLBACK_GSS_EXPIRING: u32 = 0x2;
    /// GSS contexts of the backchannel have expired.
    pub const CALLBACK_GSS_EXPIRED: u32 = 0x4;
    /// All state was revoked as the lease expired.
    pub const EXPIRED_ALL: u32 = 0x8;
    /// Some state was revoked as the lease expired.
    pub const EXPIRED_SOME: u32 = 0x10;
    /// State was revoked by an administrator.
    pub const ADMIN_REVOKED: u32 = 0x20;
    /// Delegations or layouts were revoked.
    pub const RECALLABLE_REVOKED: u32 = 0x40;
    /// State has moved to another server.
    pub const LEASE_MOVED: u32 = 0x80;
    /// The server has restarted: reclaim.
    pub const RESTART_RECLAIM: u32 = 0x100;
    /// The session's backchannel does not work.
    pub const CALLBACK_PATH_DOWN_SESSION: u32 = 0x200;
    /// The session's backchannel lost its order of sequence numbers.
    pub const BACKCHANNEL_FAULT: u32 = 0x400;
}

/// Directions of BIND_CONN_TO_SESSION (RFC 8881 section 18.34). Others are no malformed arguments:
/// the server answers [`Invalid`](OperationStatus::Invalid).
pub mod channel_direction {
    /// Fore channel; asked and answered.
    pub const FORE: u32 = 1;
    /// Backchannel; asked and answered.
    pub const BACK: u32 = 2;
    /// Fore channel, or both; asked.
    pub const FORE_OR_BOTH: u32 = 3;
    /// Both; answered.
    pub const BOTH: u32 = 3;
    /// Backchannel, or both; asked.
    pub const BACK_OR_BOTH: u32 = 7;
}

xdr_struct! {
    /// A client and its instance (`client_owner4`).
    pub struct ClientOwner<'a> {
        /// Changes when the client restarts.
        pub verifier: Verifier,
        /// The client.
        pub owner: OwnerBytes<'a>,
    }
}

xdr_struct! {
    /// A server, for detection of trunking (`server_owner4`).
    pub struct ServerOwner<'a> {
        /// Which part of the server.
        pub minor: u64,
        /// The server.
        pub major: OwnerBytes<'a>,
    }
}

xdr_struct! {
    /// An implementation (`nfs_impl_id4`).
    pub struct ImplementationId<'a> {
        /// Domain of who made it.
        pub domain: &'a [u8],
        /// Name and version.
        pub name: &'a [u8],
        /// When it was built.
        pub date: Timestamp,
    }
}

xdr_struct! {
    /// Operations that need the machine credential, and those that may use it
    /// (`state_protect_ops4`).
    pub struct ProtectedOperations {
        /// By operation number.
        pub must_enforce: Bitmap,
        /// By operation number.
        pub must_allow: Bitmap,
    }
}

xdr_struct! {
    /// A client's offer for protection by a secret state verifier (`ssv_sp_parms4`).
    pub struct SsvOffer<'a> {
        /// Operations.
        pub operations: ProtectedOperations,
        /// Object identifiers of hash algorithms.
        pub hashes: Array<'a, &'a [u8]>,
        /// Object identifiers of encryption algorithms.
        pub encryptions: Array<'a, &'a [u8]>,
        /// Past values of the verifier that stay valid.
        pub window: u32,
        /// GSS handles wanted.
        pub handles: u32,
    }
}

xdr_struct! {
    /// The part of the offer that a server accepts (`ssv_prot_info4`).
    pub struct SsvAgreement<'a> {
        /// Operations.
        pub operations: ProtectedOperations,
        /// Index of the hash algorithm.
        pub hash: u32,
        /// Index of the encryption algorithm.
        pub encryption: u32,
        /// Length of the verifier, in bytes.
        pub length: u32,
        /// Past values of the verifier that stay valid.
        pub window: u32,
        /// GSS handles.
        pub handles: Array<'a, &'a [u8]>,
    }
}

xdr_union! {
    /// State protection asked for (`state_protect4_a`).
    #[allow(clippy::large_enum_variant)] // There is no allocator to box with.
    pub enum ProtectionOffer<'a> {
        /// None.
        Unprotected = 0,
        /// By the machine credential.
        MachineCredential(operations: ProtectedOperations) = 1,
        /// By a secret state verifier.
        Ssv(offer: SsvOffer<'a>) = 2,
    }
}

xdr_union! {
    /// State protection granted (`state_protect4_r`).
    #[allow(clippy::large_enum_variant)] // There is no allocator to box with.
    pub enum ProtectionAgreement<'a> {
        /// None.
        Unprotected = 0,
        /// By the machine credential.
        MachineCredential(operations: ProtectedOperations) = 1,
        /// By a secret state verifier.
        Ssv(agreement: SsvAgreement<'a>) = 2,
    }
}

xdr_struct! {
    /// Arguments of EXCHANGE_ID.
    pub struct ExchangeIdOperation<'a> {
        /// The client.
        pub owner: ClientOwner<'a>,
        /// A mask of [`exchange_flags`].
        pub flags: u32,
        /// State protection wanted.
        pub protection: ProtectionOffer<'a>,
        /// The client's implementation.
        pub implementation: Option<ImplementationId<'a>>,
    }
}

xdr_struct! {
    /// Results of EXCHANGE_ID.
    pub struct ExchangeIdReply<'a> {
        /// The client ID.
        pub client: ClientId,
        /// Sequence number of the first CREATE_SESSION.
        pub sequence: u32,
        /// A mask of [`exchange_flags`].
        pub flags: u32,
        /// State protection granted.
        pub protection: ProtectionAgreement<'a>,
        /// The server.
        pub owner: ServerOwner<'a>,
        /// Servers of one scope know each other's state.
        pub scope: OwnerBytes<'a>,
        /// The server's implementation.
        pub implementation: Option<ImplementationId<'a>>,
    }
}

xdr_struct! {
    /// Limits of a channel (`channel_attrs4`). Sizes are in bytes and count the RPC header.
    pub struct ChannelAttributes {
        /// Pad before data of WRITE.
        pub header_padding: u32,
        /// Longest request.
        pub request_size: u32,
        /// Longest reply.
        pub response_size: u32,
        /// Longest reply that is cached.
        pub cached_size: u32,
        /// Most operations of a request.
        pub operations: u32,
        /// Most requests at a time: slots.
        pub requests: u32,
        /// RDMA Reads that the sender can serve at a time.
        pub rdma_ird: Option<u32>,
    }
}

/// How callbacks are authenticated (`callback_sec_parms4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackSecurity<'a> {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS with this body.
    Sys(AuthSys<'a>),
    /// RPCSEC_GSS with the handles of server and client.
    Gss(GssHandles<'a>),
}

xdr_struct! {
    /// RPCSEC_GSS contexts for callbacks (`gss_cb_handles4`).
    pub struct GssHandles<'a> {
        /// How callbacks are protected.
        pub service: GssService,
        /// The context that the server gave its handle.
        pub server: &'a [u8],
        /// The context that the client gave its handle.
        pub client: &'a [u8],
    }
}

impl Encode for CallbackSecurity<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::None => out.u32(AUTH_NONE),
            Self::Sys(body) => {
                out.u32(AUTH_SYS)?;
                body.encode(out)
            }
            Self::Gss(handles) => {
                out.u32(RPCSEC_GSS)?;
                handles.encode(out)
            }
        }
    }
}

impl<'a> Decode<'a> for CallbackSecurity<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        match input.u32()? {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => AuthSys::decode(input).map(Self::Sys),
            RPCSEC_GSS => GssHandles::decode(input).map(Self::Gss),
            _ => Err(Error::Value),
        }
    }
}

/// Ways to authenticate callbacks, in the client's order: at most 16.
pub type CallbackSecurities<'a> = Array<'a, CallbackSecurity<'a>, 16>;

xdr_struct! {
    /// Arguments of CREATE_SESSION.
    pub struct CreateSessionOperation<'a> {
        /// The client.
        pub client: ClientId,
        /// Sequence number of the client ID.
        pub sequence: u32,
        /// A mask of [`session_flags`].
        pub flags: u32,
        /// Limits of the fore channel.
        pub fore: ChannelAttributes,
        /// Limits of the backchannel.
        pub back: ChannelAttributes,
        /// Program number of callbacks.
        pub callback_program: u32,
        /// How callbacks are authenticated.
        pub security: CallbackSecurities<'a>,
    }
}

xdr_struct! {
    /// Results of CREATE_SESSION.
    pub struct CreateSessionReply {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the arguments.
        pub sequence: u32,
        /// A mask of [`session_flags`].
        pub flags: u32,
        /// Limits of the fore channel.
        pub fore: ChannelAttributes,
        /// Limits of the backchannel.
        pub back: ChannelAttributes,
    }
}

xdr_struct! {
    /// Arguments and results of BIND_CONN_TO_SESSION.
    pub struct ConnectionBinding {
        /// The session.
        pub session: SessionId,
        /// One of [`channel_direction`].
        pub direction: u32,
        /// Whether the connection steps up to RDMA.
        pub rdma_mode: bool,
    }
}

xdr_struct! {
    /// Arguments of BACKCHANNEL_CTL.
    pub struct BackchannelCtlOperation<'a> {
        /// Program number of callbacks.
        pub callback_program: u32,
        /// How callbacks are authenticated.
        pub security: CallbackSecurities<'a>,
    }
}

xdr_struct! {
    /// Arguments of SEQUENCE.
    pub struct SequenceOperation {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the slot.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// Highest slot in use by the client.
        pub highest_slot: u32,
        /// Whether the reply must be cached.
        pub cache_this: bool,
    }
}

xdr_struct! {
    /// Results of SEQUENCE.
    pub struct SequenceReply {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the slot.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// Highest slot that the server accepts.
        pub highest_slot: u32,
        /// Highest slot that the client shall use.
        pub target_highest_slot: u32,
        /// A mask of [`sequence_flags`].
        pub status_flags: u32,
    }
}

xdr_struct! {
    /// Arguments of SET_SSV.
    pub struct SetSsvOperation<'a> {
        /// The value to combine with the verifier.
        pub ssv: &'a [u8],
        /// Digest of the SEQUENCE before.
        pub digest: &'a [u8],
    }
}

xdr_enum! {
    /// What SECINFO_NO_NAME asks about (`secinfo_style4`; RFC 8881 section 18.45).
    pub enum SecinfoStyle {
        Current = 0, "SECINFO_STYLE4_CURRENT_FH", "the current file handle";
        Parent = 1, "SECINFO_STYLE4_PARENT", "its parent";
    }
}

/// A way to authenticate, in results of SECINFO and SECINFO_NO_NAME (`secinfo4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityFlavor<'a> {
    /// Any but RPCSEC_GSS.
    Flavor(u32),
    /// RPCSEC_GSS.
    Gss(GssMechanism<'a>),
}

xdr_struct! {
    /// A mechanism of RPCSEC_GSS (`rpcsec_gss_info`).
    pub struct GssMechanism<'a> {
        /// Object identifier, in its DER encoding.
        pub mechanism: &'a [u8],
        /// Quality of protection.
        pub quality: u32,
        /// The GSS service.
        pub service: GssService,
    }
}

impl Encode for SecurityFlavor<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        match self {
            Self::Flavor(RPCSEC_GSS) => Err(Error::Value),
            Self::Flavor(flavor) => out.u32(*flavor),
            Self::Gss(mechanism) => {
                out.u32(RPCSEC_GSS)?;
                mechanism.encode(out)
            }
        }
    }
}

impl<'a> Decode<'a> for SecurityFlavor<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        match input.u32()? {
            RPCSEC_GSS => GssMechanism::decode(input).map(Self::Gss),
            flavor => Ok(Self::Flavor(flavor)),
        }
    }
}

/// Results of SECINFO and SECINFO_NO_NAME: ways to authenticate, best first.
pub type SecinfoReply<'a> = OperationOutcome<Array<'a, SecurityFlavor<'a>>>;
/// Results of TEST_STATEID: a status for each stateid.
pub type TestStateidReply<'a> = OperationOutcome<Array<'a, OperationStatus>>;
/// Arguments of TEST_STATEID. The message bounds them: the server judges.
pub type TestStateidOperation<'a> = Array<'a, StateId>;
