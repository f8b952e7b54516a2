//! The message of RFC 8797 in the private data of connection requests and replies.
//!
//! Other private data may precede it, so it is searched for (RFC 8797 section 5.2).
//! A peer without it has the defaults of its version ([`PrivateData::unstated`]).

use crate::rpcrdma::Version;

/// Bytes of the message.
pub const LENGTH: usize = 8;

/// The format identifier.
const MAGIC: u32 = 0xf6ab_0e18;
/// The version of the format.
const VERSION: u8 = 1;
/// The flag of remote invalidation.
const REMOTE_INVALIDATION: u8 = 1;
/// Unit of sizes.
const UNIT: usize = 1024;

/// The properties of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// Whether the peer supports remote invalidation. It is used if both do.
    pub remote_invalidation: bool,
    /// Most bytes that the peer sends in one message.
    pub send_size: usize,
    /// Most bytes that the peer receives in one message.
    pub receive_size: usize,
}

/// Sizes are encoded in units of 1024 bytes, rounded down, from 1024 to 262144 (RFC 8797 section
/// 4.2).
fn encode_size(bytes: usize) -> u8 {
    u8::try_from((bytes / UNIT).saturating_sub(1)).unwrap_or(u8::MAX)
}

fn decode_size(byte: u8) -> usize {
    (usize::from(byte) + 1) * UNIT
}

impl PrivateData {
    /// What holds for a peer that says nothing, in a version: the inline limits that all have, and no
    /// remote invalidation (RFC 8166 section 3.3.3, version two draft section 2.3).
    #[must_use]
    pub const fn unstated(version: Version) -> Self {
        Self {
            remote_invalidation: false,
            send_size: version.min_inline(),
            receive_size: version.min_inline(),
        }
    }

    /// The message's bytes. Sizes are rounded down to a multiple of 1024 and kept between 1024 and
    /// 262144.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let [a, b, c, d] = MAGIC.to_be_bytes();
        let flags = if self.remote_invalidation {
            REMOTE_INVALIDATION
        } else {
            0
        };
        [
            a,
            b,
            c,
            d,
            VERSION,
            flags,
            encode_size(self.send_size),
            encode_size(self.receive_size),
        ]
    }

    /// The first message of a known version in private data, if there is one.
    #[must_use]
    pub fn find(private_data: &[u8]) -> Option<Self> {
        private_data.windows(LENGTH).find_map(|window| {
            let (magic, rest) = window.split_first_chunk()?;
            match *rest {
                [VERSION, flags, send, receive] if u32::from_be_bytes(*magic) == MAGIC => {
                    Some(Self {
                        remote_invalidation: flags & REMOTE_INVALIDATION != 0,
                        send_size: decode_size(send),
                        receive_size: decode_size(receive),
                    })
                }
                _ => None,
            }
        })
    }

    /// Most bytes that `self` may send to `peer` in one message (RFC 8797 section 4.2).
    #[must_use]
    pub fn inline_to(&self, peer: &Self) -> usize {
        self.send_size.min(peer.receive_size)
    }
}
