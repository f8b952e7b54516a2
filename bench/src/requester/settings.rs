//! The settings of a requester's connections.

use std::sync::Arc;
use std::time::Duration;

use millrace_wire::ccp;
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{AUTH_NONE, AUTH_SYS, AuthSys, Groups, OpaqueAuth, RPCSEC_GSS};
use millrace_wire::rpcrdma::Versions;
use millrace_wire::xdr;

use super::gss::GssContext;
use super::version_search::VersionMemory;

/// Most bytes of an RPC credential's body (RFC 5531 section 8.2).
pub(super) const CREDENTIAL_MAX: usize = 400;

/// Who calls: the credential of every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    flavor: u32,
    body: Vec<u8>,
}

impl Identity {
    /// No credentials: AUTH_NONE.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            flavor: AUTH_NONE,
            body: Vec::new(),
        }
    }

    /// A user as the caller's system knows it: AUTH_SYS (RFC 5531 appendix A). The machine's name
    /// is cut off after 255 bytes, and only 16 further groups are taken.
    #[must_use]
    pub fn system(machine: &str, uid: u32, gid: u32, groups: &[u32]) -> Self {
        let machine = machine.as_bytes();
        let auth = AuthSys {
            stamp: 0,
            machine: &machine[..machine.len().min(255)],
            uid,
            gid,
            gids: groups.iter().copied().take(16).collect::<Groups>(),
        };
        let mut body = [0; CREDENTIAL_MAX];
        let length = xdr::to_bytes(&auth, &mut body).unwrap_or(0);
        Self {
            flavor: AUTH_SYS,
            body: body[..length].to_vec(),
        }
    }

    /// A credential of any flavor, with a body of at most 400 bytes.
    #[must_use]
    pub fn opaque(flavor: u32, body: &[u8]) -> Option<Self> {
        (body.len() <= CREDENTIAL_MAX).then(|| Self {
            flavor,
            body: body.to_vec(),
        })
    }

    /// Whether calls may be protected as a whole, so that nothing may be taken out of them. What
    /// a credential of RPCSEC_GSS asks for is not looked at; where it asks for authentication
    /// alone, chunks would be allowed, and are not needed.
    pub(super) const fn protects(&self) -> bool {
        self.flavor == RPCSEC_GSS
    }

    /// Whether it says who calls.
    pub(super) const fn is_somebody(&self) -> bool {
        self.flavor != AUTH_NONE
    }

    /// Bytes of the largest verifier in a reply (RFC 8166 section 8.2.2.2); AUTH_NONE and AUTH_SYS
    /// get an empty one.
    pub(super) const fn largest_verifier(&self) -> usize {
        match self.flavor {
            AUTH_NONE | AUTH_SYS => 0,
            _ => CREDENTIAL_MAX,
        }
    }

    pub(crate) fn auth(&self) -> OpaqueAuth<'_> {
        OpaqueAuth {
            flavor: self.flavor,
            body: &self.body,
        }
    }
}

/// The values requested by the connection configuration protocol (RFC 5666 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ccp {
    /// Program number. Early servers had no fixed one.
    pub program: u32,
    /// Bytes of the largest inline call that we would like to send. No call is larger, whatever
    /// the server allows.
    pub call_size: usize,
    /// Bytes of the largest inline reply that we take. Posted receives are at least as large.
    pub reply_size: usize,
}

impl Default for Ccp {
    fn default() -> Self {
        Self {
            program: ccp::PROGRAM,
            call_size: 4096,
            reply_size: 4096,
        }
    }
}

/// Whether the data of calls that fit inline is aligned for the server, by RDMA_MSGP
/// (RFC 5666 section 3.9). Only servers that do the connection configuration protocol are known
/// to understand it; others answer ERR_CHUNK (RFC 8166 section 4.6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alignment {
    /// Never.
    #[default]
    Off,
    /// As the server tells by the connection configuration protocol, for data of more than
    /// `threshold` bytes.
    Learnt {
        /// In bytes.
        threshold: u32,
    },
    /// To multiples of `align` for data of more than `threshold` bytes.
    Fixed {
        /// In bytes; 0 and 1 mean none.
        align: u32,
        /// In bytes.
        threshold: u32,
    },
}

/// Settings of a [`Connection`](super::Connection).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Versions of RPC-over-RDMA that are offered. With both, version two is tried first and
    /// version one taken where the server has no other (version two draft section 6).
    pub versions: Versions,
    /// How long the answer to the first message may take if version two is offered, counted from
    /// the end of [`settle`](Self::settle); at most half of [`timeout`](Self::timeout).
    pub negotiation: Duration,
    /// Servers that were lost on trying version two. With both versions offered, connections to
    /// them begin with version one. Clones of these settings share the memory.
    pub version_memory: VersionMemory,
    /// Whether version two nominates a key of each call that the server may invalidate. Version
    /// one tells the server in [`private_data`](Self::private_data). Neither does where the
    /// provider's keys cannot be invalidated by a peer.
    pub remote_invalidation: bool,
    /// Calls that the server may make at once on the same connection (RFC 8167); zero to serve
    /// none. There are so many receives more.
    pub reverse_credits: u32,
    /// The sizes stated to the server (RFC 8797), if any. Without them the inline limit is the
    /// version's default in both directions: 1024 bytes, or 4096 in version two. The receive size
    /// is also the size of posted receives.
    pub private_data: Option<PrivateData>,
    /// Credits asked for in every call, at least 1 (RFC 8166 section 3.3.1).
    pub credits: u32,
    /// Calls that may be in the hands of the connection, queued or sent; rounded up to a power of
    /// two.
    pub calls: usize,
    /// Receives posted beyond the credits asked for.
    pub spare_receives: u32,
    /// Most segments in one chunk. Linux uses up to 16.
    pub segments: usize,
    /// Segments that a reply chunk is cut into.
    pub reply_segments: usize,
    /// Data of more bytes than this goes into chunks even where the message would fit inline.
    pub chunk_above: usize,
    /// Whether every call travels as RDMA_NOMSG with the whole message at position zero, which
    /// servers have to take though it would have fitted inline (RFC 8166 section 3.5.3).
    pub long_calls: bool,
    /// Whether a write chunk has room for the pad of its data, for old servers that write it
    /// (RFC 5666 section 3.7).
    pub room_for_pad: bool,
    /// How long a call may take, from being submitted to its reply.
    pub timeout: Duration,
    /// The delay of a [`Session`](super::Session) between the establishment of its connection and
    /// the first call. Linux's siw as responder hands its socket over only after it has sent the
    /// MPA reply. A message that arrives in between is not processed before the next one, which no
    /// requester may send before it has a reply.
    pub settle: Duration,
    /// How long a [`Session`](super::Session) with [`keep_calls`](Self::keep_calls) waits for any
    /// reply while some are owed, before it gives the connection up and sends the calls again on a
    /// new one (RFC 8166 section 4.5.5). On the same one each call has taken a credit that only a
    /// reply gives back (RFC 8166 section 3.3.1), so they are not sent again there.
    pub resend_after: Duration,
    /// Whether calls survive the loss of the connection, to be sent again with the same XID by
    /// [`Connection::reconnect`](super::Connection::reconnect).
    pub keep_calls: bool,
    /// RDMA Reads of the server's that are served at once.
    pub ird: u16,
    /// RDMA Reads of ours that may be open at once, at most as many as the server serves. They
    /// fetch replies that come as read chunks (RFC 5666 section 3.8).
    pub ord: u16,
    /// Whether replies with read chunks are expected, so that a credit for RDMA_DONE is kept back
    /// from the first call on; else it is from the first such reply on (RFC 5666 section 3.8).
    /// Such replies are fetched in any case.
    pub expect_read_chunks: bool,
    /// Whether memory is offered for results that may not fit inline, as it should be (RFC 5666
    /// section 3.4). Without it a server has to send them as read chunks, if it does so at all.
    pub offer_results: bool,
    /// Whether limits are asked for before the first call (RFC 5666 section 6), in version one
    /// only, and only if [`identity`](Self::identity) says who asks (RFC 5666 section 11). They
    /// replace what private data told.
    pub ccp: Option<Ccp>,
    /// Whether inline data is aligned for the server.
    pub alignment: Alignment,
    /// Who calls.
    pub identity: Identity,
    /// The security context that calls are made under, instead of the identity.
    pub context: Option<Arc<GssContext>>,
    /// Channel bindings (RFC 5056) of a link that protects the connection, such as IPsec: available
    /// for binding a security context to the connection, and not used otherwise (RFC 5666 section
    /// 11).
    pub channel_bindings: Option<Vec<u8>>,
    /// The XID to begin with; taken at random if absent.
    pub first_xid: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            versions: Versions::ONE,
            negotiation: Duration::from_secs(10),
            version_memory: VersionMemory::default(),
            remote_invalidation: true,
            reverse_credits: 0,
            private_data: Some(PrivateData {
                remote_invalidation: true,
                send_size: 4096,
                receive_size: 4096,
            }),
            credits: 128,
            calls: 128,
            spare_receives: 8,
            segments: 16,
            reply_segments: 1,
            chunk_above: usize::MAX,
            long_calls: false,
            room_for_pad: false,
            timeout: Duration::from_secs(60),
            settle: Duration::from_millis(100),
            resend_after: Duration::from_secs(15),
            keep_calls: false,
            ird: 128,
            ord: 16,
            expect_read_chunks: false,
            offer_results: true,
            ccp: None,
            alignment: Alignment::Off,
            identity: Identity::system("millrace-bench", 0, 0, &[]),
            context: None,
            channel_bindings: None,
            first_xid: None,
        }
    }
}

impl Settings {
    /// Bytes of a posted receive, from the first on: whatever version two permits to be sent finds
    /// room (version two draft section 6.2).
    pub(super) fn receive_size(&self) -> usize {
        let least = self.versions.high().min_inline();
        let told = self.private_data.map_or(least, |told| told.receive_size);
        let asked = self.ccp.map_or(0, |ccp| ccp.reply_size);
        told.max(asked).max(least)
    }

    /// Receives of a connection.
    pub(super) fn receives(&self) -> u32 {
        self.credits.max(1) + self.spare_receives + self.reverse_credits
    }
}
