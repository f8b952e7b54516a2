//! TCP sockets: making, accepting, options.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, sockopt};

use super::config::IwarpConfig;

const BACKLOG: i32 = 1024;
const KEEP_ALIVE_PROBES: u32 = 6;
const SECOND: Duration = Duration::from_secs(1);

fn stream_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        Some(ipproto::TCP),
    )?)
}

/// A connected socket to be handed to its owning provider.
pub(super) struct ArrivedSocket(pub OwnedFd);

/// A listening socket and its actual address.
pub(super) fn listen(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = stream_socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// An arrived connection, if there is one.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    let peer: SocketAddrAny = peer.ok_or(io::ErrorKind::NotConnected)?;
    let mut peer = SocketAddr::try_from(peer)?;
    // A listener for both families shows IPv4 peers as mapped addresses.
    if let Some(v4) = mapped(peer) {
        peer = v4;
    }
    Ok((socket, peer))
}

/// The IPv4 address of an IPv4-mapped IPv6 one.
fn mapped(address: SocketAddr) -> Option<SocketAddr> {
    let SocketAddr::V6(v6) = address else {
        return None;
    };
    Some(SocketAddr::from((v6.ip().to_ipv4_mapped()?, v6.port())))
}

/// Starts connecting.
pub(super) fn connect(address: SocketAddr, config: &IwarpConfig) -> io::Result<OwnedFd> {
    let socket = stream_socket(address)?;
    tune(socket.as_fd(), config)?;
    if let Some(source) = config.source {
        rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Whether a started connection is established; `None` while it is in progress.
pub(super) fn connected(socket: BorrowedFd<'_>) -> Option<io::Result<()>> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => match rustix::net::getpeername(socket) {
            Ok(Some(_)) => Some(Ok(())),
            Ok(None) | Err(rustix::io::Errno::NOTCONN) => None,
            Err(error) => Some(Err(error.into())),
        },
        Ok(Err(error)) | Err(error) => Some(Err(error.into())),
    }
}

/// Sets the options of a connection. Messages are sent in gathered writes, so there is no gain in
/// delaying them.
pub(super) fn tune(socket: BorrowedFd<'_>, config: &IwarpConfig) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    if let Some(silence) = config.keep_alive {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, silence)?;
        sockopt::set_tcp_keepintvl(socket, (silence / KEEP_ALIVE_PROBES).max(SECOND))?;
        sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_PROBES)?;
    }
    if let Some(silence) = config.user_timeout {
        let silence = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, silence)?;
    }
    if let Some(size) = config.send_buffer {
        sockopt::set_socket_send_buffer_size(socket, size)?;
    }
    if let Some(size) = config.receive_buffer {
        sockopt::set_socket_recv_buffer_size(socket, size)?;
    }
    Ok(())
}

/// Ends the outgoing direction. An error means that it has ended already.
pub(super) fn shut_down(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_take_nothing_or_are_gone_are_given_up_within_a_minute() {
        let (listener, address) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let config = IwarpConfig::default();
        let socket = connect(address, &config).unwrap();
        // Timeouts for pending data, for a closed window, and without data (RFC 5482, and
        // keep-alives).
        let unanswered = sockopt::tcp_user_timeout(&socket).unwrap();
        let silence = sockopt::tcp_keepidle(&socket).unwrap();
        let step = sockopt::tcp_keepintvl(&socket).unwrap();
        assert_eq!(unanswered, 30_000);
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert!(silence + step < Duration::from_secs(60));
        drop(listener);
    }
}
