//! Settings of the provider.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use millrace_iwarp::mpa::RtrKinds;

/// When FPDUs carry check values that mean something. The peer may ask for them as well, and gets
/// them then whatever is set here (RFC 5044 section 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcPolicy {
    /// On, but off where the peer is this same machine, since nothing can damage the bytes on the
    /// way that would not damage them in memory too.
    #[default]
    Auto,
    /// Always on.
    Required,
    /// Not asked for.
    Off,
}

impl CrcPolicy {
    pub(super) fn wants(self, peer: SocketAddr) -> bool {
        match self {
            Self::Auto => !peer.ip().to_canonical().is_loopback(),
            Self::Required => true,
            Self::Off => false,
        }
    }
}

/// Settings of one provider. The defaults suit a server and a client.
#[derive(Clone, Debug)]
pub struct IwarpConfig {
    /// Check values.
    pub crc: CrcPolicy,
    /// Whether enhanced connection setup (RFC 6581) is understood and used at all.
    pub enhanced: bool,
    /// Connecting: exchange read depths. Linux insists on it.
    pub exchange_depths: bool,
    /// Connecting: ask for the peer-to-peer model with an explicit ready-to-receive indication.
    pub peer_to_peer: bool,
    /// Connecting: if a peer closes on the enhanced request, try once more without.
    pub fallback: bool,
    /// Kinds of ready-to-receive indication, sent and understood.
    pub indications: RtrKinds,
    /// Most reads of a peer's that are ever served at once, whatever the peer wants.
    pub ird_limit: u16,
    /// Most connections at once; further ones are closed on arrival.
    pub connections_max: usize,
    /// Most connections at once that have not sent their request; one more ends the oldest.
    pub half_open_max: usize,
    /// Connecting: the address to connect from; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
    /// Time for TCP to connect.
    pub connect_wait: Duration,
    /// Time for the whole reply.
    pub reply_wait: Duration,
    /// Time for the whole request.
    pub request_wait: Duration,
    /// Time for the application to answer a request.
    pub decision_wait: Duration,
    /// Time for [`close`](crate::fabric::ControlPath::close) to send what is posted and for the
    /// peer to close too.
    pub close_wait: Duration,
    /// Time for a Terminate message to leave, and then for the peer to read it.
    pub terminate_wait: Duration,
    /// Silence after which the kernel asks whether the peer is still there; a peer that does not
    /// answer for as long again is given up. In whole seconds; `None` never asks.
    pub keep_alive: Option<Duration>,
    /// A peer that takes nothing of what was sent for so long, or shows no window, is given up
    /// (RFC 5482 section 3.1); `None` leaves it to the kernel, which may try for a quarter of an
    /// hour, and for ever where the peer only shows no window.
    pub user_timeout: Option<Duration>,
    /// Longest ULPDU to send, in bytes.
    pub ulpdu: usize,
    /// Size of the socket's send buffer in bytes; `None` leaves it to the kernel.
    pub send_buffer: Option<usize>,
    /// Size of the socket's receive buffer in bytes; `None` leaves it to the kernel.
    pub receive_buffer: Option<usize>,
}

impl Default for IwarpConfig {
    fn default() -> Self {
        Self {
            crc: CrcPolicy::Auto,
            enhanced: true,
            exchange_depths: true,
            peer_to_peer: false,
            fallback: false,
            indications: RtrKinds::ALL,
            ird_limit: 128,
            connections_max: 65_536,
            half_open_max: 512,
            source: None,
            connect_wait: Duration::from_secs(10),
            reply_wait: Duration::from_secs(10),
            request_wait: Duration::from_secs(5),
            decision_wait: Duration::from_secs(5),
            close_wait: Duration::from_secs(5),
            terminate_wait: Duration::from_secs(1),
            keep_alive: Some(Duration::from_secs(30)),
            user_timeout: Some(Duration::from_secs(30)),
            ulpdu: millrace_iwarp::Parameters::ULPDU_DEFAULT,
            send_buffer: None,
            receive_buffer: None,
        }
    }
}
