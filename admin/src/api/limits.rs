//! The limits of the API.

use std::time::Duration;

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Events per second; at least one.
    pub per_second: u32,
    /// Events at once, after a pause; at least one.
    pub burst: u32,
}

impl Rate {
    /// A rate per second, with bursts of twice that.
    pub const fn per_second(per_second: u32) -> Self {
        Self {
            per_second,
            burst: per_second.saturating_mul(2),
        }
    }
}

/// Limits of the API.
///
/// An address here is an IPv4 address, a /64 network of IPv6, or all of loopback.
///
/// One address may have a quarter of the connections, loopback half of them, and all other
/// addresses together three quarters. So remote clients cannot lock out an operator on this host.
/// For the same reason requests over loopback do not count against [`ApiLimits::total_rate`]. Where
/// a share is used up, the connection that has been idle longest is closed. If none is idle, eight
/// more connections are accepted, for requests with a valid token and requests for health. Rates do
/// not apply to requests with a valid token.
///
/// A connection has one request in service. Further requests wait in the connection's bounded
/// buffer, and beyond that in the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiLimits {
    /// Connections at once, TLS handshakes included. The Unix socket has as many of its own.
    pub connections: u32,
    /// How long a TLS handshake may take.
    pub handshake_time: Duration,
    /// Bytes of a request's line and headers.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// How long a client may take to send them; also how long it may keep an idle connection.
    pub header_time: Duration,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// How long a client may take to send it.
    pub body_time: Duration,
    /// How long a response may go without progress because the client does not read it.
    pub write_time: Duration,
    /// Bytes of a response that count as progress within that time.
    pub write_bytes: usize,
    /// Requests from one address.
    pub address_rate: Rate,
    /// Requests from this host.
    pub loopback_rate: Rate,
    /// Requests from all other hosts together.
    pub total_rate: Rate,
    /// Requests for `/healthz` and `/readyz` from one address. They have rates of their own, so
    /// that a flood of other requests from this address does not make the service seem unhealthy.
    pub health_rate: Rate,
    /// Calls into the service at once. More of them wait, within the time for a response. A call
    /// that was given up counts until it ends.
    pub questions: u32,
    /// How long the service may take to answer.
    pub answer_time: Duration,
    /// How long a change of the configuration may take, and how long it may wait for its turn.
    pub change_time: Duration,
    /// How long a connection may live, however busy; a capture may take longer.
    pub connection_time: Duration,
    /// Streams of events at once; operators have as many again.
    pub event_streams: u32,
    /// How often the service's state is compared while somebody follows events.
    pub observation_interval: Duration,
    /// How long responses in progress may take when a connection must end.
    pub drain_time: Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            handshake_time: Duration::from_secs(5),
            header_bytes: 16 * 1024,
            headers: 64,
            header_time: Duration::from_secs(10),
            body_bytes: 1 << 20,
            body_time: Duration::from_secs(10),
            write_time: Duration::from_secs(10),
            write_bytes: 16 * 1024,
            address_rate: Rate::per_second(250),
            loopback_rate: Rate::per_second(1000),
            total_rate: Rate::per_second(750),
            health_rate: Rate::per_second(25),
            questions: 4,
            answer_time: Duration::from_secs(5),
            change_time: Duration::from_secs(60),
            connection_time: Duration::from_secs(600),
            event_streams: 8,
            observation_interval: Duration::from_secs(1),
            drain_time: Duration::from_secs(5),
        }
    }
}
