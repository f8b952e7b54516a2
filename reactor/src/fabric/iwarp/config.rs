//! Settings of the provider.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use millrace_iwarp::mpa::RtrKinds;

/// When FPDUs carry check values. If the peer requests them, they are used with any setting (RFC
/// 5044 section 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcPolicy {
    /// On, but off if the peer is on the same machine, since damage on the way would affect memory
    /// as well.
    #[default]
    Auto,
    /// Always on.
    Required,
    /// Not requested.
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
    /// Whether enhanced connection setup (RFC 6581) is supported at all.
    pub enhanced: bool,
    /// Connecting: exchange read depths. Linux requires it.
    pub exchange_depths: bool,
    /// Connecting: request the peer-to-peer model with an explicit ready-to-receive indication.
    pub peer_to_peer: bool,
    /// Connecting: if a peer closes on the enhanced request, retry once without.
    pub fallback: bool,
    /// Kinds of ready-to-receive indication, sent and accepted.
    pub indications: RtrKinds,
    /// The most reads of a peer served at once, whatever the peer requests.
    pub ird_limit: u16,
    /// The most connections at once; further ones are closed on arrival.
    pub connections_max: usize,
    /// The most connections at once that have not sent their request; for one more, the oldest is
    /// closed.
    pub half_open_max: usize,
    /// Connecting: the address to connect from; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
    /// Timeout of the TCP connection.
    pub connect_wait: Duration,
    /// Timeout of the whole reply.
    pub reply_wait: Duration,
    /// Timeout of the whole request.
    pub request_wait: Duration,
    /// Timeout of the application's answer to a request.
    pub decision_wait: Duration,
    /// Timeout for [`close`](crate::fabric::ControlPath::close) to send posted work and for the
    /// peer to close too.
    pub close_wait: Duration,
    /// Timeout of sending a Terminate message, and then of the peer reading it.
    pub terminate_wait: Duration,
    /// Silence after which the kernel probes the peer; a peer that does not answer for as long
    /// again is given up. In whole seconds; `None` disables it.
    pub keep_alive: Option<Duration>,
    /// A peer that accepts no data for this long, or advertises no window, is given up (RFC 5482
    /// section 3.1); `None` leaves it to the kernel, which may retry for a quarter of an hour, and
    /// for ever if the peer only advertises no window.
    pub user_timeout: Option<Duration>,
    /// The longest ULPDU to send, in bytes.
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
