//! Settings of a connection, from the configuration and the peer.

use millrace_mempool::Class;
use millrace_reactor::fabric::PrivateData;
use millrace_wire::private_data;
use millrace_wire::rpcrdma::{MIN_INLINE, Rules, Version, Versions};

use super::compat::{Ccp, ExposureLimits};
use crate::transfer::TransferLimits;

/// Settings of the responder, the same for all connections of a reactor. They may be replaced while
/// it runs: limits apply to all connections from their next call on, [`Terms`] to new connections.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The longest message sent inline, and the minimum size of a receive, in bytes.
    pub inline: usize,
    /// The most credits granted to one connection.
    pub credits: u32,
    /// The rules for accepting headers.
    pub rules: Rules,
    /// Limits of replies with read chunks, for connections in classic mode.
    pub exposures: ExposureLimits,
    /// The connection configuration protocol, if it is served.
    pub ccp: Option<Ccp>,
    /// The minimum rates at which clients receive and send data.
    pub transfers: TransferLimits,
}

impl Settings {
    /// Settings for an inline limit in bytes, a limit of credits, and the bytes of the largest
    /// WRITE; with `padding` RDMA_MSGP is accepted, else refused (RFC 8166 section 4.6.1). Both
    /// versions are served; see [`Settings::serving`].
    #[must_use]
    pub fn new(inline: usize, credits: u32, transfer_max: u32, padding: bool) -> Self {
        let rules = Rules {
            versions: Versions::BOTH,
            padding,
            // One WRITE of the largest size, with its round-up and the message around it.
            read_bytes: u64::from(transfer_max) + 64 * 1024,
            ..Rules::default()
        };
        Self {
            inline: inline.max(MIN_INLINE),
            credits: credits.max(1),
            rules,
            exposures: ExposureLimits::default(),
            ccp: None,
            transfers: TransferLimits::default(),
        }
    }

    /// The same for these versions only.
    #[must_use]
    pub fn serving(mut self, versions: Versions) -> Self {
        self.rules.versions = versions;
        self
    }

    /// The same with the connection configuration protocol.
    #[must_use]
    pub fn configuring(mut self, ccp: Ccp) -> Self {
        self.ccp = Some(ccp);
        self
    }

    /// The size of a posted receive of new connections ([`Terms::receive_size`]).
    #[must_use]
    pub fn receive_size(&self) -> usize {
        Terms::of(self).receive_size()
    }

    /// The buffer class of receives.
    #[must_use]
    pub fn receive_class(&self) -> Class {
        Class::for_size(self.receive_size()).unwrap_or(Class::Large)
    }
}

/// Settings that a connection keeps for its lifetime, as they were announced to its client.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The longest message sent inline, and the minimum size of a receive, in bytes.
    pub inline: usize,
    /// The rules for accepting headers.
    pub rules: Rules,
    /// The connection configuration protocol, if it is served.
    pub ccp: Option<Ccp>,
}

impl Terms {
    /// Those of a new connection.
    #[must_use]
    pub const fn of(settings: &Settings) -> Self {
        let Settings {
            inline, rules, ccp, ..
        } = *settings;
        Self { inline, rules, ccp }
    }

    /// The size of a posted receive. From the first one on it is the longest that any served
    /// version permits, as a client may use its limit with any message (version two draft section
    /// 6.2).
    #[must_use]
    pub fn receive_size(&self) -> usize {
        self.inline.max(self.rules.versions.high().min_inline())
    }
}

/// The limits agreed by the private data of a connection request (RFC 8797), and later by the
/// configuration protocol, if the client uses it (RFC 5666 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// The longest message of version one that may be sent to the peer inline, in bytes.
    pub send: usize,
    /// The same of version two.
    pub send_two: usize,
    /// Whether replies may invalidate a key of the peer.
    pub invalidate: bool,
}

impl Inline {
    /// Decodes the peer's private data. Without it the version's own limits apply, and keys are not
    /// invalidated in version one. A size announced by the peer applies to all versions.
    #[must_use]
    pub fn of_peer(bytes: &[u8], settings: &Settings) -> Self {
        let stated = private_data::PrivateData::find(bytes);
        let peer = |version| stated.unwrap_or(private_data::PrivateData::unstated(version));
        Self {
            send: peer(Version::One).receive_size.min(settings.inline),
            send_two: peer(Version::Two).receive_size.min(settings.receive_size()),
            invalidate: peer(Version::One).remote_invalidation,
        }
    }

    /// The longest message of a version that may be sent inline, in bytes.
    #[must_use]
    pub const fn limit(self, version: Version) -> usize {
        match version {
            Version::One => self.send,
            Version::Two => self.send_two,
        }
    }
}

/// The private data of an accept: our sizes. The flag for remote invalidation refers to the reverse
/// direction here and is not set.
#[must_use]
pub fn private_data(settings: &Settings) -> PrivateData {
    let message = private_data::PrivateData {
        remote_invalidation: false,
        send_size: settings.receive_size(),
        receive_size: settings.receive_size(),
    };
    message.to_bytes().into_iter().collect()
}
